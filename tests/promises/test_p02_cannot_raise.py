"""P2: no bytes, messages or times make a connection raise; what ends it ends in one ``ConnectionClosed``.

``tests/engine/test_any_input.py`` speaks sense and nonsense to one engine; here the bytes of two real ones are damaged.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Limits
from mcpio.engine.options import KeepAlive, Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase, Role
from mcpio.errors import LocalProtocolError, NoBackChannel
from mcpio.events import (
    CancelReceived,
    ConnectionClosed,
    Event,
    Negotiated,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
)
from mcpio.revisions import REV_2026_07_28
from mcpio.testing import Pair, at_random, pair, whole
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    Implementation,
    ListRootsRequest,
    ListRootsResult,
    RootsCapability,
    ServerCapabilities,
    ToolsCapability,
)
from mcpio.types.features import (
    DiscoverResult,
    SubscriptionFilter,
    SubscriptionsListenRequest,
    SubscriptionsListenResult,
)

TOOLS = SubscriptionFilter(tools_list_changed=True)

Damage = Callable[[random.Random, bytes], bytes]


def _flip(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _swap_words(chance: random.Random, data: bytes) -> bytes:
    words = [b'"id"', b'"method"', b'"result"', b'"params"', b"1", b"2", b"{}", b"null", b"[]", b'"tools/call"', b"\n"]
    words += [b'"_meta"', b'"resultType"', b"2026-07-28", b'"complete"', b"subscriptionId"]
    return data.replace(chance.choice(words), chance.choice(words))


def _reshape(chance: random.Random, data: bytes) -> bytes:
    """Replace any value in the first message by another, of any type."""
    line, newline, rest = data.partition(b"\n")
    try:
        message = json.loads(line)
    except ValueError:
        return data
    places: list[tuple[Any, Any]] = []
    waiting: list[Any] = [message]
    while waiting:
        node = waiting.pop()
        members = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for place, value in members:
            places.append((node, place))
            waiting.append(value)
    if places:
        node, place = chance.choice(places)
        strange: list[Any] = [None, True, 0, 1, 2, 99, -1, 1.5, 10**30, "", "x", [], {}, {"a": {}}]
        node[place] = [{}] * 500 if chance.random() < 0.3 else chance.choice(strange)
    return json.dumps(message).encode() + newline + rest


INTRUDERS = [
    '{"jsonrpc":"2.0","method":"notifications/initialized"}',
    '{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no"}}',
    '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":ID,"progress":9}}',
    '{"jsonrpc":"2.0","id":ID,"result":{"content":[ITEMS],"resultType":"complete"}}',
]
"""Messages that no side sends at such a time. ``ID`` stands for an id in the damaged data, ``ITEMS`` for many items."""


def _intrude(chance: random.Random, data: bytes) -> bytes:
    named = re.findall(rb'"id":(\d+)', data) or [b"1"]
    text = chance.choice(INTRUDERS).replace("ID", chance.choice(named).decode())
    line = text.replace("ITEMS", ",".join(["{}"] * 500)).encode() + b"\n"
    return line + data if chance.random() < 0.5 else data + line


DAMAGES: list[Damage] = [
    _intrude,
    _intrude,
    _intrude,
    _flip,
    _swap_words,
    _reshape,
    _reshape,
    _reshape,
    lambda chance, data: data[: chance.randrange(len(data) + 1)],
    lambda chance, data: data[chance.randrange(len(data)) :],
    lambda _, data: data + data,
    lambda _, data: data[::-1],
    lambda chance, _: chance.randbytes(chance.randrange(400)),
    lambda _, data: b"[" + data.replace(b"\n", b"]\n"),
]


@settings(max_examples=examples(50))
@given(
    seed=st.integers(0, 2**32),
    often=st.sampled_from([0.05, 0.3, 1.0]),
    small=st.booleans(),
    opening=st.sampled_from(["send_initialize", "negotiate", "adopt"]),
)
def test_damaged_bytes_never_raise_and_give_each_request_one_outcome(
    seed: int, often: float, small: bool, opening: str
) -> None:
    chance = random.Random(seed)
    link, asked = _damaged_pair(chance, often, small=small)
    if opening == "adopt":
        offers = ServerCapabilities(tools=ToolsCapability(True))
        link.client.adopt(REV_2026_07_28, DiscoverResult(("2026-07-28",), offers))
    else:
        getattr(link.client, opening)(0.0, cookie="opening")
        asked["opening"] = link.client
    for number in range(12):
        link.run()
        _ask(link, f"{number}", asked)
        link.advance(chance.choice([0.0, 0.1, 7.0]))
    link.lose()
    link.run()
    for connection, events in ((link.client, link.client_events), (link.server, link.server_events)):
        assert connection.closed
        assert [type(event) is ConnectionClosed for event in events] == [False] * (len(events) - 1) + [True]
        kinds = (ResponseReceived, RequestFailed) if connection is link.server else _OUTCOMES
        outcomes = [event.cookie for event in events if isinstance(event, kinds) and event.cookie != "keep-alive"]
        assert sorted(outcomes) == sorted(cookie for cookie, who in asked.items() if who is connection)


_OUTCOMES = (Negotiated, ResponseReceived, RequestFailed)


def _ask(link: Pair, cookie: str, asked: dict[str, Connection]) -> None:
    requests: list[tuple[Connection, Any]] = [(link.client, CallToolRequest("t")), (link.server, ListRootsRequest())]
    requests.append((link.client, SubscriptionsListenRequest(TOOLS)))
    for connection, request in requests:
        name = f"{connection.role.value} {cookie} {type(request).__name__}"
        try:
            connection.send_request(request, now=link.now, timeout=5, cookie=name, progress=int(cookie) % 3 > 0)
        except (LocalProtocolError, NoBackChannel):
            continue
        asked[name] = connection


def _damaged_pair(chance: random.Random, often: float, *, small: bool) -> tuple[Pair, dict[str, Connection]]:
    """A client and a server joined by wires that damage bytes."""
    limits = Limits(message_items=100)
    if small:
        limits = Limits(message_bytes=400, queued_bytes=600, resync=True)
    options = Options(
        limits=limits, keep_alive=KeepAlive(1.0, timeout=4.0, failures=1) if chance.random() < 0.5 else None
    )

    class Client(ClientConnection):
        def receive_data(self, data: bytes | None, now: float) -> None:
            super().receive_data(_damage(data), now)

    class Server(ServerConnection):
        def receive_data(self, data: bytes | None, now: float) -> None:
            super().receive_data(_damage(data), now)

    def _damage(data: bytes | None) -> bytes | None:
        return chance.choice(DAMAGES)(chance, data) if data and chance.random() < often else data

    def answer(connection: Connection, event: Event) -> None:
        if isinstance(event, RequestReceived) and isinstance(event.request, SubscriptionsListenRequest):
            link.server.acknowledge(event.id, SubscriptionFilter())
            connection.send_result(event.id, SubscriptionsListenResult())
        elif isinstance(event, RequestReceived) and connection.phase is not Phase.CLOSED:
            connection.send_progress(event.id, 1)
            is_server = connection.role is Role.SERVER
            connection.send_result(event.id, CallToolResult(()) if is_server else ListRootsResult(()))
        elif isinstance(event, CancelReceived):
            connection.send_result(event.id, CallToolResult(()))

    client = Client(Implementation("c", "1"), ClientCapabilities(RootsCapability()), options=options)
    server = Server(Implementation("s", "1"), ServerCapabilities(tools=ToolsCapability(True)), options=options)
    chunk = at_random(chance.randrange(1000)) if chance.random() < 0.3 else whole
    link = pair(client, server, chunk=chunk, on_event=answer)
    return link, {}


@settings(max_examples=examples(50))
@given(times=st.lists(st.floats(allow_nan=False, min_value=-1e300, max_value=1e300), max_size=20))
def test_any_sequence_of_times_never_raises(times: list[float]) -> None:
    link = pair()
    link.handshake()
    client = link.client
    for number, now in enumerate(times):
        client.handle_timeout(now)
        client.receive_data(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n' % number, now)
        assert len(list(client.events())) == 1
        client.next_deadline()
    assert client.phase is Phase.OPERATING
