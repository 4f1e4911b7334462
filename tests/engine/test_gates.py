from __future__ import annotations

import itertools
from typing import Any

import pytest
from declared import EVERYTHING, NOTHING, other

from mcpio.engine.gates import (
    addressed_to,
    offered,
    why_no_task,
    why_not_asked,
    why_not_sent,
    why_not_served,
)
from mcpio.engine.table import Role
from mcpio.methods import METHODS, Direction, Method
from mcpio.revisions import (
    HANDSHAKE_REVISIONS,
    REV_2024_11_05,
    REV_2025_03_26,
    REV_2025_06_18,
    REV_2025_11_25,
    REV_2026_07_28,
    Revision,
)
from mcpio.types.features import (
    ClientCapabilities,
    ElicitationCapability,
    SamplingCapability,
    ServerCapabilities,
    ToolsCapability,
)
from mcpio.types.tasks import (
    ClientTaskRequestsCapability,
    ClientTasksCapability,
    ElicitationTasksCapability,
    SamplingTasksCapability,
    ServerTaskRequestsCapability,
    ServerTasksCapability,
    ToolTasksCapability,
)

MATRIX = list(itertools.product(METHODS.values(), Role, HANDSHAKE_REVISIONS))


@pytest.mark.req("CAP-05", "LIFE-14")
@pytest.mark.parametrize(
    ("method", "role", "revision"), MATRIX, ids=[f"{m.name}-{r.value}-{v.name}" for m, r, v in MATRIX]
)
def test_message_needs_direction_revision_and_capability(method: Method, role: Role, revision: Revision) -> None:
    wrong_way = method.direction is (Direction.TO_SERVER if role is Role.SERVER else Direction.TO_CLIENT)
    unknown = not method.since <= revision <= method.until
    gated = bool(method.capability) and revision >= method.gated_since

    bare = why_not_sent(method, role, revision, NOTHING[role], NOTHING[other(role)])
    full = why_not_sent(method, role, revision, EVERYTHING[role], EVERYTHING[other(role)])
    if wrong_way:
        assert bare == full == f"{method.name} is not for a {role.value} to send"
    elif unknown:
        assert bare == full == f"{method.name} does not exist in revision {revision.name}"
    else:
        assert full is None
        assert (bare is not None) == gated
    if not wrong_way and not unknown and gated:
        own_only = why_not_sent(method, role, revision, EVERYTHING[role], NOTHING[other(role)])
        peer_only = why_not_sent(method, role, revision, NOTHING[role], EVERYTHING[other(role)])
        assert (own_only is None, peer_only is None) == (method.holder == "sender", method.holder == "receiver")


@pytest.mark.req("CAP-05")
def test_refusal_names_the_capability_and_its_side() -> None:
    call, changed = METHODS["tools/call"], METHODS["notifications/tools/list_changed"]
    none = ClientCapabilities()
    assert why_not_sent(call, Role.CLIENT, REV_2025_11_25, none, ServerCapabilities()) == (
        "tools/call needs the capability tools, which the peer did not declare"
    )
    assert why_not_sent(call, Role.CLIENT, REV_2025_11_25, none, None) == (
        "tools/call needs the capability tools, which the peer did not declare"
    )
    assert why_not_sent(changed, Role.SERVER, REV_2025_11_25, ServerCapabilities(tools=ToolsCapability()), none) == (
        "notifications/tools/list_changed needs the capability tools.list_changed, which this side did not declare"
    )


@pytest.mark.req("CAP-06")
def test_completion_before_2025_03_26_needs_no_capability() -> None:
    method, none = METHODS["completion/complete"], ServerCapabilities()
    assert why_not_sent(method, Role.CLIENT, REV_2024_11_05, ClientCapabilities(), none) is None
    assert why_not_sent(method, Role.CLIENT, REV_2025_03_26, ClientCapabilities(), none) is not None
    assert "completion/complete" in offered(Role.SERVER, REV_2024_11_05, none)


def test_ping_is_addressed_to_both_roles() -> None:
    assert [addressed_to(METHODS["ping"], role) for role in Role] == [True, True]
    assert [addressed_to(METHODS["roots/list"], role) for role in Role] == [True, False]
    assert [addressed_to(METHODS["tools/list"], role) for role in Role] == [False, True]


TASKS: dict[str, ServerCapabilities | ClientCapabilities] = {
    "tools/call": ServerCapabilities(
        tasks=ServerTasksCapability(requests=ServerTaskRequestsCapability(tools=ToolTasksCapability(call={})))
    ),
    "sampling/createMessage": ClientCapabilities(
        tasks=ClientTasksCapability(
            requests=ClientTaskRequestsCapability(sampling=SamplingTasksCapability(create_message={}))
        )
    ),
    "elicitation/create": ClientCapabilities(
        tasks=ClientTasksCapability(requests=ClientTaskRequestsCapability(elicitation=ElicitationTasksCapability({})))
    ),
}


@pytest.mark.req("TASK-02", "TASK-05")
@pytest.mark.parametrize("name", TASKS)
def test_task_request_needs_the_capability_of_its_method(name: str) -> None:
    method = METHODS[name]
    for other_name, capabilities in TASKS.items():
        fault = why_no_task(method, REV_2025_11_25, capabilities)
        assert fault is None if other_name == name else "which the peer did not declare" in str(fault)
    for nothing in (None, ServerCapabilities(), ClientCapabilities(tasks=ClientTasksCapability(list={}, cancel={}))):
        assert f"{name} as a task needs the capability tasks.requests." in str(
            why_no_task(method, REV_2025_11_25, nothing)
        )


@pytest.mark.req("TASK-02")
@pytest.mark.parametrize("revision", [REV_2024_11_05, REV_2025_03_26, REV_2025_06_18, REV_2026_07_28])
def test_task_request_needs_2025_11_25(revision: Revision) -> None:
    fault = why_no_task(METHODS["tools/call"], revision, TASKS["tools/call"])
    assert fault == f"tools/call can be a task in revision 2025-11-25 only, not in {revision}"


def both_ways(
    name: str, params: dict[str, Any], client: ClientCapabilities, revision: Revision = REV_2025_11_25
) -> Any:
    """Return what forbids a request, which is the same for the server that sends it and the client that gets it."""
    sent, served = why_not_asked(name, params, revision, client), why_not_served(name, params, revision, client)
    assert sent == served
    return sent


@pytest.mark.req("ELIC-01", "ELIC-02")
@pytest.mark.parametrize(
    ("declared", "form", "url"),
    [
        (None, False, False),
        (ElicitationCapability(), True, False),
        (ElicitationCapability(form={}), True, False),
        (ElicitationCapability(url={}), False, True),
        (ElicitationCapability(form={}, url={}), True, True),
    ],
)
def test_elicitation_mode_needs_its_capability(declared: ElicitationCapability | None, form: bool, url: bool) -> None:
    client = ClientCapabilities(elicitation=declared)
    address = "https://example.com"
    for params, mode, allowed in (({}, "form", form), ({"mode": "url", "url": address}, "url", url)):
        fault = f"mode {mode} needs the capability elicitation.{mode}, which the client did not declare"
        assert both_ways("elicitation/create", params, client) == (None if allowed else fault)


@pytest.mark.parametrize("mode", ["extra", 5, None, ["form"]])
def test_unknown_elicitation_mode_is_never_declared(mode: Any) -> None:
    client = EVERYTHING[Role.CLIENT]
    assert str(both_ways("elicitation/create", {"mode": mode}, client)).startswith(f"mode {mode} needs the capability")


@pytest.mark.req("ELIC-14")
@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "example.com", "https://a b", None])
def test_url_elicitation_without_a_web_address_is_refused(url: Any) -> None:
    params = {"mode": "url", "url": url}
    assert "a web address" in str(both_ways("elicitation/create", params, EVERYTHING[Role.CLIENT]))


@pytest.mark.req("SAMP-05", "SAMP-06")
@pytest.mark.parametrize("member", ["tools", "toolChoice"])
def test_sampling_with_tools_needs_its_capability(member: str) -> None:
    plain = ClientCapabilities(sampling=SamplingCapability())
    fault = f"{member} needs the capability sampling.tools, which the client did not declare"
    for params, found in (({member: []}, fault), ({member: {}}, fault), ({member: None}, None)):
        assert both_ways("sampling/createMessage", params, plain) == found
        assert both_ways("sampling/createMessage", params, plain, REV_2025_06_18) is None
        with_tools = ClientCapabilities(sampling=SamplingCapability(tools={}))
        assert both_ways("sampling/createMessage", params, with_tools) is None


@pytest.mark.req("SAMP-07")
@pytest.mark.parametrize(
    ("wants", "declared", "revision", "refused"),
    [
        (None, SamplingCapability(), REV_2025_11_25, False),
        ("none", SamplingCapability(), REV_2025_11_25, False),
        ("thisServer", SamplingCapability(), REV_2025_11_25, True),
        ("allServers", SamplingCapability(tools={}), REV_2025_11_25, True),
        ("allServers", SamplingCapability(context={}), REV_2025_11_25, False),
        ("allServers", SamplingCapability(), REV_2025_06_18, False),
    ],
)
def test_context_of_servers_is_requested_only_if_declared_and_served_in_any_case(
    wants: str | None, declared: SamplingCapability, revision: Revision, refused: bool
) -> None:
    client, params = ClientCapabilities(sampling=declared), {"includeContext": wants}
    fault = why_not_asked("sampling/createMessage", params, revision, client)
    assert (fault is not None) is refused
    assert why_not_served("sampling/createMessage", params, revision, client) is None


def said(role: str, *content: Any) -> dict[str, Any]:
    return {"role": role, "content": list(content)}


def use(id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "t", "input": {}}


def result(id: str) -> dict[str, Any]:
    return {"type": "tool_result", "toolUseId": id, "content": []}


TEXT = {"type": "text", "text": "text"}
MIXED = "Tool results mixed with other content"
MISSING = "Tool result missing in request"
STRAY = "Tool result without a tool use"


@pytest.mark.req("SAMP-09", "SAMP-10", "TOOL-24")
@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([], None),
        ([{"role": "user", "content": TEXT}], None),
        ([said("user", TEXT), said("assistant", TEXT)], None),
        ([said("assistant", TEXT, use("1")), said("user", result("1")), said("assistant", TEXT)], None),
        ([said("assistant", use("1"), use("2")), said("user", result("2"), result("1"))], None),
        ([{"role": "assistant", "content": use("1")}, {"role": "user", "content": result("1")}], None),
        ([said("assistant", use("1")), said("user", result("1"), TEXT)], MIXED),
        ([said("assistant", use("1")), said("assistant", result("1"))], MIXED),
        ([said("assistant", use("1"))], MISSING),
        ([said("assistant", use("1")), said("user", TEXT)], MISSING),
        ([said("assistant", use("1"), use("2")), said("user", result("1"))], MISSING),
        ([said("assistant", use("1")), said("user", TEXT), said("user", result("1"))], MISSING),
        ([said("user", result("1"))], STRAY),
        ([said("assistant", use("1")), said("user", result("1"), result("2"))], STRAY),
        (None, None),
        ([5, {"content": [5, {"type": "tool_use", "id": []}]}], MISSING),
    ],
)
def test_tool_results_must_follow_their_uses(messages: Any, fault: str | None) -> None:
    client = ClientCapabilities(sampling=SamplingCapability())
    assert both_ways("sampling/createMessage", {"messages": messages}, client) == fault
    assert both_ways("sampling/createMessage", {"messages": messages}, client, REV_2025_06_18) is None


def test_request_without_a_rule_has_no_fault() -> None:
    assert (
        both_ways("roots/list", {"mode": "url", "tools": [], "includeContext": "thisServer"}, ClientCapabilities())
        is None
    )
