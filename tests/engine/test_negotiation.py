"""Bad manners in the handshake: what either side does about answers and questions that make no sense."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wires import INFO, feed, one, request, result, sent

from mcpio.engine.client import ClientConnection
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.errors import ConnectFailed, InvalidMessage, RequestError
from mcpio.events import (
    Answered,
    CloseReason,
    IgnoreReason,
    Initialized,
    MessageIgnored,
    Negotiated,
    ProtocolViolated,
    RequestReceived,
    VersionMismatched,
)
from mcpio.methods import declares
from mcpio.revisions import REV_2025_06_18, REV_2025_11_25
from mcpio.types import (
    ClientCapabilities,
    ServerCapabilities,
    ToolsCapability,
)

# Bad manners: what a server answers to initialize

GOOD = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
ERROR = {"code": -32602, "message": "Unsupported protocol version"}


def opening(**options: Any) -> ClientConnection:
    connection = ClientConnection(INFO, options=Options(**options))
    connection.send_initialize(now=0.0, cookie="hello")
    sent(connection)
    return connection


@pytest.mark.req("LIFE-06", "LIFE-18", "LIFE-23")
@pytest.mark.parametrize(
    "version", ["2026-07-28", "2099-01-01", "1999-01-01", "", "2025-11-25 ", "v1", "latest", "2025-3-26"]
)
def test_client_disconnects_from_an_unknown_revision(version: str) -> None:
    connection = opening()
    failed, mismatched, closed = feed(connection, result(1, **{**GOOD, "protocolVersion": version}))
    assert isinstance(failed.error, ConnectFailed)
    assert failed.cookie == "hello"
    assert mismatched == VersionMismatched("2025-11-25", version)
    assert closed.reason is CloseReason.VERSION_MISMATCH
    assert sent(connection) == []


def test_client_disconnects_from_an_unoffered_revision() -> None:
    connection = opening(revisions=(REV_2025_06_18,))
    _, mismatched, closed = feed(connection, result(1, **GOOD))
    assert mismatched == VersionMismatched("2025-06-18", "2025-11-25")
    assert closed.reason is CloseReason.VERSION_MISMATCH


@pytest.mark.req("LIFE-07", "LIFE-18")
@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"protocolVersion": None}, "protocolVersion"),
        ({"protocolVersion": 20251125}, "protocolVersion"),
        ({"protocolVersion": ["2025-11-25"]}, "protocolVersion"),
        ({"protocolVersion": ...}, "protocolVersion"),
        ({"capabilities": []}, "capabilities"),
        ({"capabilities": True}, "capabilities"),
        ({"capabilities": ...}, "capabilities"),
        ({"serverInfo": ...}, "serverInfo"),
        ({"serverInfo": "s"}, "serverInfo"),
        ({"serverInfo": {"name": "s"}}, "serverInfo.version"),
        ({"serverInfo": {"name": 5, "version": "1"}}, "serverInfo.name"),
    ],
)
def test_client_disconnects_after_an_unreadable_answer(change: dict[str, Any], path: str) -> None:
    connection = opening()
    answer = {name: value for name, value in {**GOOD, **change}.items() if value is not ...}
    failed, closed = feed(connection, result(1, **answer))
    assert isinstance(failed.error, InvalidMessage)
    assert failed.error.path == path
    assert closed.reason is CloseReason.HANDSHAKE_FAILED
    assert closed.cause is failed.error
    assert sent(connection) == []
    assert connection.closed


@pytest.mark.req("CAP-01", "CONT-04")
@pytest.mark.parametrize(
    ("change", "dropped", "undeclared"),
    [
        ({"capabilities": {"tools": True}}, "ServerCapabilities.tools", ("tools",)),
        ({"capabilities": {"tools": []}}, "ServerCapabilities.tools", ("tools",)),
        (
            {"capabilities": {"tools": {"listChanged": "yes"}}},
            "ToolsCapability.listChanged",
            ("tools", "list_changed"),
        ),
        ({"capabilities": {"logging": 1}}, "ServerCapabilities.logging", ("logging",)),
        ({"capabilities": {"tasks": {"list": True}}}, "ServerTasksCapability.list", ("tasks", "list")),
        ({"instructions": 5}, "InitializeResult.instructions", None),
        ({"serverInfo": {"name": "s", "version": "1", "icons": None}}, "Implementation.icons", None),
    ],
)
def test_client_accepts_an_odd_optional_member(
    change: dict[str, Any], dropped: str, undeclared: tuple[str, ...] | None
) -> None:
    connection = opening()
    violated, negotiated = feed(connection, result(1, **{**GOOD, **change}))
    assert isinstance(violated, ProtocolViolated)
    assert f"the result of initialize is read without a member: {dropped}: expected " in str(violated.error)
    assert isinstance(negotiated, Negotiated)
    assert undeclared is None or not declares(negotiated.capabilities, undeclared)
    assert negotiated.instructions is None


@pytest.mark.req("LIFE-05", "LIFE-18")
def test_refused_initialize_ends_the_connection() -> None:
    connection = opening()
    error = {**ERROR, "data": {"supported": ["2024-10-07"], "requested": "2025-11-25"}}
    failed, mismatched, closed = feed(connection, {"jsonrpc": "2.0", "id": 1, "error": error})
    assert isinstance(failed.error, RequestError)
    assert mismatched == VersionMismatched("2025-11-25", "2024-10-07")
    assert closed.reason is CloseReason.VERSION_MISMATCH
    unreadable: list[Any] = [None, {"supported": 5}, [], {"supported": None}]
    for data in unreadable:
        connection = opening()
        failed, closed = feed(connection, {"jsonrpc": "2.0", "id": 1, "error": {**ERROR, "data": data}})
        assert isinstance(failed.error, RequestError)
        assert closed.reason is CloseReason.HANDSHAKE_FAILED


@pytest.mark.req("LIFE-01", "LIFE-08", "LIFE-09", "RPC-18")
def test_client_ignores_other_input_during_the_handshake() -> None:
    connection = opening()
    refused = one(connection, request("roots/list", 1))
    assert isinstance(refused, Answered)
    assert isinstance(one(connection, request("ping", 2)), Answered)
    stray = one(connection, result(99))
    assert isinstance(stray, ProtocolViolated)
    wrong_type = one(connection, result("1", **GOOD))
    assert isinstance(wrong_type, ProtocolViolated)
    early = one(connection, {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    assert isinstance(early, MessageIgnored)
    assert early.reason is IgnoreReason.NOT_INITIALIZED
    backwards = one(connection, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert isinstance(backwards, MessageIgnored)
    assert backwards.reason is IgnoreReason.WRONG_DIRECTION
    assert connection.phase is Phase.INITIALIZING
    sent(connection)
    negotiated = one(connection, result(1, **GOOD))
    assert isinstance(negotiated, Negotiated)
    assert [message["method"] for message in sent(connection)] == ["notifications/initialized"]
    again = one(connection, result(1, **GOOD))
    assert isinstance(again, ProtocolViolated)
    assert connection.phase.value == "operating"
    assert sent(connection) == []


# Bad manners: what a client asks

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


def waiting(**options: Any) -> ServerConnection:
    return ServerConnection(INFO, ServerCapabilities(tools=ToolsCapability()), options=Options(**options))


@pytest.mark.req("LIFE-05")
@pytest.mark.parametrize("version", ["2026-07-28", "2099-01-01", "1999-01-01", "", "x" * 1000, "2025-11-25 "])
def test_server_offers_its_newest_revision_for_an_unknown_one(version: str) -> None:
    connection = waiting()
    negotiated = one(connection, request("initialize", 1, **{**HELLO, "protocolVersion": version}))
    assert isinstance(negotiated, Negotiated)
    assert negotiated.revision is REV_2025_11_25
    assert sent(connection)[0]["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.req("LIFE-02")
@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"protocolVersion": None}, "protocolVersion"),
        ({"protocolVersion": 2025}, "protocolVersion"),
        ({"protocolVersion": {}}, "protocolVersion"),
        ({"protocolVersion": ...}, "protocolVersion"),
        ({"capabilities": []}, "capabilities"),
        ({"capabilities": None}, "capabilities"),
        ({"capabilities": ...}, "capabilities"),
        ({"clientInfo": ...}, "clientInfo"),
        ({"clientInfo": []}, "clientInfo"),
        ({"clientInfo": {"version": "1"}}, "clientInfo.name"),
    ],
)
def test_malformed_initialize_is_refused_and_may_be_retried(change: dict[str, Any], path: str) -> None:
    connection = waiting()
    params = {name: value for name, value in {**HELLO, **change}.items() if value is not ...}
    refused = one(connection, request("initialize", 1, **params))
    assert isinstance(refused, Answered)
    (error,) = sent(connection)
    assert (error["id"], error["error"]["code"], error["error"]["data"]) == (1, -32602, {"path": f"params.{path}"})
    assert connection.phase is Phase.NEW
    assert isinstance(one(connection, request("initialize", 1, **HELLO)), Negotiated)


@pytest.mark.req("CAP-01", "CONT-04")
@pytest.mark.parametrize(
    ("change", "dropped", "undeclared"),
    [
        ({"capabilities": {"roots": True}}, "ClientCapabilities.roots", ("roots",)),
        ({"capabilities": {"sampling": []}}, "ClientCapabilities.sampling", ("sampling",)),
        (
            {"capabilities": {"elicitation": {"form": {}, "url": True}}},
            "ElicitationCapability.url",
            ("elicitation", "url"),
        ),
        ({"capabilities": {"experimental": []}}, "ClientCapabilities.experimental", ("experimental",)),
        ({"capabilities": {"tasks": {"list": True}}}, "ClientTasksCapability.list", ("tasks", "list")),
        ({"clientInfo": {"name": "c", "version": "1", "title": 5}}, "Implementation.title", ("roots",)),
        ({"_meta": None}, "InitializeRequest._meta", ("roots",)),
    ],
)
def test_server_accepts_an_odd_optional_member(
    change: dict[str, Any], dropped: str, undeclared: tuple[str, ...]
) -> None:
    connection = waiting()
    violated, negotiated = feed(connection, request("initialize", 1, **{**HELLO, **change}))
    assert isinstance(violated, ProtocolViolated)
    assert f"initialize is read without a member: {dropped}: expected " in str(violated.error)
    assert isinstance(negotiated, Negotiated)
    assert not declares(negotiated.capabilities, undeclared)
    assert sent(connection)[0]["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.req("LIFE-01", "LIFE-11", "LIFE-12", "LIFE-13", "LIFE-22")
def test_server_refuses_input_out_of_phase() -> None:
    connection = waiting()
    early = one(connection, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert isinstance(early, MessageIgnored)
    assert early.reason is IgnoreReason.NOT_INITIALIZED
    for name, code in (("tools/list", -32600), ("prompts/list", -32600), ("no/such", -32601)):
        refused = one(connection, request(name, 5))
        assert isinstance(refused, Answered)
        assert refused.error is not None
        assert refused.error.code == code
    assert isinstance(one(connection, request("ping", 6)), Answered)
    assert isinstance(one(connection, result(1, **GOOD)), ProtocolViolated)
    sent(connection)
    assert isinstance(one(connection, request("initialize", 1, **HELLO)), Negotiated)
    for _ in range(2):
        twice = one(connection, request("initialize", 2, **{**HELLO, "protocolVersion": "2024-11-05"}))
        assert isinstance(twice, Answered)
        assert twice.error is not None
        assert twice.error.code == -32600
        assert connection.revision is REV_2025_11_25
        if connection.phase is Phase.INITIALIZING:
            assert isinstance(one(connection, request("tools/list", 3)), RequestReceived)
    assert connection.phase.value == "operating"
    # The notification, late, is heard all the same.
    assert isinstance(one(connection, {"jsonrpc": "2.0", "method": "notifications/initialized"}), Initialized)


@pytest.mark.req("CAP-02", "RPC-17")
def test_unknown_capabilities_are_kept() -> None:
    connection = waiting()
    declared = {"tools": {}, "apps": {"x": 1}, "experimental": {"acme": {}}, "roots": {"enabled": False}}
    negotiated = one(connection, request("initialize", 1, **{**HELLO, "capabilities": declared}))
    assert isinstance(negotiated, Negotiated)
    assert negotiated.raw["params"]["capabilities"] == declared
    assert isinstance(negotiated.capabilities, ClientCapabilities)
    assert negotiated.capabilities.roots is not None
    assert connection.peer is not None
    moved = connection
    sent(moved)
    feed(moved, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    again = ServerConnection.restore(json.loads(json.dumps(moved.snapshot(0.0))), 0.0)
    assert again.snapshot(0.0)["peer_capabilities"] == declared
