from __future__ import annotations

import json
from typing import Any

import pytest
from unchecked import unchecked

from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.errors import LocalProtocolError
from mcpio.events import (
    Answered,
    CloseReason,
    ConnectionClosed,
    IgnoreReason,
    Initialized,
    MessageIgnored,
    Negotiated,
    Peer,
    RequestReceived,
)
from mcpio.revisions import (
    HANDSHAKE_REVISIONS,
    REV_2024_11_05,
    REV_2025_06_18,
    REV_2025_11_25,
    REV_2026_07_28,
    Revision,
)
from mcpio.types.asking import ListRootsRequest
from mcpio.types.features import (
    ClientCapabilities,
    Implementation,
    LoggingMessageNotification,
    PingRequest,
    RootsCapability,
    ServerCapabilities,
    ToolListChangedNotification,
    ToolsCapability,
)

INFO = Implementation("server", "2", website_url="https://example.org")
CAPABILITIES = ServerCapabilities(tools=ToolsCapability(list_changed=True), logging={}, completions={})
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST = {"jsonrpc": "2.0", "id": "l", "method": "tools/list"}


def initialize(version: Any = "2025-11-25", **more: Any) -> dict[str, Any]:
    params = {
        "protocolVersion": version,
        "capabilities": {"roots": {}, "elicitation": {}, "tasks": {"list": {}}},
        "clientInfo": {"name": "c", "version": "1", "title": "C"},
        **more,
    }
    return {"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": params}


def server(**options: Any) -> ServerConnection:
    return ServerConnection(INFO, CAPABILITIES, options=Options(**options))


def feed(connection: ServerConnection, *messages: Any) -> list[Any]:
    for message in messages:
        connection.receive_data(json.dumps(message).encode() + b"\n", 0.0)
    return list(connection.events())


def sent(connection: ServerConnection) -> list[Any]:
    return [None if chunk is None else json.loads(chunk) for chunk in connection.data_to_send(10**9)]


@pytest.mark.req("LIFE-01", "LIFE-04", "LIFE-07", "LIFE-15", "CAP-01")
@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS, ids=str)
def test_known_revision_is_accepted(revision: Revision) -> None:
    connection = ServerConnection(INFO, CAPABILITIES, instructions="hint", principal="alice")
    assert connection.phase is Phase.NEW
    (negotiated,) = feed(connection, initialize(revision.name))
    assert isinstance(negotiated, Negotiated)
    assert (negotiated.revision, negotiated.info.name, negotiated.instructions) == (revision, "c", None)
    (answer,) = sent(connection)
    assert answer["id"] == "init"
    assert answer["result"]["protocolVersion"] == revision.name
    assert answer["result"]["instructions"] == "hint"
    assert ("websiteUrl" in answer["result"]["serverInfo"]) == (revision >= REV_2025_11_25)
    assert ("completions" in answer["result"]["capabilities"]) == (revision > REV_2024_11_05)
    assert connection.revision is revision
    assert connection.peer == Peer(negotiated.info, negotiated.capabilities, None)
    (initialized,) = feed(connection, INITIALIZED)
    assert isinstance(initialized, Initialized)
    (received,) = feed(connection, LIST)
    assert isinstance(received, RequestReceived)
    context = received.context
    assert (context.revision, context.principal, context.via, context.log_level) == (revision, "alice", None, None)


def test_answer_to_initialize_ends_its_exchange() -> None:
    connection = server()
    connection.receive_message(json.dumps(initialize()), 0.0, via="exchange")
    list(connection.events())
    message = connection.next_message()
    assert message is not None
    assert (message.via, message.related, message.last) == ("exchange", None, True)


@pytest.mark.req("LIFE-05")
@pytest.mark.parametrize("version", ["1999-01-01", "2026-07-28", "", "2025-11-25 "])
def test_unknown_revision_is_answered_with_the_newest(version: str) -> None:
    connection = server()
    feed(connection, initialize(version))
    assert sent(connection)[0]["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.req("LIFE-05")
def test_unchosen_revision_is_answered_with_the_newest_chosen() -> None:
    connection = server(revisions=(REV_2024_11_05, REV_2025_06_18))
    (negotiated,) = feed(connection, initialize("2025-11-25"))
    assert negotiated.revision is REV_2025_06_18
    assert sent(connection)[0]["result"]["protocolVersion"] == "2025-06-18"


@pytest.mark.req("RPC-17", "CAP-02")
def test_members_of_later_revisions_are_kept_without_meaning() -> None:
    connection = server()
    (negotiated,) = feed(connection, initialize("2024-11-05"))
    assert negotiated.capabilities.elicitation is None
    assert negotiated.capabilities.extra == {"elicitation": {}, "tasks": {"list": {}}}
    assert negotiated.info.extra == {"title": "C"}


@pytest.mark.req("LIFE-02", "RPC-15")
@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({}, "params."),
        ({"protocolVersion": 5}, "params.protocolVersion"),
        ({"protocolVersion": None}, "params.protocolVersion"),
        (initialize(clientInfo={"name": "x"})["params"], "params.clientInfo.version"),
        (initialize(clientInfo=None)["params"], "params.clientInfo"),
        (initialize(capabilities=[])["params"], "params.capabilities"),
    ],
)
def test_incomplete_initialize_is_refused_and_may_be_retried(params: Any, path: str) -> None:
    connection = server()
    (answered,) = feed(connection, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    assert isinstance(answered, Answered)
    (answer,) = sent(connection)
    assert (answer["id"], answer["error"]["code"]) == (0, -32602)
    assert answer["error"]["data"]["path"].startswith(path)
    assert connection.phase is Phase.NEW
    assert [type(event) for event in feed(connection, initialize())] == [Negotiated]


@pytest.mark.req("LIFE-13", "CAP-01")
@pytest.mark.parametrize("before", [(), (INITIALIZED,)])
def test_second_initialize_is_refused(before: tuple[Any, ...]) -> None:
    connection = server()
    feed(connection, initialize("2025-06-18"), *before)
    sent(connection)
    phase, peer = connection.phase, connection.peer
    (answered,) = feed(connection, initialize("2024-11-05"))
    assert isinstance(answered, Answered)
    assert sent(connection)[0]["error"]["code"] == -32600
    assert (connection.phase, connection.peer, connection.revision) == (phase, peer, REV_2025_06_18)


@pytest.mark.parametrize(
    ("info", "capabilities"),
    [
        (Implementation("\ud800", "1"), CAPABILITIES),
        (unchecked(Implementation("s", "1"), version=5), CAPABILITIES),
        (INFO, ServerCapabilities(experimental={"x": {"y": float("nan")}})),
        (INFO, unchecked(ServerCapabilities(), logging=True)),
    ],
)
def test_unencodable_capabilities_are_an_internal_error(info: Implementation, capabilities: ServerCapabilities) -> None:
    with pytest.raises(LocalProtocolError):
        ServerConnection(info, capabilities)
    connection = ServerConnection(INFO, CAPABILITIES)
    with pytest.raises(LocalProtocolError):
        connection.info, connection.capabilities = info, capabilities
    connection._capabilities = capabilities
    (answered,) = feed(connection, initialize())
    assert isinstance(answered, Answered)
    assert answered.error is not None
    assert isinstance(answered.error.__cause__, LocalProtocolError)
    (answer,) = sent(connection)
    assert answer["error"] == {"code": -32603, "message": "Internal error"}
    assert connection.phase is Phase.NEW


@pytest.mark.req("LIFE-10")
def test_server_may_only_ping_and_log_before_initialized() -> None:
    connection = server()
    with pytest.raises(LocalProtocolError):
        connection.send_notification(LoggingMessageNotification("info", "too early"))
    feed(connection, initialize())
    with pytest.raises(LocalProtocolError, match="in phase initializing as a server"):
        connection.send_request(ListRootsRequest(), now=0.0)
    with pytest.raises(LocalProtocolError, match="in phase initializing as a server"):
        connection.send_notification(ToolListChangedNotification())
    connection.send_request(PingRequest(), now=0.0)
    connection.send_notification(LoggingMessageNotification("info", "hello"))
    answer, ping, log = sent(connection)
    assert (answer["id"], ping["method"], log["method"]) == ("init", "ping", "notifications/message")
    feed(connection, INITIALIZED)
    connection.send_request(ListRootsRequest(), now=0.0)
    connection.send_notification(ToolListChangedNotification())


def test_result_of_initialize_goes_out_first() -> None:
    connection = server()
    pings = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(5)]
    feed(connection, *pings, initialize(), INITIALIZED, LIST)
    connection.send_notification(ToolListChangedNotification())
    order = [message.get("method", message.get("id")) for message in sent(connection)]
    assert order.index("init") < order.index("notifications/tools/list_changed")


@pytest.mark.req("LIFE-12")
def test_request_without_initialized_is_served() -> None:
    connection = server()
    feed(connection, initialize())
    (received,) = feed(connection, LIST)
    assert isinstance(received, RequestReceived)
    assert connection.phase is Phase.OPERATING
    (late,) = feed(connection, INITIALIZED)
    assert isinstance(late, Initialized)


@pytest.mark.req("LIFE-11", "LIFE-12")
def test_strict_server_refuses_requests_before_initialized() -> None:
    connection = server(strict_initialized=True)
    feed(connection, initialize())
    sent(connection)
    (answered,) = feed(connection, LIST)
    assert isinstance(answered, Answered)
    (answer,) = sent(connection)
    assert (answer["error"]["code"], answer["error"]["data"]) == (-32600, {"reason": "not initialized"})
    feed(connection, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert sent(connection)[0]["result"] == {}
    feed(connection, INITIALIZED)
    assert isinstance(feed(connection, LIST)[0], RequestReceived)


@pytest.mark.req("LIFE-01")
def test_initialized_out_of_phase_is_ignored() -> None:
    connection = server()
    (early,) = feed(connection, INITIALIZED)
    assert isinstance(early, MessageIgnored)
    assert (early.reason, connection.phase) == (IgnoreReason.NOT_INITIALIZED, Phase.NEW)
    feed(connection, initialize())
    connection.close(0.0)
    (late,) = feed(connection, INITIALIZED)
    assert isinstance(late, MessageIgnored)
    assert connection.phase is Phase.CLOSING


def test_initialize_while_closing_is_refused() -> None:
    connection = server()
    feed(connection, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
    connection.close(0.0)
    feed(connection, initialize())
    assert [message.get("error", {}).get("data") for message in sent(connection)[:2]] == [None, {"reason": "closing"}]


@pytest.mark.req("LIFE-21")
def test_server_without_capabilities_completes_its_life() -> None:
    connection = ServerConnection(INFO)
    feed(connection, initialize(), INITIALIZED)
    (answered,) = feed(connection, LIST)
    assert isinstance(answered, Answered)
    initialized, refused = sent(connection)
    assert (initialized["result"]["capabilities"], refused["error"]["code"]) == ({}, -32601)
    connection.receive_data(None, 0.0)
    assert list(connection.events()) == []
    assert sent(connection) == [None]
    assert list(connection.events()) == [ConnectionClosed(CloseReason.END_OF_FILE, None)]


def test_answer_that_overflows_the_output_ends_the_connection() -> None:
    connection = server(limits=Limits(queued_bytes=10))
    negotiated, end = feed(connection, initialize())
    assert isinstance(negotiated, Negotiated)
    assert end == ConnectionClosed(CloseReason.SLOW_CONSUMER, None)


def test_restored_server_takes_a_new_principal() -> None:
    fresh = ServerConnection.restore(server().snapshot(0.0), 0.0, principal="bob")
    assert fresh.principal == "bob"
    feed(fresh, initialize())
    (received,) = feed(fresh, LIST)
    assert received.context.principal == "bob"
    operating = server()
    feed(operating, initialize())
    sent(operating)
    restored = ServerConnection.restore(operating.snapshot(0.0), 0.0, principal="carol")
    assert feed(restored, LIST)[0].context.principal == "carol"
    assert isinstance(ClientCapabilities(), type(received.context.capabilities))


@pytest.mark.req("LIFE-13")
def test_skipped_handshake_settles_the_session() -> None:
    connection = server()
    with pytest.raises(LocalProtocolError, match="revision 2026-07-28 is not spoken here"):
        connection.skip_handshake(REV_2026_07_28)
    connection.skip_handshake(REV_2025_06_18, capabilities=ClientCapabilities(roots=RootsCapability()), info=INFO)
    assert (connection.revision, connection.phase) == (REV_2025_06_18, Phase.OPERATING)
    assert connection.peer is not None
    assert (connection.peer.info, connection.peer.capabilities) == (INFO, ClientCapabilities(roots=RootsCapability()))
    with pytest.raises(LocalProtocolError, match="cannot skip the handshake in phase operating"):
        connection.skip_handshake(REV_2025_06_18)
    (again,) = feed(connection, initialize("2025-06-18"))
    assert (again.error.code, connection.phase) == (-32600, Phase.OPERATING)


def test_skipped_handshake_without_arguments_has_an_unknown_client() -> None:
    connection = server()
    connection.skip_handshake(REV_2025_06_18)
    (event,) = feed(connection, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert isinstance(event, RequestReceived)
    assert (event.context.info.name, event.context.capabilities) == ("unknown", ClientCapabilities())
