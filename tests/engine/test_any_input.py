"""The peer cannot make you raise (P2): anything, in any order."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from wires import INFO, client, new_server, server

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Limits
from mcpio.engine.pending import Pending
from mcpio.engine.table import Phase
from mcpio.events import (
    ConnectionClosed,
    RequestFailed,
    ResponseReceived,
)
from mcpio.revisions import HANDSHAKE_REVISIONS
from mcpio.types.lifecycle import (
    PingRequest,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
METHOD = st.sampled_from(
    ["ping", "initialize", "tools/list", "tools/call", "resources/read", "roots/list", "acme/do", "x"]
    + [
        f"notifications/{name}"
        for name in ("initialized", "cancelled", "progress", "message", "x", "tools/list_changed")
    ]
)
PARAMS = JSON | st.fixed_dictionaries(
    {},
    optional={
        "name": JSON,
        "requestId": st.integers(0, 4) | JSON,
        "progressToken": st.integers(0, 4) | JSON,
        "progress": st.integers(0, 3) | JSON,
        "_meta": JSON | st.fixed_dictionaries({"progressToken": st.integers(0, 2) | JSON}),
        "protocolVersion": st.sampled_from([revision.name for revision in HANDSHAKE_REVISIONS]) | JSON,
        "capabilities": st.just({}) | JSON,
        "clientInfo": st.just({"name": "c", "version": "1"}) | JSON,
    },
)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | st.just("2.0") | JSON,
        "id": st.integers(0, 4) | st.sampled_from(["1", "a"]) | JSON,
        "method": METHOD | METHOD | JSON,
        "params": PARAMS,
        "result": JSON
        | st.just(
            {
                "protocolVersion": "2025-03-26",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "s", "version": "1"},
            }
        ),
        "error": JSON | st.fixed_dictionaries({"code": st.integers() | JSON, "message": st.text() | JSON}),
    },
)
TEXT = (MESSAGE | JSON | st.lists(MESSAGE, max_size=3)).map(lambda value: json.dumps(value).encode()) | st.binary(
    max_size=9
)
STEP = st.one_of(
    st.tuples(st.just("data"), st.binary(max_size=9) | TEXT.map(lambda text: text + b"\n") | TEXT | st.none()),
    st.tuples(st.just("message"), TEXT | TEXT.map(lambda text: text.decode(errors="surrogateescape")) | st.none()),
    st.tuples(st.just("lost"), st.none() | st.builds(OSError)),
    st.tuples(st.just("time"), st.floats()),
    st.tuples(st.just("event"), st.none()),
    st.tuples(st.just("write"), st.integers(0, 500)),
    st.tuples(st.just("close"), st.floats(min_value=0) | st.none()),
    st.tuples(st.just("send"), st.none()),
)
KINDS = st.sampled_from(
    ["new server", "server", "old server", "new client", "opening client", "client", "small server"]
)


def connection_of(kind: str) -> Connection:
    match kind:
        case "new server":
            return new_server()
        case "server":
            return server()
        case "old server":
            return server("2025-03-26", strict_initialized=True)
        case "small server":
            return new_server(
                limits=Limits(message_bytes=100, queued_bytes=200, high_water=50, incoming_requests=1, resync=True)
            )
        case "client":
            return client("2025-03-26")
        case _:
            made = ClientConnection(INFO)
            if kind == "opening client":
                made.send_initialize(now=0.0)
            return made


@given(KINDS, st.lists(STEP, max_size=25))
@settings(max_examples=300)
def test_random_input_never_raises_and_the_end_is_the_last_event(kind: str, steps: list[tuple[str, Any]]) -> None:
    connection, events, ends = connection_of(kind), list[Any](), 0
    for what, value in steps:
        match what:
            case "data":
                connection.receive_data(value, 0.0)
            case "message":
                connection.receive_message(value, 0.0, via=len(events) % 3 or None)
            case "lost":
                connection.connection_lost(value, 0.0)
            case "time":
                connection.handle_timeout(value)
            case "event":
                events += [event] if (event := connection.next_event()) else []
            case "write":
                ends += connection.data_to_send(value).count(None)
            case "close":
                connection.close(0.0, grace=value)
            case _ if connection.phase is Phase.OPERATING:
                connection.send_request(PingRequest(), now=0.0, progress=True)
        deadline = connection.next_deadline()
        assert deadline is None or connection.phase is not Phase.CLOSED
    events += connection.events()
    connection.abort()
    events += connection.events()
    assert [type(event) for event in events].count(ConnectionClosed) == 1
    assert isinstance(events[-1], ConnectionClosed)
    assert ends <= 1
    outcomes = [event.id for event in events if isinstance(event, RequestFailed | ResponseReceived)]
    assert len(outcomes) == len(set(outcomes))
    assert connection.pending == Pending((), ())
    assert (connection.closed, connection.wants_write, connection.next_deadline()) == (True, False, None)
