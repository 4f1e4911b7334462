"""Every program of the docs that carries the engine in a loop of its own gets through what peers and networks do."""

from __future__ import annotations

import socket
from collections.abc import Callable
from threading import Thread

import asyncio_protocol
import gevent_sockets
import pytest
import qt_sockets
import selector_loop
import twisted_protocol
from ownloops import (
    PROGRAMS,
    Carried,
    Heard,
    Program,
    client,
    ends,
    initialize,
    initialized,
    qt,
    reset,
    server,
    threads,
    twisted,
)

from mcpio import (
    CloseReason,
    ConnectionClosed,
    ConnectionLost,
    Initialized,
    Negotiated,
    RequestFailed,
    RequestReceived,
    RequestTimeout,
)
from mcpio.errors import OutputFull

pytestmark = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)


@pytest.mark.parametrize("near", [client, server])
def test_64_concurrent_calls_are_answered_and_the_end_is_graceful(program: Program, near: Callable[[], Heard]) -> None:
    here, there = ends()
    tested = Carried(program, near(), here)
    other = Carried(threads, server() if near is client else client(), there)
    caller, called = (tested, other) if near is client else (other, tested)
    caller.app.hears(Negotiated)
    caller.ask(*range(64), text="x" * 100)
    answers = caller.app.outcomes(64)
    assert [answers[cookie]["cookie"] for cookie in range(64)] == list(range(64))
    caller.close()
    caller.join()
    called.join()
    assert caller.app.events[-1] == ConnectionClosed(CloseReason.CLOSED, None)
    assert isinstance(called.app.events[-1], ConnectionClosed)
    if called is not tested or program is not qt:  # Qt's ends are losses
        assert called.app.events[-1].reason is CloseReason.END_OF_FILE


def test_two_peers_flood_each_other(program: Program) -> None:
    count = 300
    here, there = ends(room=4096)
    near, far = Carried(program, client(), here), Carried(threads, server(), there)
    far.app.hears(Initialized)
    for each in (near, far):
        each.ask(*range(count), text="x" * 1000)
    for each in (near, far):
        answers = each.app.outcomes(count)
        assert [answers[cookie]["cookie"] for cookie in range(count)] == list(range(count))
    near.close()
    near.join()
    far.join()


def test_deadlines_fire_while_the_peer_is_quiet(program: Program) -> None:
    here, there = ends()
    near = Carried(program, client(), here)
    with there:
        initialized(there)
        near.app.hears(Negotiated)
        near.ask("patient")
        near.ask("hurried", timeout=0.01)
        (outcome,) = near.app.outcomes(1).items()
        assert outcome[0] == "hurried"
        assert isinstance(outcome[1], RequestTimeout)
        near.close()
        there.shutdown(socket.SHUT_WR)
        near.join()


def test_peer_that_stops_reading_delays_neither_input_nor_deadlines(program: Program) -> None:
    here, there = ends(room=4096)
    far = Carried(program, server(), there)
    with here:
        initialize(here)
        far.app.hears(Initialized)
        far.ask(*range(300), text="x" * 10_000)
        far.ask("hurried", timeout=0.01)
        assert isinstance(far.app.outcomes(1)["hurried"], RequestTimeout)
        here.sendall(b'{"jsonrpc": "2.0", "id": 2, "method": "x/echo"}\n')
        far.app.hears(RequestReceived)
        far.close(grace=0)
        closed = far.app.hears(ConnectionClosed)
        assert closed == ConnectionClosed(CloseReason.CLOSED, None)
        assert len(far.app.of(RequestFailed)) == 301
    far.join()


def test_output_for_a_peer_that_stops_reading_is_bounded(program: Program) -> None:
    here, there = ends(room=4096)
    far = Carried(program, server(queued_bytes=100_000), there)
    with here:
        initialize(here)
        far.app.hears(Initialized)
        asked = 0
        while not far.app.of(ConnectionClosed) and asked < 10_000:
            try:
                far.ask(asked, text="x" * 10_000)
            except OutputFull:
                break
            asked += 1
        assert 0 < asked < 10_000
        assert far.do(lambda: far.app.conn.stats.queued_bytes) < 100_000
    far.join()
    assert len(far.app.of(RequestFailed)) >= asked


def test_peer_that_sends_requests_and_does_not_read_is_not_read(program: Program) -> None:
    count, high_water = 1000, 50_000
    asked = b'{"jsonrpc":"2.0","id":%d,"method":"x/echo","params":{"text":"%s"}}\n'
    flood = b"".join(asked % (n, b"x" * 1000) for n in range(2, count))
    here, there = ends(room=16384)
    far = Carried(program, server(high_water=high_water), there)
    with here:
        initialize(here)
        asking = Thread(target=here.sendall, args=(flood,))
        asking.start()
        while far.do(lambda: far.app.conn.wants_read):
            pass
        for _ in range(200):  # turns in which it might go on reading
            far.do(lambda: None)
        assert asking.is_alive()
        assert high_water < far.do(lambda: far.app.conn.stats.queued_bytes) < 10 * high_water
        with here.makefile("rb") as lines:
            for n in range(2, count):
                assert next(lines).startswith(b'{"jsonrpc":"2.0","id":%d,"result":{"text":"xx' % n)
            asking.join()
            here.shutdown(socket.SHUT_WR)
            assert lines.read() == b""
    far.join()


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_reset_ends_every_request_as_lost(program: Program, is_busy: bool) -> None:
    here, there = ends(room=4096)
    far = Carried(program, server(), there)
    initialize(here)
    far.app.hears(Initialized)
    far.ask(1, 2, text="x" * 100_000 if is_busy else "")
    reset(here)
    far.join()
    failed, closed = far.app.of(RequestFailed), far.app.events[-1]
    assert isinstance(closed, ConnectionClosed)
    assert closed.reason is CloseReason.LOST
    assert type(closed.cause).__name__ in {
        "ConnectionResetError",
        "ConnectionError",
        "BrokenPipeError",
        "ConnectionLost",
    }
    assert [type(each.error) for each in failed] == [ConnectionLost] * 2
    causes = {each.error.__cause__ for each in failed}
    # epoll may wake Twisted between two steps of a reset in the kernel; it then tells the end of the input first.
    assert causes == {closed.cause} or (program is twisted and causes == {None})


def test_running_requests_answered_before_the_end(program: Program) -> None:
    here, there = ends()
    far = Carried(program, server(), there)
    far.app.answers = False
    with here:
        initialize(here)
        here.sendall(b'{"jsonrpc": "2.0", "id": 2, "method": "x/echo"}\n')
        asked = far.app.hears(RequestReceived)
        far.close()
        far.do(lambda: far.app.conn.send_result(asked.id, {"done": True}))
        with here.makefile("rb") as lines:
            assert [line.count(b'"done":true') for line in lines] == [1]
    far.join()
    assert far.app.events[-1] == ConnectionClosed(CloseReason.CLOSED, None)


@pytest.mark.parametrize("unread", [0, 100_000])
def test_closing_program_ends_though_the_peer_neither_reads_nor_closes(
    program: Program, unread: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (asyncio_protocol, gevent_sockets, selector_loop, twisted_protocol):
        monkeypatch.setattr(module, "LINGER", 0.01)
    monkeypatch.setattr(qt_sockets, "LINGER", 10)
    here, there = ends(room=4096)
    far = Carried(program, server(), there)
    with here:
        initialize(here)
        far.app.hears(Initialized)
        if unread:
            far.ask(1, text="x" * unread)
        far.close(grace=0.01)
        far.join()
    assert far.app.events[-1] == ConnectionClosed(CloseReason.CLOSED, None)
