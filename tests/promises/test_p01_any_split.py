"""P1: any split of the bytes gives the same events and the same output; an endless line costs only its limit."""

from __future__ import annotations

import tracemalloc
from typing import Any

import attrs
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.events import Event, RequestReceived
from mcpio.types import (
    CallToolRequest,
    ClientCapabilities,
    Implementation,
    ListRootsRequest,
    ListRootsResult,
    ListToolsResult,
    RootsCapability,
    ServerCapabilities,
    ToolsCapability,
)

MIB = 1024 * 1024
HEAD = b'{"jsonrpc":"2.0",'

LINES = [
    b'"id":3,"method":"ping"}',
    b'"id":3,"method":"tools/list"}',
    b'"id":"3","method":"roots/list"}',
    b'"id":4,"method":"no/such"}',
    b'"method":"notifications/cancelled","params":{"requestId":3}}',
    b'"method":"notifications/progress","params":{"progressToken":2,"progress":1}}',
    '"method":"x","params":{"text":"ü☃𐄞 "}}'.encode(),
    b'"id":2,"result":{"content":[],"roots":[]}}',
    b'"id":2,"error":{"code":1,"message":"no"}}',
    b'"id":9,"result":{}}',
    b'"id":3,"method":"ping"' + b" " * (300 - len(HEAD) - 23) + b"}",  # as long as the limit
]
"""Messages from a peer to either role, without the JSON-RPC head."""

lines = st.one_of(
    st.sampled_from(LINES).map(HEAD.__add__),
    st.sampled_from(
        [b"", b"  ", b"garbage", b"[]", b"\xff\xfe", "ü".encode()[:1], b"x" * 300, b"x" * 301, b"x" * 400, b"[" * 200]
    ),
)
endings = st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\r\r\n"])
streams = st.lists(st.tuples(lines, endings).map(b"".join), max_size=12).map(b"".join)


@pytest.mark.parametrize("role", [ServerConnection, ClientConnection], ids=["server", "client"])
@settings(max_examples=examples(60))
@given(data=st.data(), stream=streams, resync=st.booleans(), ended=st.booleans())
@pytest.mark.req("STDIO-03")
def test_any_split_gives_same_events_and_output(
    role: type[Connection], data: st.DataObject, stream: bytes, resync: bool, ended: bool
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    whole = _listen(role, [stream], resync=resync, ended=ended)
    assert _listen(role, pieces, resync=resync, ended=ended) == whole
    assert _listen(role, [stream[at : at + 1] for at in range(len(stream))], resync=resync, ended=ended) == whole


@pytest.mark.parametrize("role", [ServerConnection, ClientConnection], ids=["server", "client"])
def test_pulling_at_any_time_gives_same_order(role: type[Connection]) -> None:
    stream = b"\n".join(HEAD + line for line in LINES) + b"\n"
    often, seldom = _conversation(role), _conversation(role)
    events, output = [], []
    for at in range(len(stream)):
        often.receive_data(stream[at : at + 1], 1.0)
        events += [_plain(event) for event in often.events()]
        output += often.data_to_send()
    seldom.receive_data(stream, 1.0)
    assert events == [_plain(event) for event in seldom.events()]
    assert output == seldom.data_to_send()


@pytest.mark.parametrize("resync", [True, False])
def test_endless_line_costs_at_most_its_limit_plus_slack(resync: bool) -> None:
    server = ServerConnection(
        Implementation("s", "1"), options=Options(limits=Limits(message_bytes=MIB, resync=resync))
    )
    piece = b"x" * 65536
    tracemalloc.start()
    try:
        for _ in range(64):
            server.receive_data(piece, 0.0)
            for _ in server.events():
                pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * MIB
    assert server.phase is (Phase.NEW if resync else Phase.CLOSING)


def _listen(
    role: type[Connection], pieces: list[bytes], *, resync: bool, ended: bool
) -> tuple[list[Any], bytes, Phase]:
    """Feed the pieces to a connection that answers every request; return its events and output."""
    connection = _conversation(role, resync=resync)
    events = []
    for piece in [*pieces, *([None] if ended else [])]:
        connection.receive_data(piece, 1.0)
        for event in connection.events():
            events.append(_plain(event))
            if isinstance(event, RequestReceived):
                connection.send_result(
                    event.id, ListToolsResult(()) if role is ServerConnection else ListRootsResult(())
                )
    chunks = connection.data_to_send()
    return events, b"".join(chunk or b"END" for chunk in chunks), connection.phase


def _conversation(role: type[Connection], *, resync: bool = True) -> Connection:
    """Return a connection in operation with one outgoing request that asked for progress."""
    options = Options(limits=Limits(message_bytes=300, resync=resync))
    if role is ServerConnection:
        capabilities = ServerCapabilities(tools=ToolsCapability())
        connection: Connection = ServerConnection(Implementation("s", "1"), capabilities, options=options)
        params = b'{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}'
        connection.receive_data(HEAD + b'"id":1,"method":"initialize","params":' + params + b"}\n", 0.0)
        connection.receive_data(HEAD + b'"method":"notifications/initialized"}\n', 0.0)
    else:
        client = ClientConnection(Implementation("c", "1"), ClientCapabilities(RootsCapability()), options=options)
        client.send_initialize(now=0.0)
        result = b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}'
        client.receive_data(HEAD + b'"id":1,"result":' + result + b"}\n", 0.0)
        connection = client
    assert len(list(connection.events())) == (2 if role is ServerConnection else 1)
    own = ListRootsRequest() if role is ServerConnection else CallToolRequest("t")
    connection.cancel_request(connection.send_request(own, now=0.0))
    connection.send_request(own, now=0.0, progress=True)
    list(connection.events())
    connection.data_to_send()
    return connection


def _plain(event: Event) -> tuple[str, dict[str, Any]]:
    """Return an event in comparable form: exceptions as their class and text."""
    members = attrs.asdict(event, recurse=False)
    for name in ("error", "cause"):
        if name in members:
            members[name] = repr(members[name])
    return type(event).__name__, members
