"""How a channel ends: closing, the end of input, loss, limits. Both roles stand for it."""

from __future__ import annotations

import json
import math

import pytest
from operating import (
    CLOSED,
    call,
    lines,
    operating_client,
    operating_server,
    ping,
)
from wires import INFO, sent

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.errors import ConnectionLost, LocalProtocolError
from mcpio.events import (
    CloseReason,
    ConnectionClosed,
    ProtocolViolated,
    RequestFailed,
    RequestReceived,
)
from mcpio.types.asking import ListRootsRequest
from mcpio.types.features import (
    CallToolResult,
    ListToolsRequest,
    PingRequest,
)


@pytest.mark.req("LIFE-17")
@pytest.mark.parametrize("connection", [ServerConnection(INFO), ClientConnection(INFO)], ids=["server", "client"])
def test_close_without_pending_answers_ends_at_once(connection: Connection) -> None:
    connection.close(0.0)
    connection.close(1.0)
    assert (connection.phase, connection.end) == (Phase.CLOSING, None)
    assert connection.next_event() is None
    assert connection.wants_write
    assert connection.data_to_send() == [None]
    before = connection.closed
    assert list(connection.events()) == [CLOSED]
    assert (before, connection.closed, connection.end) == (False, True, CLOSED)
    connection.close(2.0)
    connection.abort()
    connection.connection_lost(None, 3.0)
    connection.receive_data(lines(ping()), 3.0)
    connection.receive_message("{}", 3.0)
    connection.receive_data(None, 3.0)
    connection.handle_timeout(1e9)
    assert list(connection.events()) == []
    assert (connection.data_to_send(), connection.next_message(), connection.next_deadline()) == ([], None, None)


def test_message_channel_ends_with_the_event() -> None:
    server = operating_server()
    server.receive_message(json.dumps(ping()), 0.0)
    assert len(list(server.events())) == 1
    server.close(0.0)
    assert server.next_message() is not None
    assert list(server.events()) == []
    assert server.next_message() is None
    assert list(server.events()) == [CLOSED]
    assert server.closed


@pytest.mark.req("LIFE-17")
def test_close_fails_outgoing_and_awaits_incoming_requests() -> None:
    server = operating_server()
    server.receive_data(lines(call(1), call(2)), 0.0)
    first, second = server.events()
    assert isinstance(first, RequestReceived)
    assert isinstance(second, RequestReceived)
    ours = server.send_request(ListRootsRequest(), now=0.0)
    server.data_to_send()
    server.close(10.0, grace=5.0)
    (failed,) = server.events()
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, ConnectionLost)
    assert (failed.id, failed.error.reason) == (ours, "roots/list: the connection ended (closed here)")
    assert not server.wants_write
    assert server.next_deadline() == 15.0
    server.send_result(first.id, CallToolResult(()))
    assert [message["id"] for message in sent(server)] == [1]
    server.handle_timeout(15.0)
    assert list(server.events()) == [CLOSED]
    assert server.data_to_send() == []
    server.send_result(second.id, CallToolResult(()))


def test_second_close_may_only_shorten_the_grace() -> None:
    server = operating_server()
    server.receive_data(lines(call()), 0.0)
    assert len(list(server.events())) == 1
    server.close(0.0, grace=None)
    assert server.next_deadline() is None
    server.close(0.0, grace=10.0)
    server.close(5.0, grace=10.0)
    assert server.next_deadline() == 10.0
    server.close(5.0, grace=1.0)
    assert server.next_deadline() == 6.0
    server.close(5.0, grace=math.inf)
    assert server.next_deadline() == 6.0


@pytest.mark.req("STDIO-09")
def test_server_at_end_of_input_answers_running_requests() -> None:
    server = operating_server()
    server.receive_data(lines(call("last"))[:-1], 0.0)
    server.receive_data(None, 0.0)
    assert not server.wants_read
    server.receive_data(lines(ping()), 0.0)
    server.receive_message(json.dumps(ping()), 0.0)
    (received,) = server.events()
    assert isinstance(received, RequestReceived)
    assert (server.phase, server.next_deadline()) == (Phase.CLOSING, None)
    assert sent(server) == []
    server.send_result(received.id, CallToolResult(()))
    answer, end = sent(server)
    assert (answer["id"], end) == ("last", None)
    assert list(server.events()) == [ConnectionClosed(CloseReason.END_OF_FILE, None)]


def test_client_at_end_of_input_closes_at_once() -> None:
    client = operating_client()
    client.send_request(ListToolsRequest(), now=0.0)
    client.receive_message(None, 0.0)
    (failed,) = client.events()
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, ConnectionLost)
    assert client.data_to_send() == [None]
    assert list(client.events()) == [ConnectionClosed(CloseReason.END_OF_FILE, None)]


def test_first_close_reason_is_reported() -> None:
    server = operating_server()
    server.close(0.0)
    server.receive_data(None, 0.0)
    assert list(server.events()) == []
    assert server.data_to_send() == [None]
    assert list(server.events()) == [CLOSED]


def test_lost_channel_delivers_earlier_input() -> None:
    cause = OSError("reset")
    client = operating_client()
    one, two = (client.send_request(ListToolsRequest(), now=0.0, cookie=name) for name in "ab")
    client.receive_data(lines({"jsonrpc": "2.0", "id": int(one), "result": {"tools": []}}), 0.0)
    client.connection_lost(cause, 0.0)
    answered, failed, closed = client.events()
    assert not isinstance(answered, RequestFailed)
    assert isinstance(failed, RequestFailed)
    assert (failed.id, failed.cookie, failed.error.__cause__) == (two, "b", cause)
    assert closed == ConnectionClosed(CloseReason.LOST, cause)
    assert client.closed


def test_abort_drops_output() -> None:
    cause = ValueError("enough")
    server = operating_server()
    server.receive_data(lines(ping(), call()), 0.0)
    assert len(list(server.events())) == 2
    server.abort(cause)
    assert (server.wants_write, server.data_to_send()) == (False, [])
    assert server.pending.incoming == ()
    assert list(server.events()) == [ConnectionClosed(CloseReason.ABORTED, cause)]


def test_overlong_message_is_answered_and_ends_the_connection() -> None:
    server = operating_server(message_bytes=1000)
    server.receive_data(lines(call()) + b"x" * 1001 + b"\n" + lines(ping()), 0.0)
    received, violated = server.events()
    assert isinstance(received, RequestReceived)
    assert isinstance(violated, ProtocolViolated)
    assert violated.raw == "x" * 200
    assert server.phase is Phase.CLOSING
    assert server.next_deadline() == 5.0
    assert [message["error"]["code"] for message in sent(server)] == [-32600]
    server.handle_timeout(5.0)
    assert list(server.events()) == [ConnectionClosed(CloseReason.MESSAGE_TOO_LARGE, None)]


def test_server_with_nothing_pending_half_closes_at_end_of_input() -> None:
    server = ServerConnection(INFO)
    server.receive_data(None, 0.0)
    assert server.next_event() is None
    assert server.phase is Phase.CLOSING
    assert server.data_to_send() == [None]
    assert list(server.events()) == [ConnectionClosed(CloseReason.END_OF_FILE, None)]


def test_cancellation_that_overflows_the_output_ends_the_connection_once() -> None:
    client = operating_client(limits=Limits(queued_bytes=5600))
    for _ in range(5):
        client.send_request(PingRequest(), now=0.0, timeout=1.0)
    client.handle_timeout(1.0)
    events = list(client.events())
    assert [type(event) for event in events] == [RequestFailed] * 5 + [ConnectionClosed]
    assert events[-1] == ConnectionClosed(CloseReason.SLOW_CONSUMER, None)


def test_request_that_overflows_the_output_still_has_an_outcome() -> None:
    client = ClientConnection(INFO, options=Options(limits=Limits(queued_bytes=10)))
    id = client.send_initialize(now=0.0)
    failed, closed = client.events()
    assert isinstance(failed, RequestFailed)
    assert (failed.id, closed) == (id, ConnectionClosed(CloseReason.SLOW_CONSUMER, None))


def test_input_without_a_row_is_forbidden() -> None:
    client = ClientConnection(INFO)
    client.send_initialize(now=0.0)
    with pytest.raises(LocalProtocolError, match="cannot send initialize in phase initializing as a client"):
        client.send_initialize(now=0.0)
