"""What an HTTP client holds for its server is counted, bounded, and slows the server down (P6, P14)."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from webtalk import CALL, Asked, WebTalk

from mcpio.engine.channel import BACKLOG
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.errors import ConnectionLost
from mcpio.events import CloseReason, ConnectionClosed, ResponseReceived
from mcpio.framing.sse import SseParser

PING = b'data: {"jsonrpc":"2.0","id":1,"method":"ping"}\n\n'
UNKNOWN = b'data: {"jsonrpc":"2.0","id":1,"method":"what/is/this"}\n\n'


def talking(limits: Limits) -> tuple[WebTalk, Asked]:
    """Return a client, and a call of its whose answer is a stream."""
    talk = WebTalk(options=Options(limits=limits))
    talk.open()
    talk.ask(CALL, timeout=None)
    asked = talk.requests[-1]
    talk.stream(asked)
    talk.step()
    return talk, asked


@pytest.mark.parametrize("owed", [PING, UNKNOWN])
def test_a_stream_is_not_read_while_the_server_does_not_take_the_answers(owed: bytes) -> None:
    talk, asked = talking(Limits(high_water=10_000))
    sent = 0
    while talk.machine.wants_read(asked.number):
        talk.body(asked, owed)
        talk.step()
        sent += 1
    assert 10 < sent < 30
    assert talk.connection.held.total > 10_000
    # The server takes one answer after the other, and then there is room again.
    taken = 0
    while not talk.machine.wants_read(asked.number):
        answer = talk.requests[-1]
        assert talk.machine.wants_read(answer.number)
        talk.answer(answer, 202)
        taken += 1
    assert 0 < taken < sent
    while talk.requests[-1].method == "POST" and talk.requests[-1] != asked and taken < sent:
        talk.answer(talk.requests[-1], 202)
        taken += 1
    talk.event(asked, asked.result)
    assert len(talk.found(ResponseReceived)) == 1
    assert talk.connection.held.unwritten == 0


def test_flooding_server_is_disconnected_as_slow_consumer() -> None:
    talk, asked = talking(Limits(high_water=10_000, queued_bytes=50_000))
    for _ in range(200):
        talk.body(asked, PING)
        talk.step()
    (closed,) = talk.found(ConnectionClosed)
    assert closed.reason is CloseReason.SLOW_CONSUMER
    assert isinstance(talk.error(asked.json["id"]), ConnectionLost)
    assert talk.machine.wants_read(asked.number)  # to its end, which nothing is made of


def test_counted_bytes_match_the_waiting_output() -> None:
    talk, asked = talking(Limits())
    # The first few may take more than they count: see ``BACKLOG``.
    for _ in range(200):
        talk.body(asked, PING)
        talk.step()
    talk.events.clear()
    before, counted = _traced(), talk.connection.held.unwritten
    for _ in range(1000):
        talk.body(asked, PING)
        talk.step()
    talk.events.clear()
    used, counted = _traced() - before, talk.connection.held.unwritten - counted
    assert used <= counted <= 3 * used


# Messages that are not complete


@pytest.mark.parametrize(
    "pieces",
    [
        [b"data: " + b"x" * 60_000] + [b"x" * 60_000] * 10,
        [b"data: "] + [b"xy"] * 3_000,
        [b"data: " + b"x" * 9_000 + "\N{PARTY POPPER}".encode()] * 20,
        [b"data: xy\n"] * 3_000,
        [b"data\n"] * 3_000,
        [b"id: " + b"x" * 200_000 + b"\n\n"],
        [b"event: " + b"x" * 200_000 + b"\n"],
    ],
)
def test_the_count_of_an_unfinished_event_is_that_of_its_memory(pieces: list[bytes]) -> None:
    def collect() -> SseParser:
        parser = SseParser()
        for piece in pieces:
            parser.receive(bytes(bytearray(piece)))
        return parser

    collect()
    used, parser = _used(collect)
    assert used <= 1.15 * parser.held_bytes + 3000
    assert parser.held_bytes <= 1.5 * used + 1000
    parser.receive(b"\n\ndata: \n\nid: 1\n\n")
    assert parser.held_bytes < 1000


def test_too_large_event_holds_no_memory() -> None:
    parser = SseParser(1000)
    parser.receive(b"data: " + b"x" * 600 + b"\ndata: " + b"x" * 600)
    assert parser.is_too_large
    assert parser.held_bytes < 1000


@pytest.mark.parametrize("streams", [True, False])
def test_beyond_the_limit_only_the_longest_unfinished_message_is_read_on(streams: bool) -> None:
    talk = WebTalk(options=Options(limits=Limits(peer_bytes=6 * BACKLOG)))
    talk.open()
    calls = []
    for _ in range(3):
        talk.ask(CALL, timeout=None)
        calls.append(talk.requests[-1])
        talk.head(calls[-1], 200, "text/event-stream" if streams else "application/json")
    short, long, longest = calls
    texts = [_answer(asked, size, streams) for asked, size in zip(calls, (10, 2 * BACKLOG, 4 * BACKLOG), strict=True)]
    talk.body(short, texts[0][:20])
    talk.body(long, texts[1][: BACKLOG + 1])
    assert all(talk.machine.wants_read(each.number) for each in calls)
    talk.body(longest, texts[2][: 2 * BACKLOG])
    assert [talk.machine.wants_read(each.number) for each in calls] == [True, False, True]
    talk.body(longest, texts[2][2 * BACKLOG :])
    talk.end(longest)
    assert talk.machine.wants_read(long.number)
    talk.body(long, texts[1][BACKLOG + 1 :])
    talk.end(long)
    talk.body(short, texts[0][20:])
    talk.end(short)
    assert len(talk.found(ResponseReceived)) == 3


def _answer(asked: Asked, size: int, is_event: bool) -> bytes:
    result = {"content": [{"type": "text", "text": "x" * size}]}
    text = json.dumps({"jsonrpc": "2.0", "id": asked.json["id"], "result": result}).encode()
    return b"data: %b\n\n" % text if is_event else text


def _traced() -> int:
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _used(make: Callable[[], SseParser]) -> tuple[int, SseParser]:
    """Return how many bytes something takes that is made, and it."""
    before = _traced()
    made = make()
    return _traced() - before, made


@pytest.fixture(autouse=True)
def _tracing_ends() -> Iterator[None]:
    yield
    tracemalloc.stop()
