"""What guides claim of capabilities (B), features (C) and errors (E), as it is and with the profile: see test_seeds."""

from __future__ import annotations

from typing import Any

import pytest
from wires import INFO, INITIALIZED, call, client, feed, new_server, note, one, request, result, sent, server

from mcpio.engine.client import ClientConnection
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.errors import ErrorCode, RequestError
from mcpio.events import (
    Answered,
    CancelReceived,
    IncomingId,
    Negotiated,
    NotificationReceived,
    ProgressReceived,
    RequestFailed,
    ResponseReceived,
)
from mcpio.methods import declares
from mcpio.profiles import ErlmcpCode, ErlmcpExperimentalCode, Profile
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    CustomNotification,
    ListToolsRequest,
    ResourceLink,
    ResourcesCapability,
    ResourceUpdatedNotification,
    ServerCapabilities,
    ToolListChangedNotification,
    UnknownContent,
)

ERLMCP = frozenset({Profile.ERLMCP})
LSP = frozenset({Profile.LSP_ALIASES})
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}

# B: capabilities


def introduced(declared: dict[str, Any], profiles: frozenset[Profile] = frozenset()) -> Negotiated:
    """Have a client declare something to a server."""
    connection = new_server(profiles=profiles)
    (event,) = feed(connection, request("initialize", 1, **{**HELLO, "capabilities": declared}))
    assert isinstance(event, Negotiated)
    return event


def welcomed(declared: dict[str, Any], profiles: frozenset[Profile] = frozenset()) -> ClientConnection:
    """Have a server declare something to a client."""
    connection = ClientConnection(INFO, options=Options(profiles=profiles))
    connection.send_initialize(now=0.0)
    answer = {"protocolVersion": "2025-11-25", "capabilities": declared, "serverInfo": {"name": "s", "version": "1"}}
    feed(connection, result(1, **answer))
    sent(connection)
    return connection


@pytest.mark.req("CAP-02")
def test_b4_server_capability_from_a_client_is_ignored() -> None:
    for profiles in (frozenset[Profile](), ERLMCP):
        event = introduced({"resources": {}, "tools": {}, "prompts": {}, "logging": {}}, profiles)
        assert event.raw["params"]["capabilities"].keys() == {"resources", "tools", "prompts", "logging"}
        assert not declares(event.capabilities, ("roots",))


@pytest.mark.req("CAP-02")
def test_b5_client_capability_from_a_server_is_ignored() -> None:
    connection = welcomed({"sampling": {}, "elicitation": {}})
    refused = one(connection, request("sampling/createMessage", 5))
    assert isinstance(refused, Answered)


def test_b6_presence_declares_and_only_the_profile_reads_enabled() -> None:
    on, off = {"roots": {"enabled": True}}, {"roots": {"enabled": False}, "sampling": {"enabled": False}}
    for profiles in (frozenset[Profile](), ERLMCP):
        assert declares(introduced(on, profiles).capabilities, ("roots",))
    assert declares(introduced(off).capabilities, ("sampling",))
    event = introduced(off, ERLMCP)
    assert not declares(event.capabilities, ("roots",))
    assert not declares(event.capabilities, ("sampling",))
    assert event.raw["params"]["capabilities"] == off
    for profiles in (frozenset[Profile](), ERLMCP):
        peer = welcomed({"tools": {"enabled": False}}, profiles).peer
        assert peer is not None
        assert declares(peer.capabilities, ("tools",)) is (profiles != ERLMCP)


def test_b7_profile_reads_completion_as_completions() -> None:
    for profiles, known in ((frozenset[Profile](), False), (ERLMCP, True)):
        peer = welcomed({"completion": {}}, profiles).peer
        assert peer is not None
        assert declares(peer.capabilities, ("completions",)) is known


def test_b8_apps_capability_is_unknown() -> None:
    for profiles in (frozenset[Profile](), ERLMCP):
        assert introduced({"apps": {"x": 1}}, profiles).raw["params"]["capabilities"] == {"apps": {"x": 1}}
        connection = server(profiles=profiles)
        feed(connection, request("register", 1))
        assert sent(connection)[0]["error"]["code"] == -32601


# C: the rows that name a profile


def test_c10_profile_reads_progress_token_from_params() -> None:
    message = request("tools/call", 1, name="x", progressToken="p", requestId="ignored")
    for profiles, reports in ((frozenset[Profile](), 0), (ERLMCP, 1)):
        connection = server(profiles=profiles)
        event = one(connection, message)
        assert event.raw == message
        connection.send_progress(event.id, 1)
        assert len(sent(connection)) == reports


def test_c16_profile_accepts_another_type_for_resource_link() -> None:
    block = {"type": "resource/link", "uri": "x:y", "name": "n"}
    for profiles, kind in ((frozenset[Profile](), UnknownContent), (ERLMCP, ResourceLink)):
        connection = client(profiles=profiles)
        id = connection.send_request(CallToolRequest("x"), now=0.0)
        event = one(connection, result(int(id), content=[block]))
        assert isinstance(event, ResponseReceived)
        assert type(event.result.content[0]) is kind
        assert event.raw["result"]["content"] == [block]
    for emit, kind_sent in ((None, "resource_link"), (Profile.ERLMCP, "resource/link")):
        speaking = server(emit_profile=emit)
        feed(speaking, call(1))
        speaking.send_result(IncomingId(1), CallToolResult((ResourceLink("n", "x:y"),)))
        assert sent(speaking)[0]["result"]["content"][0]["type"] == kind_sent


@pytest.mark.parametrize(
    "name", ["resources/updated", "resources/list_changed", "tools/list_changed", "prompts/list_changed"]
)
def test_c20_profile_accepts_notifications_without_prefix(name: str) -> None:
    message = {"jsonrpc": "2.0", "method": name, "params": {"uri": "x:y"}}
    for profiles in (frozenset[Profile](), LSP, ERLMCP):
        event = one(client(profiles=profiles), message)
        assert isinstance(event, NotificationReceived)
        assert isinstance(event.notification, CustomNotification) is (profiles != ERLMCP)
        assert event.raw == message
    if name == "resources/updated":
        event = one(client(profiles=ERLMCP), message)
        assert event.notification == ResourceUpdatedNotification("x:y")


def test_c20_profile_sends_notifications_without_prefix_only_on_request() -> None:
    declared = ServerCapabilities(tools=_changing(), resources=ResourcesCapability(True, True))
    for emit in (None, Profile.ERLMCP):
        connection = ServerConnection(INFO, declared, options=Options(profiles=ERLMCP, emit_profile=emit))
        feed(connection, request("initialize", 0, **HELLO), INITIALIZED)
        sent(connection)
        for _ in range(2):
            connection.send_notification(ToolListChangedNotification())
            connection.send_notification(ResourceUpdatedNotification("x:y"))
        prefix = "notifications/" if emit is None else ""
        assert [message["method"].removeprefix(prefix) for message in sent(connection)] == [
            "tools/list_changed",
            "resources/updated",
        ]


def _changing() -> Any:
    from mcpio.types import ToolsCapability

    return ToolsCapability(True)


def test_c31_profile_passes_tasks_create_to_a_hook() -> None:
    message = request("tasks/create", 1, type="sum", input={"a": 1})

    def hook(params: Any) -> Any:
        return {"name": params["type"], "arguments": params["input"]}

    refusing: list[dict[str, Any]] = [
        {},
        {"profiles": ERLMCP},
        {"on_tasks_create": hook},
        {"profiles": LSP, "on_tasks_create": hook},
    ]
    for options in refusing:
        connection = server(**options)
        feed(connection, message)
        assert sent(connection)[0]["error"]["code"] == -32601
    connection = server(profiles=ERLMCP, on_tasks_create=hook)
    event = one(connection, message)
    assert event.request == CallToolRequest("sum", {"a": 1})
    assert event.raw == message
    connection.send_result(event.id, CallToolResult(()))
    assert sent(connection)[0]["id"] == 1


def test_c42_profile_reads_requests_cancel_as_cancellation() -> None:
    for message in (
        {"jsonrpc": "2.0", "method": "requests/cancel", "params": {"requestId": "runs"}},
        request("requests/cancel", 9, requestId="runs"),
    ):
        for profiles in (frozenset[Profile](), ERLMCP):
            connection = server(profiles=profiles)
            feed(connection, call("runs"))
            events = feed(connection, message)
            assert isinstance(events[0], CancelReceived) is (profiles == ERLMCP)
            assert connection.pending.incoming == (() if profiles else (1,))
            answers = sent(connection)
            assert len(answers) == ("id" in message)
            assert [each.get("error", {}).get("code") for each in answers] == [None if profiles else -32601] * len(
                answers
            )


def test_c43_lsp_profile_reads_cancel_request_as_cancellation() -> None:
    message = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": "runs"}}
    for profiles in (frozenset[Profile](), ERLMCP, LSP):
        connection = server(profiles=profiles)
        feed(connection, call("runs"))
        event = one(connection, message)
        assert type(event) is (CancelReceived if profiles == LSP else NotificationReceived)
        assert event.raw == message
        assert sent(connection) == []


def test_c44_profile_accepts_progress_without_prefix() -> None:
    for profiles in (frozenset[Profile](), ERLMCP):
        connection = client(profiles=profiles)
        id = connection.send_request(CallToolRequest("x"), now=0.0, progress=True)
        message = {"jsonrpc": "2.0", "method": "progress", "params": {"progressToken": int(id), "progress": 1}}
        assert type(one(connection, message)) is (ProgressReceived if profiles else NotificationReceived)


def test_c45_lsp_profile_reads_lsp_progress_as_percent() -> None:
    value = {"kind": "report", "percentage": 40, "message": "m"}
    for profiles in (frozenset[Profile](), LSP):
        connection = client(profiles=profiles)
        id = connection.send_request(CallToolRequest("x"), now=0.0, progress=True, cookie="mine")
        message = {"jsonrpc": "2.0", "method": "$/progress", "params": {"token": int(id), "value": value}}
        event = one(connection, message)
        if profiles:
            assert event == ProgressReceived(id, 40, 100, "m", "mine", message)
        else:
            assert isinstance(event, NotificationReceived)


def test_d5_profile_accepts_concatenated_messages() -> None:
    line = b'{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}\n'
    for profiles, ids in ((frozenset[Profile](), [None]), (ERLMCP, [1, 2])):
        connection = server(profiles=profiles)
        connection.receive_data(line, 0.0)
        list(connection.events())
        assert [message.get("id") for message in sent(connection)] == ids


# E: errors


def test_e1_dialect_error_codes_are_never_sent_by_default() -> None:
    assert (ErlmcpCode.TOOL_NOT_FOUND.value, ErlmcpCode.COMPLETION_FAILED.value) == (-32002, -32113)
    connection = server()
    for name in ("no/such", "prompts/list", "initialize"):
        feed(connection, request(name, 1))
    feed(connection, {}, request("tools/call", 2), note("x"))
    standard = {-32700, -32600, -32601, -32602, -32603}
    assert {message["error"]["code"] for message in sent(connection)} <= standard


def test_e2_foreign_error_codes_are_kept() -> None:
    for code in (-32000, -32001, -32002, -32003, 1056, 7):
        connection = client()
        id = connection.send_request(ListToolsRequest(), now=0.0)
        event = one(connection, {"jsonrpc": "2.0", "id": int(id), "error": {"code": code, "message": "x", "data": [1]}})
        assert isinstance(event, RequestFailed)
        assert isinstance(event.error, RequestError)
        assert (event.error.code, event.error.message, event.error.data) == (code, "x", [1])
    assert ErrorCode.RESOURCE_NOT_FOUND == -32002


def test_e3_minus_32005_before_initialize_only_in_the_profile() -> None:
    for profiles in (frozenset[Profile](), ERLMCP):
        connection = new_server(profiles=profiles)
        feed(connection, request("tools/list", 1))
        code = sent(connection)[0]["error"]["code"]
        assert (code == ErlmcpCode.NOT_INITIALIZED) is (profiles == ERLMCP)


def test_e4_unauthorized_code_exists_for_transports_without_status() -> None:
    assert ErlmcpCode.AUTHENTICATION_FAILED.value == -32051
    connection = server()
    feed(connection, call(1))
    connection.send_error(IncomingId(1), RequestError(ErlmcpCode.AUTHENTICATION_FAILED.value, "Unauthorized"))
    assert sent(connection)[0]["error"] == {"code": -32051, "message": "Unauthorized"}


def test_e5_constants_lie_in_their_ranges() -> None:
    names = {code.value: code.name for code in ErlmcpCode}
    assert (names[-32001], names[-32010]) == ("RESOURCE_NOT_FOUND", "RATE_LIMITED")
    assert (names[-32031], names[-32040]) == ("TOOL_EXECUTION_FAILED", "TOOL_SCHEMA_INVALID")


def test_e7_refusals_use_application_error_codes() -> None:
    refused = RequestError(1056, "Rate limit exceeded", {"category": "rate limiting", "retryable": True})
    assert refused.is_refusal()
    assert refused.is_retryable()
    assert not RequestError(-32602, "x").is_refusal()


def test_e8_reserved_refusal_codes_have_names() -> None:
    assert {code.value for code in ErlmcpExperimentalCode} == set(range(1090, 1100))
    assert not RequestError(1090, "x").is_refusal()
