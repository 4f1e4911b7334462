from __future__ import annotations

import itertools
from typing import Any

import pytest

from mcpio.engine.gates import addressed_to, offers, receivable, why_no_task, why_not_sent
from mcpio.engine.table import Role
from mcpio.methods import METHODS, Direction, Kind, Method
from mcpio.revisions import (
    HANDSHAKE_REVISIONS,
    REV_2024_11_05,
    REV_2025_03_26,
    REV_2025_06_18,
    REV_2025_11_25,
    REV_2026_07_28,
    Revision,
)
from mcpio.types.lifecycle import (
    ClientCapabilities,
    ElicitationCapability,
    PromptsCapability,
    ResourcesCapability,
    RootsCapability,
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

NOTHING: dict[Role, Any] = {Role.CLIENT: ClientCapabilities(), Role.SERVER: ServerCapabilities()}
EVERYTHING: dict[Role, Any] = {
    Role.CLIENT: ClientCapabilities(
        roots=RootsCapability(list_changed=True),
        sampling=SamplingCapability(),
        elicitation=ElicitationCapability(form={}, url={}),
        tasks=ClientTasksCapability(list={}, cancel={}),
    ),
    Role.SERVER: ServerCapabilities(
        tools=ToolsCapability(list_changed=True),
        resources=ResourcesCapability(subscribe=True, list_changed=True),
        prompts=PromptsCapability(list_changed=True),
        logging={},
        completions={},
        tasks=ServerTasksCapability(list={}, cancel={}),
    ),
}


def other(role: Role) -> Role:
    return Role.SERVER if role is Role.CLIENT else Role.CLIENT


MATRIX = list(itertools.product(METHODS.values(), Role, HANDSHAKE_REVISIONS))


@pytest.mark.req("CAP-05", "LIFE-14")
@pytest.mark.parametrize(
    ("method", "role", "revision"), MATRIX, ids=[f"{m.name}-{r.value}-{v.name}" for m, r, v in MATRIX]
)
def test_a_message_goes_out_where_direction_revision_and_capabilities_agree(
    method: Method, role: Role, revision: Revision
) -> None:
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
def test_a_refusal_says_what_is_missing_and_on_which_side() -> None:
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
def test_completions_need_no_capability_before_they_had_one() -> None:
    method, none = METHODS["completion/complete"], ServerCapabilities()
    assert why_not_sent(method, Role.CLIENT, REV_2024_11_05, ClientCapabilities(), none) is None
    assert why_not_sent(method, Role.CLIENT, REV_2025_03_26, ClientCapabilities(), none) is not None
    assert receivable(Role.SERVER, REV_2024_11_05)["completion/complete"] == (method, ())


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS, ids=str)
def test_a_role_receives_just_the_requests_that_the_other_may_send(role: Role, revision: Revision) -> None:
    table = receivable(role, revision)
    for method in METHODS.values():
        sendable = method.kind is Kind.REQUEST and (
            why_not_sent(method, other(role), revision, EVERYTHING[other(role)], EVERYTHING[role]) is None
        )
        assert (method.name in table) == sendable
        if sendable:
            assert table[method.name] == (method, method.capability_in(revision))
    assert receivable(role, revision) is table


def test_requests_of_the_stateless_era_are_not_received_in_a_handshake_session() -> None:
    assert "server/discover" not in receivable(Role.SERVER, REV_2025_11_25)
    assert "server/discover" in receivable(Role.SERVER, REV_2026_07_28)
    assert "elicitation/create" not in receivable(Role.CLIENT, REV_2025_03_26)
    assert "elicitation/create" in receivable(Role.CLIENT, REV_2025_06_18)


@pytest.mark.req("CAP-01", "CAP-07")
@pytest.mark.parametrize(
    ("own", "path", "declared"),
    [
        (ServerCapabilities(), (), True),
        (ServerCapabilities(), ("tools",), False),
        (ServerCapabilities(), ("no_such_thing",), False),
        (ServerCapabilities(tools=ToolsCapability()), ("tools",), True),
        (ServerCapabilities(logging={}), ("logging",), True),
        (ServerCapabilities(resources=ResourcesCapability()), ("resources", "subscribe"), False),
        (ServerCapabilities(resources=ResourcesCapability(subscribe=False)), ("resources", "subscribe"), False),
        (ServerCapabilities(resources=ResourcesCapability(subscribe=True)), ("resources", "subscribe"), True),
    ],
)
def test_an_empty_object_declares_and_absence_or_false_does_not(
    own: ServerCapabilities, path: tuple[str, ...], declared: bool
) -> None:
    assert offers(own, path) is declared


def test_what_is_for_both_is_addressed_to_either() -> None:
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
def test_a_task_needs_a_peer_that_declared_that_very_request(name: str) -> None:
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
def test_a_task_needs_the_revision_that_has_them(revision: Revision) -> None:
    fault = why_no_task(METHODS["tools/call"], revision, TASKS["tools/call"])
    assert fault == f"tools/call can be a task in revision 2025-11-25 only, not in {revision}"
