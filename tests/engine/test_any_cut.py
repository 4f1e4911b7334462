"""One conversation, cut at every byte (P1) and moved to another process after every message (P12): always the same."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.dialect import BatchItem
from mcpio.engine.limits import Limits, Timeout
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.errors import RequestError
from mcpio.events import CancelReceived, Event, Negotiated, ProtocolViolated, RequestFailed, RequestReceived
from mcpio.profiles import Profile
from mcpio.types.asking import ListRootsRequest
from mcpio.types.content import TextContent
from mcpio.types.features import (
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    Implementation,
    ListToolsRequest,
    RootsCapability,
    ServerCapabilities,
    ToolsCapability,
)

INFO = Implementation("test", "1")
OPTIONS = Options(request_timeout=Timeout(1024.0), limits=Limits(message_bytes=600, resync=True))
JOINING = attrs.evolve(OPTIONS, join_batch_answers=True, profiles=frozenset(Profile), emit_profile=Profile.ERLMCP)
TEXT = "Zürich €\U0001f600 \\u2028"


def wire(*messages: Any) -> bytes:
    return b"".join(
        message if isinstance(message, bytes) else json.dumps(message, ensure_ascii=False).encode() + b"\n"
        for message in messages
    )


def call(id: Any, **meta: Any) -> dict[str, Any]:
    params = {"name": TEXT, "_meta": meta}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def note(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}


HELLO = {"protocolVersion": "2025-03-26", "capabilities": {"roots": {}}, "clientInfo": {"name": "c", "version": "1"}}
TO_SERVER = wire(
    {"jsonrpc": "2.0", "id": "früh", "method": "tools/list"},
    {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO},
    note("initialized"),
    call("a", progressToken=TEXT),
    b"  \r\n\n",
    call("b"),
    b"rubbish\r\n",
    note("cancelled", requestId="b", reason=TEXT),
    [call("c"), {"jsonrpc": "2.0", "id": "p", "method": "ping"}],
    {"jsonrpc": "2.0", "id": 1, "result": {"roots": []}},
    b"x" * 700 + b"\n",
    note("progress", progressToken=2, progress=1),
    {"jsonrpc": "2.0", "id": 2, "error": {"code": 1, "message": TEXT}},
    call("a"),
    {"jsonrpc": "2.0", "id": 1, "result": {"roots": []}},
)
WELCOME = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
TO_CLIENT = wire(
    b"Starting \xff server...\n",
    {"jsonrpc": "2.0", "id": 1, "result": WELCOME},
    note("progress", progressToken=2, progress=1, message=TEXT),
    {"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": TEXT}], "x": 10**30}},
    {"jsonrpc": "2.0", "id": "r", "method": "roots/list"},
    {"jsonrpc": "2.0", "id": "r", "method": "roots/list"},
    note("cancelled", requestId="r"),
    {"jsonrpc": "2.0", "id": 3, "result": {"tools": [{"name": "t", "inputSchema": {}}, 5]}},
    {"jsonrpc": "2.0", "id": 2, "result": {}},
    b'{"jsonrpc": "2.0", "error": {"code": -32700, "message": "?"}}',
)

Move = Callable[[Connection, float], Connection]


class Program:
    """What a user's program does on events: always the same on the same events. It keeps a record of all."""

    def __init__(self, connection: Connection, move: Move | None = None) -> None:
        self.connection = connection
        self.move = move
        self.events: list[str] = []
        self.output = b""
        self.now = 0.0

    def feed(self, data: bytes | None) -> None:
        self.connection.receive_data(data, self.now)
        self.cycle()

    def cycle(self) -> None:
        while True:
            event = self.connection.next_event()
            if event is None:
                break
            self.events.append(repr(event))
            self.react(event)
            self.write()
        self.write()
        if self.move is not None and self.connection.phase is not Phase.CLOSED:
            self.connection = self.move(self.connection, self.now)

    def write(self) -> None:
        while chunks := self.connection.data_to_send(1):
            for chunk in chunks:
                self.output += b"<end>" if chunk is None else chunk

    def react(self, event: Event) -> None:
        connection = self.connection
        match event:
            case RequestReceived() if event.raw["method"] == "roots/list":
                pass
            case RequestReceived() if event.raw["id"] == "b":
                pass
            case RequestReceived():
                connection.send_progress(event.id, 0.5)
                connection.send_request(ListRootsRequest(), now=self.now, cookie="for you", related_to=event.id)
                connection.send_result(event.id, CallToolResult((TextContent(TEXT),)))
            case Negotiated() if isinstance(connection, ClientConnection) and event.revision.has_batches:
                first = BatchItem(ListToolsRequest(), cookie=7)
                connection.send_batch([first, BatchItem(CallToolRequest("x"), 8.0, "x", True)], now=self.now)
            case Negotiated() if isinstance(connection, ClientConnection):
                connection.send_request(CallToolRequest("x"), now=self.now, progress=True, timeout=Timeout(64.0, 16.0))
                connection.send_request(ListToolsRequest(), now=self.now, cookie=7)
                connection.send_request(ListToolsRequest(), now=self.now, timeout=8.0)
            case CancelReceived() | RequestFailed():
                connection.send_error(event.id, RequestError(1, "x")) if isinstance(event, CancelReceived) else None

    def finish(self) -> tuple[list[str], bytes]:
        for _ in range(3):
            deadline = self.connection.next_deadline()
            if deadline is not None:
                self.now = deadline
                self.connection.handle_timeout(deadline)
                self.cycle()
        self.feed(None)
        self.connection.close(self.now)
        self.move = None
        self.cycle()
        self.cycle()
        return self.events, self.output


def made(role: str) -> Connection:
    options = JOINING if role.endswith("with batches") else OPTIONS
    if role.startswith("server"):
        return ServerConnection(INFO, ServerCapabilities(tools=ToolsCapability()), options=options)
    connection = ClientConnection(INFO, ClientCapabilities(roots=RootsCapability()), options=options)
    connection.send_initialize(now=0.0)
    return connection


def moved(connection: Connection, now: float) -> Connection:
    """Return the connection as another process would have it."""
    snapshot = json.loads(json.dumps(connection.snapshot(now), allow_nan=False))
    return type(connection).restore(snapshot, now, options=connection.options)


def run(role: str, pieces: list[bytes], move: Move | None = None) -> tuple[list[str], bytes]:
    program = Program(made(role), move)
    program.write()
    program.now = 8.0
    for piece in pieces:
        program.feed(piece)
    return program.finish()


BATCHED = wire(
    [call("a", progressToken=TEXT), {"jsonrpc": "2.0", "id": "p", "method": "ping"}, 5, call("b")],
    note("cancelled", requestId="b"),
    {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": "x"}},
    [call("c"), {"jsonrpc": "2.0", "id": 1, "result": {}}],
    b'{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}\n',
    [{"jsonrpc": "2.0", "id": 1, "result": {"roots": []}}, {"jsonrpc": "2.0", "id": 2, "result": 5}],
)
TO_BATCHED_SERVER = b"".join(TO_SERVER.splitlines(keepends=True)[1:3]) + BATCHED
TO_BATCHING_CLIENT = wire(
    {"jsonrpc": "2.0", "id": 1, "result": {**WELCOME, "protocolVersion": "2025-03-26"}},
    note("progress", progressToken=3, progress=1, message=TEXT),
    [
        {"jsonrpc": "2.0", "id": 3, "result": {"content": []}},
        {"jsonrpc": "2.0", "id": 2, "error": {"code": 1, "message": TEXT}},
        {"jsonrpc": "2.0", "id": 2, "result": {}},
    ],
    [],
)

STREAMS = {
    "server": TO_SERVER,
    "client": TO_CLIENT,
    "server with batches": TO_BATCHED_SERVER,
    "client with batches": TO_BATCHING_CLIENT,
}
WHOLE = {role: run(role, [stream]) for role, stream in STREAMS.items()}


def test_conversation_covers_every_kind_of_event() -> None:
    for role, names in (
        (
            "server",
            "Negotiated RequestReceived CancelReceived ProtocolViolated ResponseReceived RequestFailed Answered",
        ),
        ("server with batches", "RequestReceived CancelReceived ProtocolViolated ResponseReceived Answered"),
        ("client with batches", "Negotiated ProgressReceived ResponseReceived RequestFailed ProtocolViolated"),
        ("client", "NoiseReceived Negotiated ProgressReceived ResponseReceived RequestFailed RequestReceived Answered"),
    ):
        events, output = WHOLE[role]
        assert {name for name in names.split() if not any(event.startswith(name) for event in events)} == set()
        assert events[-1].startswith("ConnectionClosed")
        assert output.endswith(b"<end>")
    assert ProtocolViolated.__name__ in "".join(WHOLE["client"][0])


@pytest.mark.req("STDIO-03")
@pytest.mark.parametrize("role", STREAMS)
def test_any_two_pieces_give_the_same_conversation(role: str) -> None:
    stream = STREAMS[role]
    for cut in range(len(stream) + 1):
        assert run(role, [stream[:cut], stream[cut:]]) == WHOLE[role]


@pytest.mark.parametrize("role", STREAMS)
def test_single_bytes_and_lines_give_the_same_conversation(role: str) -> None:
    stream = STREAMS[role]
    assert run(role, [stream[place : place + 1] for place in range(len(stream))]) == WHOLE[role]
    assert run(role, stream.splitlines(keepends=True)) == WHOLE[role]


@pytest.mark.parametrize("role", STREAMS)
def test_snapshots_after_every_few_bytes_give_the_same_conversation(role: str) -> None:
    stream = STREAMS[role]
    assert run(role, stream.splitlines(keepends=True), moved) == WHOLE[role]
    for size in (1, 7, 64):
        pieces = [stream[place : place + size] for place in range(0, len(stream), size)]
        assert run(role, pieces, moved) == WHOLE[role]


@given(st.sampled_from(list(STREAMS)), st.lists(st.integers(0, 3000), max_size=6), st.data())
def test_any_pieces_and_snapshots_give_the_same_conversation(role: str, cuts: list[int], data: st.DataObject) -> None:
    stream = STREAMS[role]
    places = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    pieces = [stream[start:end] for start, end in itertools.pairwise(places)]

    def now_and_then(connection: Connection, now: float) -> Connection:
        return moved(connection, now) if data.draw(st.booleans()) else connection

    assert run(role, pieces, now_and_then) == WHOLE[role]
