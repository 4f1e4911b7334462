"""P6: a message within all limits takes a bounded amount of work and memory, whatever it is filled with.

The payloads and their members are derived from the table of methods, so a new one is covered without a line here. Sizes
and limits are a thousandth of the usual ones, and so is the bound: 20 million instructions of Python code take about
half a second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

import pytest
from hpack import Encoder
from http2frames import (
    CALM,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GET,
    HEADERS,
    PING,
    PRIORITY,
    PROTOCOL_ERROR,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    rapid_resets,
)
from http2frames import frame as http2_frame
from http2wire import PSEUDO
from work import peak_memory, steps_of
from wsproto.frame_protocol import Opcode

from mcpio import Server
from mcpio._drivers.event_loop import RECEIVE_SIZE
from mcpio._drivers.http2 import PREFACE, FrameBudget, Http2Streams
from mcpio._drivers.http_parsers import HttpTimeouts, ParserMark, new_parser
from mcpio.app.http_host import HttpHost
from mcpio.codec import BoundedOddities, codec
from mcpio.engine.limits import Limits
from mcpio.engine.table import Role
from mcpio.errors import InvalidMessage
from mcpio.framing import jsonrpc
from mcpio.framing.lines import LineFramer
from mcpio.framing.sse import SseParser
from mcpio.methods import METHODS
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28, Revision
from mcpio.testing import ManualRuntime
from mcpio.types import ListToolsResult
from mcpio.types._fields import OneOrMore, Payload, is_union, members, without_null
from mcpio.websocket import WebSocket, WebSocketOptions
from mcpio.websocket.frames import frame

SIZE = Limits().message_bytes // 1000
ITEMS = Limits().message_items // 1000
VALUES = Limits().message_values // 1000
MOST_STEPS = 20_000
READ = RECEIVE_SIZE // 64
MOST_STEPS_OF_A_READ = 30_000_000 // 64
REVISIONS = (REV_2025_11_25, REV_2026_07_28)
SCALARS: dict[Any, Any] = {str: "a", int: 1, float: 0.5, bool: True, Any: {}}

Wrap: TypeAlias = Callable[[Any], Any]
"""Makes a whole payload of the value of one of its members."""


def roots(revision: Revision) -> dict[str, type[Any]]:
    """Return the params and the results of all methods of a revision."""
    found = {}
    for method in METHODS.values():
        if method.exists_in(revision):
            found[f"{method.name} params"] = method.params_type
            if method.result is not None:
                found[f"{method.name} result"] = method.result_type
    return found


def sample(type_: Any, revision: Revision) -> Any:
    """Return a small JSON value of a type."""
    type_ = without_null(type_)
    origin = get_origin(type_)
    if type_ in SCALARS:
        return SCALARS[type_]
    if origin is Literal:
        return get_args(type_)[0]
    if origin is tuple:
        return []
    if origin is Mapping:
        return {}
    if not classes_of(type_, revision):
        return sample(get_args(type_)[0], revision)
    cls = classes_of(type_, revision)[0]
    raw = {name: getattr(cls, name) for name in cls.CONSTANTS}
    for member in members(cls):
        if member.exists_in(revision) and member.needed_in(revision):
            raw[member.name] = sample(member.type_in(revision), revision)
    return raw


def classes_of(type_: Any, revision: Revision) -> list[type[Payload]]:
    """Return the payload classes that a value of a type can have."""
    type_ = without_null(type_)
    if get_origin(type_) is Annotated:
        inner, mark = get_args(type_)[:2]
        return classes_of(mark.item if isinstance(mark, OneOrMore) else inner, revision)
    if is_union(type_):
        return [cls for choice in get_args(type_) for cls in classes_of(choice, revision)]
    if not isinstance(type_, type) or not issubclass(type_, Payload):
        return []
    if vars(type_).get("CHOICE") is not None:
        return [cls for child in type_.__subclasses__() for cls in classes_of(child, revision)]
    return [type_] if type_.SINCE <= revision <= type_.UNTIL else []


def places(
    type_: Any, revision: Revision, wrap: Wrap, seen: frozenset[Any] = frozenset()
) -> Iterator[tuple[str, Wrap]]:
    """Yield each place inside a type where a value can stand, with the way to put it there."""
    bare = without_null(type_)
    if get_origin(bare) is tuple:
        inside = places(get_args(bare)[0], revision, lambda value: wrap([value]), seen)
        yield from ((f"[].{name}", inner) for name, inner in inside)
    elif get_origin(bare) is Mapping:
        inside = places(get_args(bare)[1], revision, lambda value: wrap({"a": value}), seen)
        yield from ((f"{{}}.{name}", inner) for name, inner in inside)
    for cls in classes_of(type_, revision):
        if cls in seen:
            continue
        raw = sample(cls, revision)
        yield f"{cls.__name__} itself", partial(_beside, wrap, raw)
        for member in members(cls):
            if member.exists_in(revision):
                put = partial(_put, wrap, raw, member.name)
                yield f"{cls.__name__}.{member.name}", put
                inside = places(member.type_in(revision), revision, put, seen | {cls})
                yield from ((f"{cls.__name__}.{member.name}.{name}", inner) for name, inner in inside)


def _beside(wrap: Wrap, raw: dict[str, Any], value: Any) -> Any:
    return wrap({**value, **raw} if isinstance(value, dict) else value)


def _put(wrap: Wrap, raw: dict[str, Any], name: str, value: Any) -> Any:
    return wrap({**raw, name: value})


PARTS: list[Any] = [0, "a", {}, [[]], {"a": 0}, {"type": "text"}, {"type": "x"}, {"name": "a"}, {"uri": "a:b"}]


def fillings() -> Iterator[Any]:
    """Yield values filled with small parts: as many as are read, and as many as are decoded one by one."""
    for part in PARTS:
        text = json.dumps(part)
        values = 1 + sum(text.count(mark) for mark in ",:[{")
        for count in (VALUES * 9 // 10 // (values + 1), ITEMS - 5):
            yield [part] * count
            yield {f"{number:06x}": part for number in range(count)}


def read(cls: type[Any], revision: Revision, text: bytes) -> None:
    message = jsonrpc.parse(text, VALUES)
    if isinstance(message, jsonrpc.Request):
        with suppress(InvalidMessage):
            codec(revision).decode(message.params, cls, BoundedOddities(ITEMS))


def encoded(params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "x", "params": params}).encode()


CASES = [(revision, name) for revision in REVISIONS for name in roots(revision)]


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize(("revision", "name"), CASES, ids=[f"{revision}-{name}" for revision, name in CASES])
def test_no_member_makes_a_message_expensive(revision: Revision, name: str) -> None:
    cls = roots(revision)[name]
    text = encoded({**sample(cls, revision), "text": "a" * SIZE})
    read(cls, revision, text)
    usual = steps_of(partial(read, cls, revision, text))
    worst = max(
        (steps_of(partial(read, cls, revision, encoded(wrap(value)))) - usual, place, repr(value)[:40])
        for place, wrap in places(cls, revision, lambda value: value)
        for value in fillings()
    )
    assert worst[0] < MOST_STEPS, worst


def test_few_of_the_odd_members_of_a_message_are_told() -> None:
    tool = {"name": "a", "inputSchema": {"type": "object"}, "title": 1}
    odd = BoundedOddities()
    codec(REV_2025_11_25).decode({"tools": [tool] * 1000}, ListToolsResult, odd)
    assert len(odd) == 20


def test_payloads_of_all_kinds_are_filled() -> None:
    found = {
        place
        for revision in REVISIONS
        for cls in roots(revision).values()
        for place, _ in places(cls, revision, lambda value: value)
    }
    assert {
        "ListToolsResult.tools",
        "ListToolsResult.tools.[].Tool.icons.[].Icon.sizes",
        "CallToolResult.content.[].TextContent.annotations.Annotations.audience",
        "InitializeRequest.capabilities.ClientCapabilities.experimental",
    } <= found


@pytest.mark.parametrize("part", PARTS, ids=json.dumps)
@pytest.mark.parametrize("kind", [list, dict])
def test_no_message_takes_more_memory_than_eight_times_the_longest(part: Any, kind: type) -> None:
    most, longest = VALUES * 100, SIZE * 100
    each = len(json.dumps([part, part] if kind is list else {"000000": part, "000001": part})) // 2
    for count in (most // 4, most, longest // each):
        whole: Any = [part] * count if kind is list else {f"{number:06x}": part for number in range(count)}
        text = encoded(whole)
        assert peak_memory(partial(jsonrpc.parse, text, most)) < 8 * longest


HEAD = b"POST /mcp HTTP/1.1\r\nhost: a\r\n"
TINY = {
    "message": (b"", frame(Opcode.TEXT, b"", None)),
    "ping": (b"", frame(Opcode.PING, b"", None)),
    "pong": (b"", frame(Opcode.PONG, b"", None)),
    "fragment": (bytes([Opcode.TEXT, 0]), bytes([Opcode.CONTINUATION, 0])),
}


@pytest.mark.parametrize("name", TINY)
def test_read_full_of_the_shortest_frames_takes_bounded_work(name: str) -> None:
    first, each = TINY[name]
    socket = WebSocket(Role.CLIENT, WebSocketOptions(), max_bytes=SIZE, now=0.0, entropy=bytes)
    heard = 0

    def play() -> None:
        nonlocal heard
        socket.receive_data(first + each * (READ // len(each)), 0.0)
        while socket.next_event() is not None:
            heard += 1
        socket.data_to_send(0.0)

    assert steps_of(play) < MOST_STEPS_OF_A_READ
    assert heard >= READ // len(each)


@pytest.mark.parametrize("parser", ["h11", "httptools"])
@pytest.mark.parametrize(
    ("first", "each", "last"),
    [
        (HEAD + b"transfer-encoding: chunked\r\n\r\n", b"1\r\na\r\n", b"0\r\n\r\n"),
        (HEAD, b"a:\r\n", b"\r\n"),
        (b"", b"GET / HTTP/1.1\r\nhost:\r\n\r\n", b""),
    ],
    ids=["chunks", "header fields", "requests"],
)
def test_read_full_of_the_shortest_parts_of_requests_takes_bounded_work(
    first: bytes, each: bytes, last: bytes, parser: Any
) -> None:
    parts = new_parser(parser, RECEIVE_SIZE)
    ends = 0

    def play() -> None:
        nonlocal ends
        parts.feed(first + each * (READ // len(each)) + last)
        while (event := parts.next_event()) is not None:
            if event is ParserMark.END:
                ends += 1
                parts.next_cycle()

    assert steps_of(play) < MOST_STEPS_OF_A_READ
    assert ends == (1 if first else READ // len(each))


def _requests(flags: int, count: int = 200) -> bytes:
    """Return the heads of that many requests, as short as fields that were sent before make them.

    At most 100 may be open.
    """
    encoder = Encoder()
    fields = [*PSEUDO, (":authority", "localhost")]
    heads = (http2_frame(HEADERS, 2 * each + 1, encoder.encode(fields), END_HEADERS | flags) for each in range(count))
    return b"".join(heads)


OPENED = http2_frame(HEADERS, 1, GET, END_HEADERS)
CLOSED = OPENED + http2_frame(RST_STREAM, 1, bytes(4))
FRAMES: dict[str, tuple[bytes, bytes, int | None]] = {
    "PING": (b"", http2_frame(PING, 0, bytes(8)), CALM),
    "PING that answers": (b"", http2_frame(PING, 0, bytes(8), 1), CALM),
    "SETTINGS": (b"", http2_frame(SETTINGS), CALM),
    "SETTINGS of many windows": (
        _requests(0, 100),
        http2_frame(SETTINGS, 0, (b"\0\4\0\0\x40\0" + b"\0\4\0\0\x50\0") * 80),
        CALM,
    ),
    "SETTINGS that answers": (b"", http2_frame(SETTINGS, 0, b"", 1), CALM),
    "WINDOW_UPDATE": (OPENED, http2_frame(WINDOW_UPDATE, 0, b"\0\0\0\1"), CALM),
    "WINDOW_UPDATE of a stream": (OPENED, http2_frame(WINDOW_UPDATE, 1, b"\0\0\0\1"), CALM),
    "RST_STREAM": (CLOSED, http2_frame(RST_STREAM, 1, bytes(4)), CALM),
    "PRIORITY": (b"", http2_frame(PRIORITY, 1, bytes(5)), CALM),
    "empty DATA": (OPENED, http2_frame(DATA, 1), CALM),
    "padded DATA": (OPENED, http2_frame(DATA, 1, b"\0", 8), CALM),
    "shortest DATA without a price": (OPENED, http2_frame(DATA, 1, bytes(256)), None),
    "DATA of a closed stream": (CLOSED, http2_frame(DATA, 1, b"a"), CALM),
    "last DATA of a closed stream": (CLOSED, http2_frame(DATA, 1, b"", END_STREAM), CALM),
    "empty CONTINUATION": (http2_frame(HEADERS, 1, GET), http2_frame(CONTINUATION, 1), PROTOCOL_ERROR),
    "trailers": (OPENED, http2_frame(HEADERS, 1, b"\x90", END_HEADERS | END_STREAM), CALM),
    "unknown": (b"", http2_frame(200), CALM),
    "requests": (b"", _requests(END_STREAM), PROTOCOL_ERROR),
    "requests that go on": (b"", _requests(0), PROTOCOL_ERROR),
    "requests that are reset": (b"", b"".join(map(rapid_resets, range(100))), CALM),
}
"""What comes first, what fills the rest of a read, and with what code the connection ends over that."""


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize("name", FRAMES)
def test_read_full_of_the_cheapest_frames_of_http2_takes_bounded_work(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = 16  # of a read, and of what the frames of one may cost
    monkeypatch.setattr(FrameBudget, "MOST", FrameBudget.MOST / part)
    streams: Http2Streams

    def wake(exchange: Hashable) -> None:
        streams.wake(exchange)

    host = HttpHost(
        Server("s", "1"),
        ManualRuntime(),
        clock=float,
        on_ready=wake,
        on_deadline=lambda _: None,
        report=lambda *_: None,
    )
    streams = Http2Streams(
        host,
        "owner",
        head_bytes=65536,
        timeouts=HttpTimeouts(),
        principal=None,
        on_request=None,
        send_now=lambda: None,
        on_given_up=lambda: None,
    )
    first, each, end = FRAMES[name]
    streams.receive(PREFACE + http2_frame(SETTINGS) + first)
    streams.data_to_send()

    def play() -> None:
        streams.receive((each * (RECEIVE_SIZE // part // len(each) + 1))[: max(RECEIVE_SIZE // part, len(each))])
        while streams.data_to_send():
            pass

    assert steps_of(play) < MOST_STEPS_OF_A_READ * 64 // part
    assert streams.end == end


@pytest.mark.parametrize("line", [b"\n", b":\n", b"data\n", b"data\n\n", b"id\n", b"retry:1\n"])
def test_read_full_of_the_shortest_lines_of_a_stream_takes_bounded_work(line: bytes) -> None:
    parser = SseParser()
    assert steps_of(lambda: parser.receive(line * (READ // len(line)))) < MOST_STEPS_OF_A_READ


# Growth: four times the input takes four times the work.


def growth(play: Callable[[int], Any]) -> float:
    """Return how many times more work a play of 1024 is than one of 256."""
    play(1)  # what is imported and remembered is not part of it
    return steps_of(partial(play, 1024)) / steps_of(partial(play, 256))


@pytest.mark.parametrize("line", [b"\n", b":\n", b"data\n", b"data\n\n", b"id\n", b"retry:1\n"])
def test_lines_of_a_stream_take_work_in_proportion(line: bytes) -> None:
    def play(count: int) -> None:
        events = SseParser().receive(line * count)
        assert len(events) == (count if line == b"data\n\n" else 0)

    assert growth(play) < 5


def sse_reader() -> Callable[[bytes], Any]:
    return SseParser().receive


def line_reader() -> Callable[[bytes], Any]:
    return LineFramer(max_line_bytes=SIZE).receive


def http_reader(parser: Any) -> Callable[[bytes], Any]:
    parts = new_parser(parser, RECEIVE_SIZE)

    def receive(data: bytes) -> None:
        parts.feed(data)
        while parts.next_event() is not None:
            pass

    return receive


def websocket_reader() -> Callable[[bytes], Any]:
    socket = WebSocket(Role.CLIENT, WebSocketOptions(), max_bytes=SIZE, now=0.0, entropy=bytes)

    def receive(data: bytes) -> None:
        socket.receive_data(data, 0.0)
        while socket.next_event() is not None:
            pass

    return receive


READERS: dict[str, tuple[Callable[[], Callable[[bytes], Any]], Callable[[int], bytes]]] = {
    "line": (line_reader, lambda size: b"x" * size),
    "line of events": (sse_reader, lambda size: b"data:" + b"x" * size),
    "lines of an event": (sse_reader, lambda size: b"data\n" * (size // 5)),
    "head for h11": (partial(http_reader, "h11"), lambda size: HEAD + b"a:" + b"x" * size),
    "head for httptools": (partial(http_reader, "httptools"), lambda size: HEAD + b"a:" + b"x" * size),
    "frame": (websocket_reader, lambda size: frame(Opcode.TEXT, b"x" * size, None)),
    "fragments": (
        websocket_reader,
        lambda size: bytes([Opcode.TEXT, 0]) + bytes([Opcode.CONTINUATION, 0]) * (size // 2),
    ),
}
"""By name: a reader, and a function that returns unfinished input of a given size for it."""


@pytest.mark.parametrize("name", READERS)
def test_input_that_comes_byte_by_byte_takes_work_in_proportion(name: str) -> None:
    reader, text = READERS[name]

    def play(size: int) -> None:
        receive = reader()
        for byte in text(size):
            receive(bytes([byte]))

    assert growth(play) < 5
