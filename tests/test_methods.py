from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from mcpio.methods import METHODS, Direction, Kind, Method, declares, method_of, official_name
from mcpio.revisions import (
    REV_2024_11_05,
    REV_2025_03_26,
    REV_2025_06_18,
    REV_2025_11_25,
    REV_2026_07_28,
    REVISIONS,
)
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    CustomNotification,
    CustomRequest,
    ElicitationCapability,
    ElicitFormRequest,
    ElicitURLRequest,
    ResourcesCapability,
    SamplingCapability,
    ServerCapabilities,
    ServerTaskRequestsCapability,
    ServerTasksCapability,
    ToolsCapability,
    ToolTasksCapability,
)
from mcpio.types._fields import Payload
from mcpio.types.base import NotificationPayload, RequestPayload, ResultPayload

ROWS = list(METHODS.values())
SERVER, CLIENT, BOTH = Direction.TO_SERVER, Direction.TO_CLIENT, Direction.BOTH


@pytest.mark.parametrize("method", ROWS, ids=METHODS)
def test_rows_are_consistent(method: Method) -> None:
    assert METHODS[method.name] is method
    assert method.name.startswith("notifications/") == (method.kind is Kind.NOTIFICATION)
    base = RequestPayload if method.kind is Kind.REQUEST else NotificationPayload
    assert issubclass(method.params_type, base)
    assert method.params_type is method.params_type
    if method.kind is Kind.REQUEST:
        assert issubclass(method.result_type, ResultPayload)
    assert method.since <= method.until


@pytest.mark.parametrize("method", ROWS, ids=METHODS)
def test_a_method_has_its_types_in_all_its_revisions(method: Method) -> None:
    types: list[type[Payload]] = [method.params_type]
    if method.result is not None:
        types.append(method.result_type)
    for cls in types:
        assert method.since >= cls.SINCE
        assert method.until <= cls.UNTIL


@pytest.mark.parametrize("method", ROWS, ids=METHODS)
def test_a_payload_knows_its_method(method: Method) -> None:
    assert method_of(method.params_type) is method


def test_how_many_methods_there_are() -> None:
    assert len(METHODS) == 38
    counts = [
        tuple(sum(row.exists_in(revision) and row.kind is kind for row in ROWS) for kind in Kind)
        for revision in REVISIONS
    ]
    assert counts == [(18, 9), (18, 9), (19, 9), (23, 11), (13, 9)]


def test_method_of_accepts_payloads_classes_and_subclasses() -> None:
    class Loud(CallToolRequest):
        pass

    assert method_of(CallToolRequest("echo")).name == "tools/call"
    assert method_of(Loud("echo")).name == "tools/call"
    assert method_of(ElicitFormRequest) is method_of(ElicitURLRequest) is METHODS["elicitation/create"]


@pytest.mark.parametrize("payload", [CustomRequest("x/y"), CustomNotification("x/y"), CallToolResult(()), 5, None, int])
def test_method_of_anything_else_raises_key_error(payload: Any) -> None:
    with pytest.raises(KeyError):
        method_of(payload)


def test_a_notification_has_no_result() -> None:
    with pytest.raises(TypeError, match="notifications/progress is a notification and has no result"):
        _ = METHODS["notifications/progress"].result_type


def test_method_exists_in_its_revisions() -> None:
    assert METHODS["initialize"].exists_in(REV_2025_11_25)
    assert not METHODS["initialize"].exists_in(REV_2026_07_28)
    assert not METHODS["elicitation/create"].exists_in(REV_2025_03_26)
    assert METHODS["server/discover"].exists_in(REV_2026_07_28)


@pytest.mark.req("CAP-06")
def test_completion_needs_no_capability_at_first() -> None:
    method = METHODS["completion/complete"]
    assert method.capability_in(REV_2024_11_05) == ()
    assert method.capability_in(REV_2025_03_26) == ("completions",)


def test_receiver_may_differ_by_era() -> None:
    progress = METHODS["notifications/progress"]
    assert [progress.direction_in(revision) for revision in REVISIONS] == [BOTH, BOTH, BOTH, BOTH, CLIENT]
    assert METHODS["tools/call"].direction_in(REV_2026_07_28) is SERVER


@pytest.mark.parametrize(
    ("name", "direction", "holder", "capability"),
    [
        ("tools/call", SERVER, "receiver", "tools"),
        ("resources/subscribe", SERVER, "receiver", "resources.subscribe"),
        ("logging/setLevel", SERVER, "receiver", "logging"),
        ("sampling/createMessage", CLIENT, "receiver", "sampling"),
        ("roots/list", CLIENT, "receiver", "roots"),
        ("tasks/list", BOTH, "receiver", "tasks.list"),
        ("ping", BOTH, "receiver", ""),
        ("notifications/message", CLIENT, "sender", "logging"),
        ("notifications/tools/list_changed", CLIENT, "sender", "tools.list_changed"),
        ("notifications/resources/updated", CLIENT, "sender", "resources.subscribe"),
        ("notifications/roots/list_changed", SERVER, "sender", "roots.list_changed"),
        ("notifications/elicitation/complete", CLIENT, "receiver", "elicitation.url"),
        ("notifications/tasks/status", BOTH, "sender", "tasks"),
    ],
)
def test_method_requires_its_capability(name: str, direction: Direction, holder: str, capability: str) -> None:
    method = METHODS[name]
    assert (method.direction, method.holder, ".".join(method.capability)) == (direction, holder, capability)


def test_special_kinds_of_requests() -> None:
    assert {row.name for row in ROWS if row.may_ask} == {"tools/call", "prompts/get", "resources/read"}
    embedded = {"sampling/createMessage", "roots/list", "elicitation/create"}
    assert {row.name for row in ROWS if row.embedded} == embedded
    tasks = {row.name for row in ROWS if row.task_capability}
    assert tasks == {"tools/call", "sampling/createMessage", "elicitation/create"}


TASKS = ServerTasksCapability({}, requests=ServerTaskRequestsCapability(ToolTasksCapability({})))


@pytest.mark.req("CAP-01")
@pytest.mark.parametrize(
    ("capabilities", "path", "declared"),
    [
        (ServerCapabilities(), "tools", False),
        (ServerCapabilities(ToolsCapability()), "tools", True),
        (ServerCapabilities(ToolsCapability()), "tools.list_changed", False),
        (ServerCapabilities(ToolsCapability(False)), "tools.list_changed", False),
        (ServerCapabilities(ToolsCapability(True)), "tools.list_changed", True),
        (ServerCapabilities(logging={}), "logging", True),
        (ServerCapabilities(resources=ResourcesCapability(True)), "resources.subscribe", True),
        (ServerCapabilities(resources=ResourcesCapability(True)), "resources.list_changed", False),
        (ServerCapabilities(tasks=TASKS), "tasks.requests.tools.call", True),
        (ServerCapabilities(tasks=TASKS), "tasks.list", True),
        (ServerCapabilities(tasks=TASKS), "tasks.cancel", False),
        (ServerCapabilities(tasks=ServerTasksCapability()), "tasks.requests.tools.call", False),
        (ServerCapabilities(), "teleport", False),
        (ServerCapabilities(ToolsCapability(True)), "tools.list_changed.really", False),
        (ClientCapabilities(sampling=SamplingCapability(tools={})), "sampling.tools", True),
        (ClientCapabilities(sampling=SamplingCapability()), "sampling.tools", False),
        (ClientCapabilities(extensions={"a/b": {}}), "extensions.a/b", True),
        (ClientCapabilities(extensions={"a/b": {}}), "extensions.a/c", False),
        (ClientCapabilities(), "elicitation.form", False),
        (ClientCapabilities(elicitation=ElicitationCapability()), "elicitation.form", True),
        (ClientCapabilities(elicitation=ElicitationCapability()), "elicitation.url", False),
        (ClientCapabilities(elicitation=ElicitationCapability(form={})), "elicitation.form", True),
        (ClientCapabilities(elicitation=ElicitationCapability(url={})), "elicitation.form", False),
        (ClientCapabilities(elicitation=ElicitationCapability(url={})), "elicitation.url", True),
        (ServerCapabilities(), "elicitation.form", False),
    ],
)
def test_declares_finds_capabilities_by_path(capabilities: Any, path: str, declared: bool) -> None:
    assert declares(capabilities, tuple(path.split("."))) is declared


def test_no_path_is_always_declared() -> None:
    assert declares(ServerCapabilities(), ())


@pytest.mark.parametrize("method", [row for row in ROWS if row.capability], ids=lambda row: row.name)
def test_every_path_leads_to_a_capability(method: Method) -> None:
    holders = [ServerCapabilities(), ClientCapabilities()]
    assert any(hasattr(holder, method.capability[0]) for holder in holders)
    if method.direction is not BOTH:
        to_server = method.direction is SERVER
        of_server = to_server == (method.holder == "receiver")
        assert hasattr(holders[0] if of_server else holders[1], method.capability[0])


def test_the_table_loads_no_feature() -> None:
    program = "import mcpio.methods, sys; print(*(name for name in sys.modules if name.startswith('mcpio.types.')))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["mcpio.types._fields"]
    assert REV_2025_06_18 in REVISIONS


def test_official_name_of_a_dialect_name() -> None:
    assert official_name(CallToolRequest("x"), "tools/call") == "tools/call"
    assert official_name(CallToolRequest("x"), "tasks/create") == "tools/call"
    assert official_name(CustomRequest("acme/x"), "acme/x") == "acme/x"
