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
from mcpio.types.lifecycle import (
    ClientCapabilities,
    Implementation,
    PingRequest,
    RootsCapability,
    ServerCapabilities,
    ToolsCapability,
)
from mcpio.types.logging import LoggingMessageNotification
from mcpio.types.roots import ListRootsRequest
from mcpio.types.tools import ToolListChangedNotification

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
def test_a_known_revision_is_answered_with_itself(revision: Revision) -> None:
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


@pytest.mark.req("LIFE-05")
@pytest.mark.parametrize("version", ["1999-01-01", "2026-07-28", "", "2025-11-25 "])
def test_an_unknown_revision_is_answered_with_our_latest(version: str) -> None:
    connection = server()
    feed(connection, initialize(version))
    assert sent(connection)[0]["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.req("LIFE-05")
def test_a_revision_that_was_not_chosen_is_answered_with_the_latest_that_was() -> None:
    connection = server(revisions=(REV_2024_11_05, REV_2025_06_18))
    (negotiated,) = feed(connection, initialize("2025-11-25"))
    assert negotiated.revision is REV_2025_06_18
    assert sent(connection)[0]["result"]["protocolVersion"] == "2025-06-18"


@pytest.mark.req("RPC-17", "CAP-02")
def test_what_the_settled_revision_does_not_know_is_kept_and_means_nothing() -> None:
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
def test_a_handshake_that_lacks_something_is_refused_and_may_be_tried_again(params: Any, path: str) -> None:
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
def test_a_second_handshake_is_refused_and_changes_nothing(before: tuple[Any, ...]) -> None:
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
def test_what_this_side_cannot_say_of_itself_is_no_fault_of_the_peer_and_never_raised_at_it(
    info: Implementation, capabilities: ServerCapabilities
) -> None:
    connection = ServerConnection(info, capabilities)
    (answered,) = feed(connection, initialize())
    assert isinstance(answered, Answered)
    assert answered.error is not None
    assert isinstance(answered.error.__cause__, LocalProtocolError)
    (answer,) = sent(connection)
    assert answer["error"] == {"code": -32603, "message": "Internal error"}
    assert connection.phase is Phase.NEW


@pytest.mark.req("LIFE-10")
def test_before_the_client_is_ready_a_server_may_only_ping_and_log() -> None:
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


def test_nothing_overtakes_the_answer_to_the_handshake() -> None:
    connection = server()
    pings = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(5)]
    feed(connection, *pings, initialize(), INITIALIZED, LIST)
    connection.send_notification(ToolListChangedNotification())
    order = [message.get("method", message.get("id")) for message in sent(connection)]
    assert order.index("init") < order.index("notifications/tools/list_changed")


@pytest.mark.req("LIFE-12")
def test_a_client_that_forgets_to_say_that_it_is_ready_is_served() -> None:
    connection = server()
    feed(connection, initialize())
    (received,) = feed(connection, LIST)
    assert isinstance(received, RequestReceived)
    assert connection.phase is Phase.OPERATING
    (late,) = feed(connection, INITIALIZED)
    assert isinstance(late, Initialized)


@pytest.mark.req("LIFE-11", "LIFE-12")
def test_a_strict_server_waits_until_the_client_is_ready() -> None:
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
def test_being_ready_before_the_handshake_or_after_the_end_means_nothing() -> None:
    connection = server()
    (early,) = feed(connection, INITIALIZED)
    assert isinstance(early, MessageIgnored)
    assert (early.reason, connection.phase) == (IgnoreReason.NOT_INITIALIZED, Phase.NEW)
    feed(connection, initialize())
    connection.close(0.0)
    (late,) = feed(connection, INITIALIZED)
    assert isinstance(late, MessageIgnored)
    assert connection.phase is Phase.CLOSING


def test_a_closing_server_takes_no_handshake() -> None:
    connection = server()
    feed(connection, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
    connection.close(0.0)
    feed(connection, initialize())
    assert [message.get("error", {}).get("data") for message in sent(connection)[:2]] == [None, {"reason": "closing"}]


@pytest.mark.req("LIFE-21")
def test_a_server_without_features_goes_through_the_whole_life() -> None:
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


def test_an_answer_that_fills_the_output_ends_the_connection_after_the_settlement() -> None:
    connection = server(limits=Limits(queued_bytes=10))
    negotiated, end = feed(connection, initialize())
    assert isinstance(negotiated, Negotiated)
    assert end == ConnectionClosed(CloseReason.SLOW_CONSUMER, None)


def test_who_was_authenticated_is_given_again_to_a_restored_server() -> None:
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
def test_a_handshake_that_another_connection_had_is_taken_for_done() -> None:
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


def test_nothing_need_be_known_of_a_client_without_a_handshake() -> None:
    connection = server()
    connection.skip_handshake(REV_2025_06_18)
    (event,) = feed(connection, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert isinstance(event, RequestReceived)
    assert (event.context.info.name, event.context.capabilities) == ("unknown", ClientCapabilities())
