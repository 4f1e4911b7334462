"""As ``relay``, on asyncio: passes bytes on, stops passing them on, breaks connections."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

SMALL = 32768
"""Bytes that the system, and asyncio, hold for a socket: a stalled connection is to be full soon."""

Streams: TypeAlias = "tuple[asyncio.StreamReader, asyncio.StreamWriter]"


class AsyncioRelay:
    """Connections that are passed on."""

    def __init__(self, dial: Callable[[], Awaitable[Streams]]) -> None:
        self._dial = dial
        self._passing = asyncio.Event()
        self._passing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def lose(self) -> None:
        """Break every connection that there is, without a word."""
        for writer in self._writers:
            with suppress(OSError):
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
        self._writers.clear()
        self._passing.set()
        await asyncio.sleep(0)

    def stall(self) -> None:
        """Pass nothing on."""
        self._passing.clear()

    def resume(self) -> None:
        """Go on."""
        self._passing.set()

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry a connection that was accepted."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(OSError, asyncio.CancelledError):
            far_reader, far_writer = await self._dial()
            self._writers |= {writer, far_writer}
            for each in (writer, far_writer):
                hold_little(each)
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
            self._writers -= {writer, far_writer}
            for each in (writer, far_writer):
                each.close()
        self._tasks.discard(task)

    async def close(self) -> None:
        """Break what is left."""
        await self.lose()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError, RuntimeError):  # the latter is uvloop's, about a transport that was aborted
            while data := await source.read(SMALL):
                await self._passing.wait()
                sink.write(data)
                await sink.drain()
            sink.write_eof()
            return
        # One direction is broken: so is the other.
        sink.transport.abort()


def hold_little(writer: asyncio.StreamWriter) -> None:
    """Have the system, and asyncio, hold no more than they must for a socket."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, SMALL)
    writer.transport.set_write_buffer_limits(SMALL)


@asynccontextmanager
async def relaying(
    dial: Callable[[], Awaitable[Streams]], path: str | None = None
) -> AsyncIterator[tuple[AsyncioRelay, int]]:
    """Pass on connections to a port of this machine, or a Unix socket, for a block; give the relay, and its port."""
    relay = AsyncioRelay(dial)
    if path is None:
        listening = await asyncio.start_server(relay.pass_on, "127.0.0.1", 0, limit=SMALL)
    else:
        listening = await asyncio.start_unix_server(relay.pass_on, path, limit=SMALL)
    try:
        yield relay, 0 if path is not None else listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        await relay.close()
