"""The loop for asyncio that the docs print carries a connection through whatever the peer and the network do."""

from __future__ import annotations

import asyncio
import runpy
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest
from tree import ROOT

from mcpio import (
    ClientConnection,
    CloseReason,
    ConnectionClosed,
    Event,
    Implementation,
    Initialized,
    Limits,
    Negotiated,
    Options,
    RequestFailed,
    RequestReceived,
    RequestTimeout,
    ResponseReceived,
    ServerConnection,
)
from mcpio.errors import OutputFull
from mcpio.types import CustomRequest

EXAMPLE = str(ROOT / "docs" / "examples" / "asyncio_embedding.py")
run: Callable[..., Awaitable[None]] = runpy.run_path(EXAMPLE)["run"]

ECHO = "x/echo"


class End:
    """One side under ``run``: it answers whatever it is asked, and keeps what it hears."""

    def __init__(self, conn: ClientConnection | ServerConnection) -> None:
        self.conn = conn
        self.wake = asyncio.Event()
        self.events: list[Event] = []
        self._changed = asyncio.Event()

    def on_event(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, RequestReceived):
            self.conn.send_result(event.id, event.request.params)
        self._changed.set()

    async def carry(self, sock: socket.socket) -> asyncio.Transport | asyncio.WriteTransport:
        reader, writer = await asyncio.open_connection(sock=sock)
        with closing(writer):
            await run(self.conn, reader, writer, self.on_event, self.wake)
        return writer.transport

    def ask(self, cookie: int, text: str = "", timeout: float = 60) -> None:
        """Do as a task does that knows nothing of the loop."""
        request = CustomRequest(ECHO, {"text": text})
        self.conn.send_request(request, now=now(), timeout=timeout, cookie=cookie)
        self.wake.set()

    def close(self, grace: float = 5) -> None:
        self.conn.close(now(), grace=grace)
        self.wake.set()

    def heard(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def hears(self, kind: type[Any], count: int = 1) -> list[Any]:
        while len(self.heard(kind)) < count:
            self._changed.clear()
            await self._changed.wait()
        return self.heard(kind)


def client() -> End:
    conn = ClientConnection(Implementation("client", "1"), options=Options(custom_methods=frozenset({ECHO})))
    conn.send_initialize(now=now())
    return End(conn)


def server(limits: Limits = Limits()) -> End:  # noqa: B008 - it is frozen
    options = Options(custom_methods=frozenset({ECHO}), limits=limits)
    return End(ServerConnection(Implementation("server", "1"), options=options))


def now() -> float:
    return asyncio.get_running_loop().time()


def narrow() -> tuple[socket.socket, socket.socket]:
    """Return two ends with little room between them."""
    ends = socket.socketpair()
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return ends


async def handshake(sock: socket.socket) -> None:
    """Open a conversation by hand, from the client's side."""
    loop = asyncio.get_running_loop()
    sock.setblocking(False)
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "hand", "version": "1"}}
    opening = f'{{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {params}}}\n'.replace("'", '"')
    await loop.sock_sendall(sock, opening.encode())
    await loop.sock_recv(sock, 65536)
    await loop.sock_sendall(sock, b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')


def test_program_prints_the_documented_output(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(EXAMPLE, run_name="__main__")
    assert capsys.readouterr().out == "echo speaks 2026-07-28\nit says: hello\n"


def test_two_peers_flood_each_other_and_every_request_has_one_answer() -> None:
    count = 500

    async def flood(end: End, kind: type[Event]) -> list[int]:
        await end.hears(kind)
        for cookie in range(count):
            end.ask(cookie, "x" * 1000)
        return [event.cookie for event in await end.hears(ResponseReceived, count)]

    async def main() -> None:
        near, far = client(), server()
        here, there = narrow()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(near.carry(here))
            tasks.create_task(far.carry(there))
            cookies = await asyncio.gather(flood(near, Negotiated), flood(far, Initialized))
            near.close()
        assert list(cookies) == [list(range(count))] * 2
        assert near.heard(RequestFailed) + far.heard(RequestFailed) == []

    asyncio.run(main())


def test_a_call_from_another_task_goes_out_at_once() -> None:
    async def main() -> None:
        near, far = client(), server()
        here, there = socket.socketpair()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(near.carry(here))
            tasks.create_task(far.carry(there))
            await near.hears(Negotiated)
            await asyncio.sleep(0)  # both loops wait now
            near.ask(7, "from outside")
            (answer,) = await near.hears(ResponseReceived)
            assert (answer.cookie, answer.result) == (7, {"text": "from outside"})
            near.close()

    asyncio.run(main())


def test_peer_that_stops_reading_delays_neither_input_nor_deadlines() -> None:
    async def main() -> None:
        far = server()
        here, there = narrow()
        async with asyncio.TaskGroup() as tasks:
            over = tasks.create_task(far.carry(there))
            await handshake(here)
            await far.hears(Initialized)
            for cookie in range(300):
                far.ask(cookie, "x" * 1000)
            far.ask(300, timeout=0)
            (failed,) = await far.hears(RequestFailed)
            assert (failed.cookie, type(failed.error)) == (300, RequestTimeout)
            await asyncio.get_running_loop().sock_sendall(here, b'{"jsonrpc": "2.0", "id": 2, "method": "x/echo"}\n')
            await far.hears(RequestReceived)
            far.close(grace=0)
            transport = await over
            assert far.events[-1] == ConnectionClosed(CloseReason.CLOSED, None)
            assert transport.get_write_buffer_size() > 0
            transport.abort()
        here.close()

    asyncio.run(main())


def test_the_output_for_a_peer_that_stops_reading_is_bounded() -> None:
    async def main() -> None:
        far = server(Limits(queued_bytes=100_000))
        here, there = narrow()
        async with asyncio.TaskGroup() as tasks:
            over = tasks.create_task(far.carry(there))
            await handshake(here)
            await far.hears(Initialized)
            cookie = 0
            is_full = False
            while not is_full and cookie < 10_000:
                try:
                    far.ask(cookie, "x" * 1000)
                    cookie += 1
                except OutputFull:
                    is_full = True
                await asyncio.sleep(0)
            assert is_full
            assert far.conn.stats.queued_bytes < 100_000
            far.close()
            (await over).abort()
            assert len(far.heard(RequestFailed)) == cookie
        here.close()

    asyncio.run(main())


@pytest.mark.parametrize("unread", [0, 100_000])
def test_closing_program_ends_though_the_peer_neither_reads_nor_closes(unread: int) -> None:
    async def main() -> None:
        far = server()
        here, there = narrow()
        async with asyncio.TaskGroup() as tasks:
            over = tasks.create_task(far.carry(there))
            await handshake(here)
            await far.hears(Initialized)
            if unread:
                far.ask(1, "x" * unread)
            far.close()
            (await over).abort()
            assert far.events[-1] == ConnectionClosed(CloseReason.CLOSED, None)
        here.close()

    asyncio.run(main())


def test_peer_sees_the_end_before_the_writer_is_closed() -> None:
    async def main() -> None:
        near = client()
        here, there = socket.socketpair()
        near.close()
        near_reader, near_writer = await asyncio.open_connection(sock=here)
        await run(near.conn, near_reader, near_writer, near.on_event, near.wake)
        reader, writer = await asyncio.open_connection(sock=there)
        with closing(near_writer), closing(writer):
            assert (await reader.read()).count(b"\n") == 1

    asyncio.run(main())


@pytest.mark.parametrize("busy", [False, True])
def test_a_reset_ends_every_request_as_lost(busy: bool) -> None:
    async def main() -> None:
        far = server()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            here = socket.create_connection(listener.getsockname())
            there, _ = listener.accept()
        async with asyncio.TaskGroup() as tasks:
            over = tasks.create_task(far.carry(there))
            await handshake(here)
            await far.hears(Initialized)
            far.ask(1, "x" * 10_000_000 if busy else "")
            await asyncio.sleep(0)
            here.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            here.close()
            await over
        failed, closed = far.events[-2:]
        assert isinstance(failed, RequestFailed)
        assert isinstance(closed, ConnectionClosed)
        assert closed.reason is CloseReason.LOST
        assert isinstance(closed.cause, ConnectionError)
        assert failed.error.__cause__ is closed.cause

    asyncio.run(main())


def test_cancelled_loop_leaves_no_task() -> None:
    async def main() -> None:
        far = server()
        here, there = socket.socketpair()
        task = asyncio.create_task(far.carry(there))
        await handshake(here)
        await far.hears(Initialized)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}
        here.close()

    asyncio.run(main())
