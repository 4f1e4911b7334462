"""Small, bounded, linear: what an idle engine weighs, that memory comes back, what many requests cost."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest
from counting import processor_seconds
from weighing import IDLE, weight
from wires import INFO, feed

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.errors import RequestError
from mcpio.events import RequestReceived
from mcpio.types.asking import ListRootsRequest
from mcpio.types.features import (
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    LoggingMessageNotification,
    RootsCapability,
    ServerCapabilities,
    ToolsCapability,
)


def engine_weight(connection: Connection) -> int:
    """Return the weight of an engine. Tables that are made once for all are not its own."""
    handshake = connection._handshake
    shared: list[Any] = [connection._admission, None if handshake is None else handshake._offered]
    return weight(connection, set(map(id, shared)))


def call(id: Any, **meta: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "x", "_meta": meta}}


def server(**limits: Any) -> ServerConnection:
    connection = ServerConnection(
        INFO, ServerCapabilities(tools=ToolsCapability(), logging={}), options=Options(limits=Limits(**limits))
    )
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"roots": {}},
        "clientInfo": {"name": "c", "version": "1"},
    }
    feed(connection, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
    feed(connection, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    connection.data_to_send()
    return connection


def client(**limits: Any) -> ClientConnection:
    options = Options(limits=Limits(**limits))
    connection = ClientConnection(INFO, ClientCapabilities(roots=RootsCapability()), options=options)
    connection.send_initialize(now=0.0)
    info = {"name": "s", "version": "1"}
    answer = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    feed(connection, {"jsonrpc": "2.0", "id": 1, "result": answer})
    connection.data_to_send()
    return connection


def serve(connection: ServerConnection, id: Callable[[int], Any], count: int = 50) -> None:
    """Hold the serving side of a conversation: calls with progress and logs, some cancelled, some failing."""
    for number in range(count):
        for event in feed(connection, call(id(number), progressToken=number)):
            connection.send_progress(event.id, number + 1)
            connection.send_notification(LoggingMessageNotification("info", "x" * 100), related_to=event.id)
            if number % 3 == 0:
                cancel = {"requestId": id(number)}
                feed(connection, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel})
            elif number % 3 == 1:
                connection.send_error(event.id, RequestError(1, "x"))
            else:
                connection.send_result(event.id, CallToolResult(()))
        asked = connection.send_request(ListRootsRequest(), now=0.0, cookie=number)
        feed(connection, {"jsonrpc": "2.0", "id": int(asked), "result": {"roots": []}})
        feed(
            connection,
            {"jsonrpc": "2.0", "id": number, "method": "ping"},
            5,
            {"jsonrpc": "2.0", "id": -1, "result": {}},
        )
    connection.data_to_send(10**9)


@pytest.mark.parametrize("make", [lambda: ServerConnection(INFO), lambda: ClientConnection(INFO), server, client])
def test_idle_engine_is_small(make: Callable[[], Connection]) -> None:
    assert engine_weight(make()) <= IDLE


@pytest.mark.parametrize("id", [int, lambda n: f"{n:040}", lambda n: "x" * 10_000 + str(n), lambda n: 10**3000 + n])
def test_server_after_conversations_is_as_small(id: Callable[[int], Any]) -> None:
    connection = server()
    serve(connection, id)
    assert engine_weight(connection) <= IDLE


def test_client_after_cancellations_and_timeouts_is_as_small() -> None:
    connection = client()
    for number in range(200):
        asked = connection.send_request(CallToolRequest("x"), now=float(number), timeout=1.0, progress=True)
        if number % 50 == 0:
            connection.cancel_request(asked)
        elif number % 50 == 1:
            connection.handle_timeout(number + 1.0)
        else:
            feed(connection, {"jsonrpc": "2.0", "id": int(asked), "result": {"content": []}})
        list(connection.events())
    connection.data_to_send(10**9)
    assert engine_weight(connection) <= IDLE


def test_memory_of_retired_ids_is_bounded() -> None:
    connection = client(retired_ids=16)
    for _ in range(500):
        connection.cancel_request(connection.send_request(CallToolRequest("x"), now=0.0))
        list(connection.events())
        connection.data_to_send()
    assert engine_weight(connection) <= IDLE + 16 * 100


def test_finished_exchanges_free_their_memory() -> None:
    connection = server()
    before = engine_weight(connection)
    for number in range(100):
        (event,) = feed(connection, call(1), via=f"exchange {number}" * 10)
        connection.send_result(event.id, CallToolResult(()))
        while connection.next_message() is not None:
            pass
    assert engine_weight(connection) <= before + 100


def test_closed_engine_frees_pending_state() -> None:
    connection = server()
    feed(connection, *(call(number, progressToken=number) for number in range(100)))
    for _ in range(100):
        connection.send_request(ListRootsRequest(), now=0.0, cookie="x" * 1000)
    connection.receive_data(b"x" * 100_000, 0.0)
    connection.abort()
    list(connection.events())
    assert engine_weight(connection) <= IDLE


def test_memory_returns_after_a_burst() -> None:
    connection = server()
    serve(connection, int, 100)
    gc.collect()
    tracemalloc.start()
    try:
        base = tracemalloc.get_traced_memory()[0]
        for _ in range(2):
            serve(connection, int, 100)
            events = feed(connection, *(call(f"many {number}") for number in range(500)))
            for event in events:
                connection.send_result(event.id, CallToolResult(()))
            connection.receive_data(b'{"x": "' + b"x" * 5_000_000, 0.0)
            connection.receive_data(b'"}\n', 0.0)
            del events
            list(connection.events())
            connection.data_to_send(10**9)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - base < 20_000
    finally:
        tracemalloc.stop()


# Linear


def ask_and_time_out(count: int) -> None:
    connection = client()
    for number in range(count):
        connection.send_request(CallToolRequest("x"), now=0.0, timeout=1.0 + number % 7, progress=True)
    connection.handle_timeout(100.0)
    assert sum(1 for _ in connection.events()) == count
    connection.data_to_send(10**9)


def ask_and_answer_backwards(count: int) -> None:
    connection = client()
    ids = [connection.send_request(CallToolRequest("x"), now=0.0) for _ in range(count)]
    answers = [{"jsonrpc": "2.0", "id": int(id), "result": {"content": []}} for id in reversed(ids)]
    assert len(feed(connection, *answers)) == count


def serve_and_answer_backwards(count: int) -> None:
    connection = server(incoming_requests=count)
    events = feed(connection, *(call(number) for number in range(count)))
    for event in reversed(events):
        assert isinstance(event, RequestReceived)
        connection.send_result(event.id, CallToolResult(()))
    assert len(connection.data_to_send(10**9)) == count


def cancel_what_is_unknown(count: int) -> None:
    connection = server(incoming_requests=count)
    feed(connection, *(call(number) for number in range(count)), via="exchange")
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "unknown"}}
    assert len(feed(connection, *[cancel] * count, via="another")) == count


def close_with_many(count: int) -> None:
    connection = client()
    for _ in range(count):
        connection.send_request(CallToolRequest("x"), now=0.0)
    connection.close(0.0)
    assert sum(1 for _ in connection.events()) == count


@pytest.mark.parametrize(
    "work",
    [ask_and_time_out, ask_and_answer_backwards, serve_and_answer_backwards, cancel_what_is_unknown, close_with_many],
)
def test_many_requests_take_linear_time(work: Callable[[int], Any]) -> None:
    work(10)
    gc.collect()
    small, large = (processor_seconds([partial(work, count)] * 3) for count in (250, 4000))
    # Sixteen times as many; the square would be 256 times as much.
    assert large < 80 * small


def test_weight_counts_contents() -> None:
    @attrs.frozen
    class Holder:
        value: Any

    assert weight(Holder(b"x" * 1000)) > 1000
    assert weight([{"a": (b"x" * 1000,)}]) > 1000
    assert weight(Options()) == 0
