"""The peer cannot make you raise (P2): anything, in any order."""

from __future__ import annotations

import json
from typing import Any

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from stateless import CAPABILITIES, CLIENT, LEVEL, MODERN, SUBSCRIPTION, VERSION, server_of
from wires import INFO, client, new_server, server

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.pending import Pending
from mcpio.engine.table import Phase
from mcpio.events import (
    ConnectionClosed,
    RequestFailed,
    ResponseReceived,
)
from mcpio.revisions import HANDSHAKE_REVISIONS, REV_2026_07_28
from mcpio.types.features import PingRequest, SubscriptionFilter, SubscriptionsListenRequest

LISTENING = SubscriptionFilter(tools_list_changed=True)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
METHOD = st.sampled_from(
    ["ping", "initialize", "tools/list", "tools/call", "resources/read", "roots/list", "acme/do", "x"]
    + ["server/discover", "subscriptions/listen", "tasks/get"]
    + [
        f"notifications/{name}"
        for name in (
            *("initialized", "cancelled", "progress", "message", "x", "tools/list_changed"),
            *("subscriptions/acknowledged", "resources/updated", "tasks"),
        )
    ]
)
PARAMS = JSON | st.fixed_dictionaries(
    {},
    optional={
        "name": JSON,
        "requestId": st.integers(0, 4) | JSON,
        "progressToken": st.integers(0, 4) | JSON,
        "progress": st.integers(0, 3) | JSON,
        "_meta": JSON
        | st.fixed_dictionaries({"progressToken": st.integers(0, 2) | JSON})
        | st.fixed_dictionaries(
            {VERSION: st.just("2026-07-28") | st.just("2026-07-28") | JSON},
            optional={CAPABILITIES: st.just({}) | st.just({}) | JSON, CLIENT: JSON, LEVEL: st.just("info") | JSON},
        )
        | st.fixed_dictionaries({SUBSCRIPTION: st.integers(0, 4) | JSON}),
        "notifications": st.just({"toolsListChanged": True}) | JSON,
        "inputResponses": JSON,
        "requestState": JSON,
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
        )
        | st.fixed_dictionaries(
            {"resultType": st.sampled_from(["complete", "input_required", "task"]) | JSON},
            optional={
                "supportedVersions": st.just(["2026-07-28"]) | st.just(["2025-11-25"]) | JSON,
                "capabilities": st.just({}) | JSON,
                "tools": st.just([]) | JSON,
                "ttlMs": JSON,
                "cacheScope": JSON,
                "inputRequests": JSON,
                "requestState": JSON,
                "_meta": JSON,
            },
        ),
        "error": JSON
        | st.fixed_dictionaries({"code": st.integers() | JSON, "message": st.text() | JSON})
        | st.fixed_dictionaries(
            {"code": st.sampled_from([-32020, -32021, -32022]), "message": st.just("no")},
            optional={
                "data": JSON
                | st.fixed_dictionaries(
                    {"supported": st.just(["2026-07-28"]) | st.lists(st.text(max_size=3), max_size=2) | JSON},
                    optional={"requested": st.text(max_size=3) | JSON},
                )
            },
        ),
    },
)
TEXT = (MESSAGE | JSON | st.lists(MESSAGE, max_size=3)).map(lambda value: json.dumps(value).encode()) | st.binary(
    max_size=9
)
STEP = st.one_of(
    st.tuples(st.just("data"), st.binary(max_size=9) | TEXT.map(lambda text: text + b"\n") | TEXT | st.none()),
    st.tuples(st.just("message"), TEXT | TEXT.map(lambda text: text.decode(errors="surrogateescape")) | st.none()),
    st.tuples(st.just("lost"), st.none() | st.builds(OSError)),
    st.tuples(st.just("time"), st.floats(allow_nan=False, allow_infinity=False)),
    st.tuples(st.just("event"), st.none()),
    st.tuples(st.just("write"), st.integers(0, 500)),
    st.tuples(st.just("close"), st.floats(min_value=0) | st.none()),
    st.tuples(st.just("send"), st.none()),
)
KINDS = st.sampled_from(
    [
        *("new server", "server", "old server", "stateless server", "small server"),
        *("new client", "opening client", "client", "asking client", "stateless client", "reopening client"),
    ]
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
        case "stateless server":
            return server_of(MODERN)
        case "client":
            return client("2025-03-26")
        case "asking client" | "reopening client":
            asking = ClientConnection(INFO, options=Options(reopens=kind == "reopening client", probe_timeout=1.0))
            asking.negotiate(0.0)
            return asking
        case "stateless client":
            adopted = ClientConnection(INFO)
            adopted.adopt(REV_2026_07_28)
            return adopted
        case _:
            made = ClientConnection(INFO)
            if kind == "opening client":
                made.send_initialize(now=0.0)
            return made


@given(KINDS, st.lists(STEP, max_size=25))
@settings(max_examples=examples(300))
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
                ours = PingRequest() if connection.revision != REV_2026_07_28 else SubscriptionsListenRequest(LISTENING)
                connection.send_request(ours, now=0.0, progress=True)
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
