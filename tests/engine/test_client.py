from __future__ import annotations

import json
from typing import Any

import pytest
from unchecked import unchecked

from mcpio.engine.client import ClientConnection
from mcpio.engine.limits import Limits, Timeout
from mcpio.engine.options import KeepAlive, Options
from mcpio.engine.table import Phase
from mcpio.errors import (
    ConnectFailed,
    ConnectionLost,
    InvalidMessage,
    LocalProtocolError,
    NoBackChannel,
    RequestError,
    RequestTimeout,
)
from mcpio.events import (
    Answered,
    CancelReceived,
    CloseReason,
    ConnectionClosed,
    IgnoreReason,
    MessageIgnored,
    Negotiated,
    NoiseReceived,
    Peer,
    ProtocolViolated,
    RequestFailed,
    ResponseReceived,
    VersionMismatched,
)
from mcpio.observe.recording import Recorder
from mcpio.observe.tap import add_tap
from mcpio.revisions import (
    HANDSHAKE_REVISIONS,
    REV_2024_11_05,
    REV_2025_03_26,
    REV_2025_06_18,
    REV_2025_11_25,
    Revision,
)
from mcpio.types.asking import ListRootsResult, RootsListChangedNotification
from mcpio.types.features import (
    CallToolRequest,
    ClientCapabilities,
    Implementation,
    InitializeRequest,
    ListToolsRequest,
    PingRequest,
    RootsCapability,
    ServerCapabilities,
)

INFO = Implementation("client", "1", title="Client")


def result(version: Any = "2025-11-25", **more: Any) -> dict[str, Any]:
    members = {
        "protocolVersion": version,
        "capabilities": {"tools": {}, "unknown": {"x": 1}},
        "serverInfo": {"name": "s", "version": "2"},
        **more,
    }
    return {"jsonrpc": "2.0", "id": 1, "result": members}


def feed(client: ClientConnection, *messages: Any, now: float = 0.0) -> list[Any]:
    for message in messages:
        client.receive_data(json.dumps(message).encode() + b"\n", now)
    return list(client.events())


def sent(client: ClientConnection) -> list[Any]:
    return [None if chunk is None else json.loads(chunk) for chunk in client.data_to_send(10**9)]


def opening(**options: Any) -> ClientConnection:
    client = ClientConnection(INFO, options=Options(**options))
    client.send_initialize(now=0.0, cookie="hello")
    client.data_to_send()
    return client


def closed(reason: CloseReason, events: list[Any]) -> Any:
    """Check how the events end, and return the error of the one request that failed."""
    end = events[-1]
    assert isinstance(end, ConnectionClosed)
    assert end.reason is reason
    (failed,) = [event for event in events if isinstance(event, RequestFailed)]
    assert (failed.id, failed.cookie) == (1, "hello")
    assert end.cause is failed.error
    return failed.error


@pytest.mark.req("LIFE-01", "LIFE-02", "LIFE-03")
def test_initialize_holds_info_and_capabilities() -> None:
    client = ClientConnection(INFO, ClientCapabilities(roots=RootsCapability(list_changed=True)))
    assert (client.phase, client.revision, client.peer) == (Phase.NEW, None, None)
    assert client.send_initialize(now=5.0) == 1
    assert (client.phase, client.next_deadline()) == (Phase.INITIALIZING, 35.0)
    assert sent(client) == [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"roots": {"listChanged": True}},
                "clientInfo": {"name": "client", "version": "1", "title": "Client"},
            },
        }
    ]


@pytest.mark.req("LIFE-03", "LIFE-15")
def test_initialize_requests_the_newest_chosen_revision() -> None:
    client = ClientConnection(INFO, options=Options(revisions=(REV_2025_03_26, REV_2024_11_05)))
    client.send_initialize(now=0.0)
    (request,) = sent(client)
    assert request["params"]["protocolVersion"] == "2025-03-26"
    assert request["params"]["clientInfo"] == {"name": "client", "version": "1"}


@pytest.mark.req("LIFE-02", "LIFE-09")
def test_request_before_initialize_is_refused() -> None:
    client = ClientConnection(INFO)
    for request in (PingRequest(), ListToolsRequest()):
        with pytest.raises(LocalProtocolError, match=r"in phase new as a client$"):
            client.send_request(request, now=0.0)
    with pytest.raises(LocalProtocolError):
        client.send_notification(RootsListChangedNotification())
    assert not client.wants_write


@pytest.mark.req("LIFE-09")
def test_only_ping_may_be_sent_during_the_handshake() -> None:
    client = opening()
    with pytest.raises(LocalProtocolError, match="cannot send another request in phase initializing"):
        client.send_request(ListToolsRequest(), now=0.0)
    with pytest.raises(LocalProtocolError, match="cannot send initialize in phase initializing"):
        client.send_initialize(now=0.0)
    client.send_request(PingRequest(), now=0.0)
    assert [message["method"] for message in sent(client)] == ["ping"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"info": Implementation("\ud800", "1")},
        {"info": unchecked(Implementation("a", "1"), name=5)},
        {"info": INFO, "capabilities": ClientCapabilities(experimental={"x": object()})},
    ],
)
def test_unencodable_initialize_is_refused_and_may_be_retried(wrong: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        ClientConnection(**wrong)
    client = ClientConnection(INFO)
    client.info, client._capabilities = wrong["info"], wrong.get("capabilities", ClientCapabilities())
    with pytest.raises(LocalProtocolError):
        client.send_initialize(now=0.0)
    assert (client.phase, client.pending.outgoing, client.next_deadline()) == (Phase.NEW, (), None)
    client.info, client.capabilities = INFO, ClientCapabilities()
    with pytest.raises(LocalProtocolError, match="timeout must be a number of seconds"):
        client.send_initialize(now=0.0, timeout=-1)
    assert client.send_initialize(now=0.0) == 1


@pytest.mark.req("LIFE-08", "LIFE-16", "CAP-01", "CAP-02")
@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS, ids=str)
def test_result_of_initialize_settles_the_session(revision: Revision) -> None:
    client = opening()
    answer = result(revision.name, instructions="be kind")
    (negotiated,) = feed(client, answer)
    assert isinstance(negotiated, Negotiated)
    assert (negotiated.revision, negotiated.info.name, negotiated.instructions) == (revision, "s", "be kind")
    assert (negotiated.capabilities.extra, negotiated.raw) == ({"unknown": {"x": 1}}, answer)
    assert (negotiated.id, negotiated.cookie) == (1, "hello")
    assert (client.phase, client.revision, client.next_deadline()) == (Phase.OPERATING, revision, None)
    assert client.peer == Peer(negotiated.info, negotiated.capabilities, "be kind")
    assert isinstance(negotiated.capabilities, ServerCapabilities)
    client.send_request(ListToolsRequest(), now=0.0)
    assert [message["method"] for message in sent(client)] == ["notifications/initialized", "tools/list"]


@pytest.mark.req("LIFE-06", "LIFE-18", "LIFE-23")
@pytest.mark.parametrize("version", ["2024-11-05", "1999-01-01", "2026-07-28", "", "x" * 1000])
def test_unknown_revision_ends_the_connection(version: str) -> None:
    client = opening(revisions=(REV_2025_11_25, REV_2025_06_18))
    events = feed(client, result(version, serverInfo="of another shape"))
    error = closed(CloseReason.VERSION_MISMATCH, events)
    assert isinstance(error, ConnectFailed)
    assert str(error).startswith("the server speaks revision '")
    assert VersionMismatched("2025-11-25", version) in events
    assert client.closed
    assert sent(client) == []


@pytest.mark.req("LIFE-05", "LIFE-18")
@pytest.mark.parametrize("supported", [["2030-01-01", "2031-01-01"], [], [5, None]])
def test_error_with_supported_revisions_is_a_version_mismatch(supported: list[Any]) -> None:
    client = opening()
    error = {"code": -32602, "message": "Unsupported protocol version", "data": {"supported": supported}}
    events = feed(client, {"jsonrpc": "2.0", "id": 1, "error": error})
    failure = closed(CloseReason.VERSION_MISMATCH, events)
    assert isinstance(failure, RequestError)
    assert failure.data == {"supported": supported}
    assert VersionMismatched("2025-11-25", ", ".join(map(str, supported))) in events


@pytest.mark.parametrize(
    "error",
    [
        {"code": -32603, "message": "no", "data": {"supported": ["x"]}},
        {"code": -32602, "message": "no", "data": {"supported": "x"}},
        {"code": -32602, "message": "no", "data": ["supported"]},
        {"code": -32602, "message": "no"},
    ],
)
def test_other_error_fails_the_handshake(error: dict[str, Any]) -> None:
    events = feed(opening(), {"jsonrpc": "2.0", "id": 1, "error": error})
    failure = closed(CloseReason.HANDSHAKE_FAILED, events)
    assert isinstance(failure, RequestError)
    assert (failure.code, len(events)) == (error["code"], 2)


@pytest.mark.req("LIFE-07")
@pytest.mark.parametrize(
    ("answer", "path"),
    [
        (result(5), "protocolVersion"),
        (result(None), "protocolVersion"),
        (result(["2025-11-25"]), "protocolVersion"),
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, ""),
        (result(serverInfo={}), "serverInfo"),
        (result(capabilities=[]), "capabilities"),
    ],
)
def test_unreadable_answer_fails_the_handshake(answer: Any, path: str) -> None:
    client = opening()
    error = closed(CloseReason.HANDSHAKE_FAILED, feed(client, answer))
    assert isinstance(error, InvalidMessage)
    assert error.path.startswith(path)
    assert client.phase is Phase.CLOSED


@pytest.mark.req("LIFE-19", "TIME-01", "CANC-03")
def test_handshake_timeout_ends_the_connection() -> None:
    client = opening(initialize_timeout=3.0)
    with pytest.raises(LocalProtocolError, match="initialize cannot be cancelled"):
        client.cancel_request(client.pending.outgoing[0])
    client.handle_timeout(3.0)
    error = closed(CloseReason.HANDSHAKE_FAILED, list(client.events()))
    assert isinstance(error, RequestTimeout)
    assert (error.seconds, sent(client)) == (3.0, [])


@pytest.mark.req("LIFE-19", "TIME-02")
def test_handshake_timeout_can_be_given() -> None:
    client = ClientConnection(INFO)
    client.send_initialize(now=0.0, timeout=None)
    assert client.next_deadline() is None


def test_late_answer_after_close_changes_nothing() -> None:
    client = opening()
    client.close(0.0)
    (failed, late) = feed(client, result())
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, ConnectionLost)
    assert isinstance(late, MessageIgnored)
    assert late.reason is IgnoreReason.LATE_RESPONSE
    assert client.revision is None
    with pytest.raises(NoBackChannel, match="cannot send initialize: the connection is closing"):
        client.send_initialize(now=0.0)


def test_other_responses_do_not_settle_the_handshake() -> None:
    client = opening()
    ping = client.send_request(PingRequest(), now=0.0)
    pong, failed, unknown, text = feed(
        client,
        {"jsonrpc": "2.0", "id": int(ping), "result": {}},
        {"jsonrpc": "2.0", "error": {"code": -32700, "message": "what?"}},
        {"jsonrpc": "2.0", "id": 9, "error": {"code": 1, "message": "x"}},
        {**result(), "id": "1"},
    )
    assert isinstance(pong, ResponseReceived)
    assert isinstance(failed, MessageIgnored)
    assert isinstance(unknown, ProtocolViolated)
    assert isinstance(text, ProtocolViolated)
    assert client.phase is Phase.INITIALIZING
    assert isinstance(feed(client, result())[0], Negotiated)


@pytest.mark.req("LIFE-10", "LIFE-11")
def test_early_request_or_initialize_from_a_server_is_refused() -> None:
    client = opening()
    client.capabilities = ClientCapabilities(roots=RootsCapability())
    early, initialize = feed(
        client,
        {"jsonrpc": "2.0", "id": "a", "method": "roots/list"},
        {"jsonrpc": "2.0", "id": "b", "method": "initialize", "params": {}},
    )
    assert isinstance(early, Answered)
    assert isinstance(initialize, Answered)
    assert [message["error"]["code"] for message in sent(client)] == [-32600, -32601]


@pytest.mark.req("STDIO-05", "STDIO-12")
def test_text_beside_messages_is_noise_without_an_answer() -> None:
    client = opening()
    client.receive_data("Bücher \u20ac\n".encode() + b"\xff" * 300 + b"\n", 0.0)
    client.receive_message("Grüße", 0.0)
    assert list(client.events()) == [
        NoiseReceived("Grüße", 7),
        NoiseReceived("Bücher €", 11),
        NoiseReceived("\ufffd" * 200, 300),
    ]
    assert sent(client) == []


def test_initialize_that_overflows_the_output_ends_the_connection() -> None:
    client = ClientConnection(INFO, options=Options(limits=Limits(queued_bytes=10)))
    client.send_initialize(now=0.0, cookie="hello")
    failed, end = client.events()
    assert isinstance(failed, RequestFailed)
    assert end == ConnectionClosed(CloseReason.SLOW_CONSUMER, None)


def test_initialized_that_overflows_the_output_ends_the_connection() -> None:
    client = opening(limits=Limits(queued_bytes=2210))
    client.data_to_send()
    for _ in range(3):
        client.send_request(PingRequest(), now=0.0)
    assert [type(event) for event in feed(client, result())] == [
        Negotiated,
        *[RequestFailed] * 3,
        ConnectionClosed,
    ]


def test_send_request_refuses_initialize() -> None:
    client = opening()
    feed(client, result())
    with pytest.raises(LocalProtocolError, match="initialize is sent by send_initialize"):
        client.send_request(InitializeRequest("x", ClientCapabilities(), INFO), now=0.0)


@pytest.mark.req("SESS-06")
def test_reset_session_allows_a_new_handshake() -> None:
    client = opening()
    feed(client, result(capabilities={"tools": {}}), {"jsonrpc": "2.0", "id": 7, "method": "ping"})
    client.data_to_send()
    running = feed(client, {"jsonrpc": "2.0", "id": 8, "method": "roots/list"})
    asked = client.send_request(ListToolsRequest(), now=1.0, cookie="tools")
    client.receive_message('{"jsonrpc":"2.0","id":9,"method":"ping"}', 1.0)
    client.reset_session(2.0)
    assert (client.phase, client.pending.outgoing, client.pending.incoming) == (Phase.NEW, (), ())
    events = list(client.events())
    (failed,) = [event for event in events if isinstance(event, RequestFailed)]
    assert (failed.id, failed.cookie, type(failed.error)) == (asked, "tools", ConnectionLost)
    assert running != []
    assert sent(client) == []
    assert client.revision is REV_2025_11_25
    client.reset_session(3.0)
    assert list(client.events()) == []
    assert client.send_initialize(now=3.0) == asked + 1
    (hello,) = sent(client)
    feed(client, {**result("2025-06-18"), "id": hello["id"]}, now=4.0)
    assert (client.phase, client.revision) == (Phase.OPERATING, REV_2025_06_18)


@pytest.mark.req("SESS-06")
def test_reset_session_cancels_incoming_requests() -> None:
    client = ClientConnection(INFO, ClientCapabilities(roots=RootsCapability()))
    client.send_initialize(now=0.0)
    feed(client, result(), {"jsonrpc": "2.0", "id": 8, "method": "roots/list"})
    client.data_to_send()
    (id,) = client.pending.incoming
    client.reset_session(2.0)
    (given_up,) = client.events()
    assert isinstance(given_up, CancelReceived)
    assert given_up.id == id
    client.send_result(id, ListRootsResult(()))
    client.send_progress(id, 1.0)
    assert sent(client) == []


def test_reopening_client_loses_only_the_session_with_its_channel() -> None:
    client = ClientConnection(INFO, options=Options(reopens=True))
    client.send_initialize(now=0.0)
    feed(client, result(capabilities={"tools": {}}))
    client.data_to_send()
    client.receive_data(b'{"jsonrpc":"2.0","method":"notifications/half a mess', 1.0)
    asked = client.send_request(ListToolsRequest(), now=1.0)
    broken = OSError("broken")
    client.connection_lost(broken, 2.0)
    (failed,) = client.events()
    assert isinstance(failed, RequestFailed)
    assert (failed.id, type(failed.error), failed.error.__cause__) == (asked, ConnectionLost, broken)
    assert (client.phase, client.wants_read, client.wants_write) == (Phase.NEW, True, False)
    client.send_initialize(now=3.0)
    (hello,) = sent(client)
    client.receive_data(json.dumps({**result(), "id": hello["id"]}).encode() + b"\n", 4.0)
    assert [type(event) for event in client.events()] == [Negotiated]
    assert client.phase is Phase.OPERATING


def test_reopening_client_ends_if_its_channel_breaks_before_the_handshake() -> None:
    client = ClientConnection(INFO, options=Options(reopens=True))
    client.send_initialize(now=0.0, cookie="hello")
    client.connection_lost(None, 1.0)
    (failed,) = client.events()
    assert isinstance(failed, RequestFailed)
    assert (failed.cookie, client.phase) == ("hello", Phase.NEW)
    client.connection_lost(None, 2.0)
    assert list(client.events()) == [ConnectionClosed(CloseReason.LOST, None)]


@pytest.mark.parametrize("reopens", [False, True])
@pytest.mark.req("PING-05")
def test_unresponsive_server_ends_the_connection_or_its_session(reopens: bool) -> None:
    client = ClientConnection(INFO, options=Options(reopens=reopens, keep_alive=KeepAlive(5.0, 1.0, failures=1)))
    client.send_initialize(now=0.0)
    feed(client, result())
    client.handle_timeout(5.0)
    client.handle_timeout(6.0)
    assert client.phase is (Phase.NEW if reopens else Phase.CLOSED)


@pytest.mark.parametrize("reopens", [False, True])
def test_unanswered_handshake_ends_the_client_or_its_session(reopens: bool) -> None:
    client = ClientConnection(INFO, options=Options(reopens=reopens, initialize_timeout=3.0))
    client.send_initialize(now=0.0)
    client.handle_timeout(3.0)
    assert client.phase is (Phase.NEW if reopens else Phase.CLOSED)


def test_release_resumes_each_timeout_with_its_remaining_time() -> None:
    client = opening()
    feed(client, result(capabilities={"tools": {}}))
    client.release(0.0)
    early = client.send_request(CallToolRequest("x"), now=0.0, timeout=10)
    idle = client.send_request(CallToolRequest("x"), now=0.0, timeout=Timeout(None, idle=10))
    answered = client.send_request(CallToolRequest("x"), now=0.0, timeout=10)
    client.send_request(CallToolRequest("x"), now=0.0, timeout=None)
    lines: list[str] = []
    client.data_to_send()
    add_tap(client, Recorder(lines.append), 0.0)
    client.hold(4.0)
    client.hold(50.0)
    late = client.send_request(CallToolRequest("x"), now=60.0, timeout=5)
    client.send_request(CallToolRequest("x"), now=60.0, timeout=None)
    client.cancel_request(answered)
    assert client.next_deadline() is None
    client.release(100.0)
    recorded = [json.loads(line).get("do") for line in lines]
    assert [verb for verb in recorded if verb in ("hold", "release")] == ["hold", "hold", "release"]
    list(client.events())
    client.handle_timeout(104.9)
    assert list(client.events()) == []
    client.handle_timeout(105.0)
    assert [event.id for event in client.events() if isinstance(event, RequestFailed)] == [late]
    client.handle_timeout(106.0)
    assert [event.id for event in client.events() if isinstance(event, RequestFailed)] == [early, idle]
