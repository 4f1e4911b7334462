"""The life of a channel: what is fed, what is pulled, and time. Both roles stand for it."""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Callable

import pytest
from counting import processor_seconds
from operating import (
    INITIALIZE,
    INITIALIZE_RESULT,
    call,
    lines,
    operating_client,
    operating_server,
    ping,
)
from wires import INFO, INITIALIZED, new_server, sent
from wires import server as operating

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import ConnectionStats
from mcpio.engine.limits import MESSAGE_COST, Limits
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.errors import LocalProtocolError, RequestTimeout
from mcpio.events import (
    Answered,
    CloseReason,
    ConnectionClosed,
    ProtocolViolated,
    RequestFailed,
    RequestReceived,
)
from mcpio.types.features import (
    CallToolResult,
    ListToolsRequest,
    LoggingMessageNotification,
    PingRequest,
)

# Feeding and pulling


def test_input_is_parsed_only_when_pulled() -> None:
    server = ServerConnection(INFO)
    server.receive_data(b"", 0.0)
    assert server.next_event() is None
    server.receive_data(lines(ping()), 0.0)
    before = server.wants_write
    assert isinstance(server.next_event(), Answered)
    assert (before, server.wants_write) == (False, True)
    assert sent(server) == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
    assert server.data_to_send() == []


def test_each_pull_parses_at_most_one_message() -> None:
    server = operating_server()
    server.receive_data(lines(call(1)) + b"rubbish\n" + lines(call(2)), 0.0)
    assert isinstance(server.next_event(), RequestReceived)
    assert server.pending.incoming == (1,)
    assert not server.wants_write
    assert isinstance(server.next_event(), ProtocolViolated)
    assert isinstance(server.next_event(), RequestReceived)
    assert server.next_event() is None
    assert server.next_event() is None


def test_every_message_yields_at_least_one_event() -> None:
    messages = [
        b"rubbish",
        b"[]",
        b"{}",
        b"null",
        *(json.dumps(message).encode() for message in (ping(), call(), INITIALIZE, INITIALIZED)),
        b'{"jsonrpc": "2.0", "method": "notifications/unknown"}',
        b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}',
        b'{"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 9, "progress": 1}}',
        b'{"jsonrpc": "2.0", "id": 9, "result": {}}',
        b'{"jsonrpc": "2.0", "error": {"code": 1, "message": "x"}}',
    ]
    for server in (ServerConnection(INFO), operating_server()):
        for message in messages:
            server.receive_data(message + b"\n", 0.0)
            assert server.next_event() is not None, message
            assert server.next_event() is None, message


def test_whole_messages_keep_their_exchange() -> None:
    server = operating_server()
    server.receive_message(json.dumps(ping("a")), 0.0, via="one")
    server.receive_message(json.dumps(call("a")).encode(), 0.0, via="two")
    answered, received = server.events()
    assert isinstance(answered, Answered)
    assert isinstance(received, RequestReceived)
    assert (answered.via, received.context.via) == ("one", "two")
    server.send_result(received.id, CallToolResult(()))
    assert server.pending_exchanges() == ["one", "two"]
    first, second = server.next_message(via="one"), server.next_message()
    assert first is not None
    assert second is not None
    assert (first.via, first.related, first.last) == ("one", None, True)
    assert (second.via, second.related, second.last) == ("two", received.id, True)
    assert server.next_message() is None
    assert not server.closed


def test_answer_is_taken_only_if_nothing_else_is_to_be_done() -> None:
    server = operating_server()
    for id in ("a", "b"):
        server.receive_message(json.dumps(call(id)), 0.0, via=id)
    one, two = server.events()
    assert isinstance(one, RequestReceived)
    assert isinstance(two, RequestReceived)
    sent_before = server.stats.sent_bytes
    server.send_result(one.id, CallToolResult(()))
    assert server.take_answer("b") is None
    text = server.take_answer("a")
    assert text is not None
    assert json.loads(text) == {"jsonrpc": "2.0", "id": "a", "result": {"content": []}}
    assert server.stats.sent_bytes - sent_before == len(text)
    assert (server.wants_write, server.take_answer("a")) == (False, None)
    server.send_result(two.id, CallToolResult(()))
    server.send_request(PingRequest(), 0.0)
    assert server.take_answer("b") is None, "a request waits, too"
    assert server.pending_exchanges() == ["b", None]
    assert server.next_message(via=None) is not None
    server.close(0.0)
    assert server.take_answer("b") is None, "the connection is closing"
    assert server.next_message(via="b") is not None


@pytest.mark.req("SEC-04")
@pytest.mark.parametrize("via", [None, "one"])
def test_principal_belongs_to_the_message(via: str | None) -> None:
    server = operating_server()
    server.receive_message(json.dumps(call("a")), 0.0, via=via, principal="ann")
    server.receive_message(json.dumps(call("b")), 0.0, via=via)
    server.receive_message(json.dumps(call("c")), 0.0, via=via, principal="bob")
    events = [event for event in server.events() if isinstance(event, RequestReceived)]
    assert [event.context.principal for event in events] == ["ann", None, "bob"]
    assert {event.context.via for event in events} == {via}
    assert server.principal is None


def test_output_is_limited_to_about_max_bytes() -> None:
    server = operating_server()
    server.receive_data(lines(*(ping(number) for number in range(10))), 0.0)
    assert len(list(server.events())) == 10
    size = len(b'{"jsonrpc":"2.0","id":0,"result":{}}')
    assert server.data_to_send(0) == []
    assert len(server.data_to_send(1)) == 1
    assert len(server.data_to_send(2 * size + 1)) == 3
    assert len(server.data_to_send()) == 6
    assert server.data_to_send() == []


@pytest.mark.long
@pytest.mark.parametrize("feed", ["handle_timeout", "connection_lost", "close"])
def test_draining_takes_linear_time(feed: str) -> None:
    def made(count: int) -> Callable[[], None]:
        server = operating_server(message_bytes=10**9, queued_bytes=10**9, high_water=10**9)
        if feed == "close":
            for _ in range(count):
                server.send_request(PingRequest(), now=0.0, timeout=None)
            server.close(0.0)
        else:
            server.receive_data(lines({"jsonrpc": "2.0", "method": "x"}) * count, 0.0)
            server.handle_timeout(0.0) if feed == "handle_timeout" else server.connection_lost(None, 0.0)

        def drain() -> None:
            assert sum(1 for _ in server.events()) == count + (feed == "connection_lost")

        return drain

    gc.disable()  # its passes take longer the more there is, whatever the engine does
    try:
        few, many = (processor_seconds(made(count) for _ in range(2)) for count in (1_000, 16_000))
    finally:
        gc.enable()
    assert many < 80 * few  # the square would be 256 times as much


# Reading and writing only when it makes sense


def test_unread_answers_stop_reading() -> None:
    server = operating_server(high_water=100)
    server.receive_data(lines(*(ping(number) for number in range(5))), 0.0)
    reads = [server.wants_read]
    assert len(list(server.events())) == 5
    reads.append(server.wants_read)
    server.data_to_send()
    assert [*reads, server.wants_read] == [True, False, True]


def test_outgoing_requests_do_not_stop_reading() -> None:
    client = operating_client(limits=Limits(high_water=10))
    for _ in range(10):
        client.send_request(ListToolsRequest(), now=0.0)
    assert client.wants_read
    client.receive_data(lines({**ping(1), "method": "roots/list"}), 0.0)
    assert [event.method for event in client.events() if isinstance(event, Answered)] == ["roots/list"]


def test_peer_that_never_reads_ends_its_connection() -> None:
    server = operating_server(queued_bytes=9 * (MESSAGE_COST + 35))
    server.receive_data(lines(*(ping(number) for number in range(20))), 0.0)
    *answered, closed = server.events()
    assert [type(event) for event in answered] == [Answered] * 9
    assert closed == ConnectionClosed(CloseReason.SLOW_CONSUMER, None)
    assert server.closed
    assert (server.wants_write, server.wants_read, server.data_to_send()) == (False, False, [])


@pytest.mark.parametrize(
    "message",
    [
        b"rubbish",
        b"{}",
        b"[1]",
        b'{"jsonrpc": "2.0", "id": 1, "method": "unknown"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": 5}',
        json.dumps(INITIALIZE).encode(),
        b"x" * 2000,
    ],
)
@pytest.mark.parametrize("resync", [True, False])
def test_last_message_is_reported_before_an_overflow_ends_the_connection(message: bytes, resync: bool) -> None:
    server = ServerConnection(INFO, options=Options(limits=Limits(queued_bytes=10, message_bytes=1000, resync=resync)))
    server.receive_data(message + b"\n" + lines(ping()), 0.0)
    events = list(server.events())
    assert events[-1] == ConnectionClosed(CloseReason.SLOW_CONSUMER, None)
    assert len(events) == 2
    assert server.next_deadline() is None
    server.handle_timeout(1e9)
    assert list(server.events()) == []


def test_stats_count_dropped_logs() -> None:
    server = operating_server(queued_logs=2)
    for number in range(5):
        server.send_notification(LoggingMessageNotification("info", number))
    assert server.stats.dropped_logs == 3
    assert [message["params"]["data"] for message in sent(server)] == [3, 4]


# Time


@pytest.mark.req("TIME-04", "TIME-01")
def test_deadlines_expire_only_in_handle_timeout() -> None:
    client = operating_client()
    id = client.send_request(ListToolsRequest(), now=10.0, timeout=5.0)
    assert client.next_deadline() == 15.0
    client.receive_data(b"", 99.0)
    assert client.next_event() is None
    client.handle_timeout(14.9)
    assert (client.next_event(), client.pending.outgoing) == (None, (id,))
    client.data_to_send()
    client.handle_timeout(15.0)
    client.handle_timeout(15.0)
    (failed,) = client.events()
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, RequestTimeout)
    assert client.next_deadline() is None
    assert sent(client) == [
        {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": int(id), "reason": "timeout"},
        }
    ]


def test_handle_timeout_parses_fed_input_first() -> None:
    client = operating_client()
    id = client.send_request(ListToolsRequest(), now=0.0, timeout=5.0)
    client.receive_data(lines({"jsonrpc": "2.0", "id": int(id), "result": {"tools": []}}), 4.0)
    client.handle_timeout(100.0)
    (event,) = client.events()
    assert not isinstance(event, RequestFailed)


def test_clock_that_goes_back_is_ignored() -> None:
    client = ClientConnection(INFO)
    client.send_initialize(now=-1000.0, timeout=10.0)
    assert client.next_deadline() == -990.0
    client.receive_data(lines(INITIALIZE_RESULT), -995.0)
    list(client.events())
    client.send_request(PingRequest(), now=-2000.0, timeout=10.0)
    assert client.next_deadline() == -985.0


@pytest.mark.parametrize("grace", [-1.0, math.nan])
def test_invalid_grace_is_refused_and_changes_nothing(grace: float) -> None:
    server = operating_server()
    with pytest.raises(LocalProtocolError, match="grace must be a number of seconds"):
        server.close(0.0, grace=grace)
    assert server.phase is Phase.OPERATING


# Counting


def test_stats_count_input_and_output() -> None:
    connection = operating()
    counted = connection.stats.received_bytes, connection.stats.sent_bytes
    assert (connection.last_received_at, connection.stats.queued_bytes) == (0.0, 0)
    connection.receive_data(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n', 3.0)
    list(connection.events())
    waiting = connection.stats.queued_bytes
    (chunk,) = connection.data_to_send()
    connection.receive_message('{"jsonrpc":"2.0","id":1,"method":"ping"}', 4.0)
    list(connection.events())
    message = connection.next_message()
    assert chunk is not None
    assert message is not None
    assert (connection.last_received_at, waiting) == (4.0, len(chunk) - 1 + MESSAGE_COST)
    assert connection.stats.received_bytes - counted[0] == 41 + 40
    assert connection.stats.sent_bytes - counted[1] == len(chunk) - 1 + len(message.text)
    fresh = new_server()
    assert (fresh.last_received_at, fresh.stats) == (None, ConnectionStats(0, 0, 0, 0))


def test_news_and_waiting_messages_are_listed_by_exchange() -> None:
    server = operating_server()
    assert (list(server.take_news()), server.has_output("one")) == ([], False)
    server.receive_message('{"jsonrpc": "2.0", "id": 1, "method": "ping"}', 0.0, via="one")
    list(server.events())
    assert (list(server.take_news()), server.has_output("one")) == (["one"], True)
    assert (list(server.take_news()), server.has_output("two")) == ([], False)


def test_input_ended_is_true_from_the_end_of_file_on() -> None:
    server = operating_server()
    assert not server.input_ended
    server.receive_data(None, 0.0)
    assert server.input_ended
