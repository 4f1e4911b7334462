"""Requests wait while there is no room for what they cause, so that a peer that reads loses no answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcpio.engine.limits import MESSAGE_COST, REQUEST_COST, Limits
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.errors import MessageTooLarge, OutputFull, RequestError
from mcpio.events import (
    Answered,
    CancelReceived,
    CloseReason,
    ConnectionClosed,
    IgnoreReason,
    IncomingId,
    MessageIgnored,
    RequestReceived,
    ResponseReceived,
)
from mcpio.types.base import CustomNotification
from mcpio.types.content import TextContent
from mcpio.types.features import (
    CallToolResult,
    Implementation,
    PingRequest,
    ServerCapabilities,
    ToolsCapability,
)

KIB = 1024


def operating(revision: str = "2025-11-25", **limits: Any) -> ServerConnection:
    """Return a server in operation whose output was pulled."""
    server = ServerConnection(
        Implementation("server", "1"),
        ServerCapabilities(tools=ToolsCapability()),
        options=Options(limits=Limits(**limits)),
    )
    client = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "client", "version": "1"}}
    feed(server, request("initialize", 0, **client))
    feed(server, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    server.data_to_send()
    return server


def request(method: str, id: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def call(id: Any = 1, **arguments: Any) -> dict[str, Any]:
    return request("tools/call", id, name="big", arguments=arguments)


def cancel(id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}


def feed(connection: ServerConnection, *messages: Any) -> list[Any]:
    """Feed all messages in one piece and return the events."""
    connection.receive_data(b"".join(json.dumps(message).encode() + b"\n" for message in messages), 0.0)
    return list(connection.events())


def answer(connection: ServerConnection, event: RequestReceived, size: int = KIB) -> None:
    connection.send_result(event.id, CallToolResult((TextContent("x" * size),)))


def read(connection: ServerConnection) -> list[Any]:
    """Pull everything, as a peer does that reads as fast as it can; return the ids that were answered."""
    chunks = []
    while connection.wants_write:
        chunks += connection.data_to_send(1)
    return [json.loads(chunk).get("id") for chunk in chunks if chunk is not None]


def test_requests_above_the_high_water_mark_wait() -> None:
    server = operating(high_water=4 * KIB, queued_bytes=16 * KIB)
    server.receive_data(b"".join(json.dumps(call(id)).encode() + b"\n" for id in range(1, 101)), 0.0)
    answered: list[Any] = []
    rounds = 0
    while len(answered) < 100:
        rounds += 1
        for event in server.events():
            assert isinstance(event, RequestReceived)
            answer(server, event)
        assert server.stats.queued_bytes <= 4 * KIB + 2 * (KIB + MESSAGE_COST)
        answered += read(server)
    assert answered == list(range(1, 101))
    assert rounds > 10
    assert server.wants_read


def test_deferred_requests_come_before_later_input() -> None:
    server = operating(high_water=KIB)
    (first,) = feed(server, call(1))
    answer(server, first, 2 * KIB)
    assert feed(server, call(2), call(3)) == []
    assert not server.wants_read
    assert (server.has_deferred(None), server.has_room_for_deferred) == (True, False)
    read(server)
    assert not server.wants_read
    assert (server.has_events, server.has_room_for_deferred) == (True, True)
    events = feed(server, call(4))
    assert [event.raw["id"] for event in events] == [2, 3, 4]
    assert (server.has_deferred(None), server.has_room_for_deferred) == (False, False)
    assert server.wants_read


def test_deferred_requests_keep_their_principals() -> None:
    server = operating(high_water=KIB)
    (first,) = feed(server, call(1))
    answer(server, first, 2 * KIB)
    for id, principal in ((2, "ann"), (3, "bob")):
        server.receive_message(json.dumps(call(id)), 0.0, via=id, principal=principal)
    assert list(server.events()) == []
    read(server)
    assert [event.context.principal for event in server.events() if isinstance(event, RequestReceived)] == [
        "ann",
        "bob",
    ]


def test_answers_and_notifications_pass_deferred_requests() -> None:
    server = operating(high_water=KIB)
    (first,) = feed(server, call(1))
    answer(server, first, 2 * KIB)
    asked = server.send_request(PingRequest(), now=0.0)
    assert server.wants_read
    events = feed(server, call(2), {"jsonrpc": "2.0", "id": int(asked), "result": {}}, request("ping", 3))
    assert [type(event) for event in events] == [ResponseReceived, Answered]
    assert not server.wants_read


def test_cancelled_deferred_request_never_runs() -> None:
    server = operating(high_water=KIB)
    (first,) = feed(server, call(1))
    answer(server, first, 2 * KIB)
    events = feed(server, call(2), call("2"), cancel(2), cancel(7))
    assert [event.reason for event in events if isinstance(event, MessageIgnored)] == [
        IgnoreReason.NOT_STARTED,
        IgnoreReason.UNKNOWN_REQUEST,
    ]
    read(server)
    assert [event.raw["id"] for event in server.events() if isinstance(event, RequestReceived)] == ["2"]


def test_cancellation_by_id_drops_a_deferred_request_only_if_unambiguous() -> None:
    server = operating(high_water=KIB)
    (first,) = feed(server, call(1))
    answer(server, first, 2 * KIB)
    for via in ("one", "two"):
        server.receive_message(json.dumps(call(2)), 0.0, via=via)
    assert list(server.events()) == []
    assert server.has_deferred("one")
    server.receive_message(json.dumps(cancel(2)), 0.0, via="other")
    server.receive_message(json.dumps(cancel(2)), 0.0, via="one")
    events = list(server.events())
    assert [event.reason for event in events if isinstance(event, MessageIgnored)] == [
        IgnoreReason.UNKNOWN_REQUEST,
        IgnoreReason.NOT_STARTED,
    ]
    assert (server.has_deferred("one"), server.has_deferred("two")) == (False, True)


def test_only_batches_with_requests_are_deferred() -> None:
    server = operating("2025-03-26", high_water=KIB)
    (first,) = feed(server, call(1))
    answer(server, first, 2 * KIB)
    assert feed(server, [call(2), call(3)]) == []
    assert [type(event) for event in feed(server, [cancel(9), cancel(8)])] == [MessageIgnored, MessageIgnored]
    read(server)
    assert [type(event) for event in server.events()] == [RequestReceived, RequestReceived]


def test_deferred_requests_are_answered_before_the_end() -> None:
    server = operating(high_water=KIB)
    (first,) = feed(server, call(1))
    answer(server, first, 2 * KIB)
    server.receive_data(json.dumps(call(2)).encode() + b"\n", 0.0)
    server.receive_data(None, 0.0)
    assert list(server.events()) == []
    assert not server.closed
    read(server)
    second, *rest = list(server.events())
    assert isinstance(second, RequestReceived)
    answer(server, second)
    assert read(server) == [2]
    assert [type(event) for event in [*rest, *server.events()]] == [ConnectionClosed]


def test_deferred_request_is_refused_when_closing() -> None:
    server = operating(high_water=KIB)
    (first,) = feed(server, call(1))
    answer(server, first, 2 * KIB)
    feed(server, call(2))
    server.close(0.0)
    assert server.next_event() is None
    assert read(server) == [1]
    (refused,) = server.events()
    assert isinstance(refused, Answered)
    assert read(server) == [2]
    assert server.end == ConnectionClosed(CloseReason.CLOSED, None)


def test_deferred_requests_end_with_the_connection() -> None:
    server = operating(high_water=KIB)
    (first,) = feed(server, call(1))
    answer(server, first, 2 * KIB)
    feed(server, call(2))
    assert server.held.input > MESSAGE_COST
    server.abort()
    assert server.held.total == 0
    assert [type(event) for event in server.events()] == [ConnectionClosed]


def test_requests_wait_while_running_ones_take_half_of_peer_bytes() -> None:
    server = operating(peer_bytes=8 * REQUEST_COST)
    started = feed(server, *(call(id) for id in range(1, 20)))
    assert 4 <= len(started) <= 6
    # A cancellation must get through.
    assert server.wants_read
    (cancelled, *more) = feed(server, cancel(1))
    assert isinstance(cancelled, CancelReceived)
    assert [type(event) for event in more] == [RequestReceived]
    answer(server, started[1])
    assert [type(event) for event in server.events()] == [RequestReceived]


def test_deferred_input_is_bounded() -> None:
    server = operating(high_water=KIB, queued_bytes=8 * KIB)
    (first,) = feed(server, call(1))
    answer(server, first, 2 * KIB)
    server.send_request(PingRequest(), now=0.0)
    fed = 0
    while server.wants_read:
        feed(server, call(fed + 2, text="x" * KIB))
        fed += 1
    assert fed < 10


def test_message_with_too_many_values_is_too_long() -> None:
    server = operating(peer_bytes=64 * KIB)
    events = feed(server, call(1, items=[{} for _ in range(2000)]))
    assert [type(event).__name__ for event in events] == ["ProtocolViolated"]
    assert server.phase.value == "closing"


def test_overlong_result_is_refused_and_changes_nothing() -> None:
    server = operating(sent_message_bytes=KIB)
    (event,) = feed(server, call(1))
    before = server.held.total
    with pytest.raises(MessageTooLarge, match=r"at most 1024 are sent \(Limits.sent_message_bytes\)") as caught:
        answer(server, event, 2 * KIB)
    assert (caught.value.limit, caught.value.size > 2 * KIB) == (KIB, True)
    with pytest.raises(MessageTooLarge):
        server.send_raw_result(event.id, b'{"content": "%s"}' % (b"x" * KIB))
    with pytest.raises(MessageTooLarge):
        server.send_error(event.id, RequestError(1, "x" * KIB))
    with pytest.raises(MessageTooLarge):
        server.send_notification(CustomNotification("x", {"text": "x" * KIB}))
    assert server.held.total == before
    answer(server, event, 1)
    assert read(server) == [1]


def test_sent_message_limit_defaults_to_message_bytes() -> None:
    assert Limits(message_bytes=5).most_sent == 5
    assert Limits(message_bytes=5, sent_message_bytes=7).most_sent == 7


def test_held_counts_bytes_by_purpose() -> None:
    server = operating()
    server.receive_data(b'{"jsonrpc"', 0.0)
    assert server.held.input == 10
    server.receive_message(json.dumps(call(1)), 0.0)
    server.next_event()
    assert server.held.requests > REQUEST_COST
    server.send_request(PingRequest(), now=0.0)
    assert server.held.output > MESSAGE_COST
    server.set_unwritten(7)
    assert server.held.total == sum(
        (server.held.input, server.held.requests, server.held.output, server.held.unwritten)
    )
    assert repr(server.held).startswith("Held(input=10, output=")
    answer_id = IncomingId(server.pending.incoming[0])
    server.send_result(answer_id, CallToolResult(()))
    assert server.held.requests == 0


def test_unwritten_bytes_count_as_output() -> None:
    server = operating(high_water=KIB, queued_bytes=4 * KIB)
    server.set_unwritten(2 * KIB)
    assert feed(server, call(1)) == []
    server.set_unwritten(0)
    (event,) = server.events()
    assert isinstance(event, RequestReceived)
    server.set_unwritten(4 * KIB)
    answer(server, event)
    assert server.end is None
    for moment in (0.0, 100.0):
        server.handle_timeout(moment)
    assert server.end == ConnectionClosed(CloseReason.SLOW_CONSUMER, None)


# Output that is not read


def test_responses_beyond_queued_bytes_start_the_stall_timer() -> None:
    server = operating(high_water=64 * KIB, queued_bytes=8 * KIB)
    for event in feed(server, *(call(id) for id in range(1, 21))):
        answer(server, event)
    assert server.stats.queued_bytes > 16 * KIB
    server.handle_timeout(10.0)
    assert server.next_deadline() == 40.0
    server.data_to_send(1)
    server.handle_timeout(40.0)
    assert server.phase.value == "operating"
    assert server.next_deadline() == 70.0
    assert read(server) == list(range(2, 21))
    server.handle_timeout(70.0)
    assert (server.phase.value, server.next_deadline()) == ("operating", None)


def test_stalled_peer_is_ended() -> None:
    server = operating(high_water=64 * KIB, queued_bytes=8 * KIB)
    for event in feed(server, *(call(id) for id in range(1, 21))):
        answer(server, event)
    server.handle_timeout(10.0)
    server.handle_timeout(39.0)
    assert server.phase.value == "operating"
    server.handle_timeout(40.0)
    assert server.end == ConnectionClosed(CloseReason.SLOW_CONSUMER, None)
    assert server.next_deadline() is None


def test_unwritten_bytes_extend_the_stall_time() -> None:
    server = operating(high_water=64 * KIB, queued_bytes=8 * KIB)
    for event in feed(server, *(call(id) for id in range(1, 21))):
        answer(server, event)
    server.set_unwritten(40 * KIB)
    server.handle_timeout(10.0)
    assert server.next_deadline() == 50.0


def test_output_beyond_peer_bytes_ends_the_connection_at_once() -> None:
    server = operating(high_water=1024 * KIB, queued_bytes=8 * KIB, peer_bytes=64 * KIB)
    events = feed(server, *(call(id) for id in range(1, 5)))
    for event in events:
        if server.phase.value == "operating":
            answer(server, event, 30 * KIB)
    assert server.end == ConnectionClosed(CloseReason.SLOW_CONSUMER, None)


def test_notifications_beyond_queued_bytes_end_the_connection_at_once() -> None:
    server = operating(queued_bytes=8 * KIB)
    for _ in range(4):
        server.send_notification(CustomNotification("x", {"text": "x" * 2 * KIB}))
    assert server.end == ConnectionClosed(CloseReason.SLOW_CONSUMER, None)


def test_outgoing_requests_are_refused_while_many_wait() -> None:
    server = operating(queued_bytes=4 * MESSAGE_COST)
    for _ in range(2):
        server.send_request(PingRequest(), now=0.0)
    with pytest.raises(OutputFull, match=r"half of Limits.queued_bytes") as caught:
        server.send_request(PingRequest(), now=0.0)
    assert len(server.pending.outgoing) == 2
    assert (caught.value.waiting > caught.value.limit, caught.value.limit) == (True, 2 * MESSAGE_COST)
    before = server.has_room, server.phase.value
    read(server)
    assert (before, server.has_room) == ((False, "operating"), True)
    server.send_request(PingRequest(), now=0.0)
