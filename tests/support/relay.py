"""What stands between a client's socket and a server's: passes bytes on, stops passing them on, breaks connections."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import trio

SMALL = 32768
"""Bytes that the system holds for a socket: a stalled connection is to be full soon."""


class Relay:
    """Connections that are passed on."""

    def __init__(self, listener: trio.SocketListener, dial: Callable[[], Awaitable[trio.SocketStream]]) -> None:
        self._listener = listener
        self._dial = dial
        self._passing = trio.Event()
        self._passing.set()
        self._streams: set[trio.SocketStream] = set()

    async def lose(self) -> None:
        """Break every connection that there is, without a word."""
        for stream in self._streams:
            with suppress(OSError):
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            stream.socket.close()
        self._streams.clear()
        self._passing.set()
        await trio.lowlevel.checkpoint()

    def stall(self) -> None:
        """Pass nothing on."""
        self._passing = trio.Event()

    def resume(self) -> None:
        """Go on."""
        self._passing.set()

    async def run(self) -> None:
        """Accept connections until cancelled."""
        await trio.serve_listeners(self._pass_on, [self._listener])

    async def _pass_on(self, near: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            far = await self._dial()
            self._streams |= {near, far}
            for stream in (near, far):
                hold_little(stream)
            async with near, far, trio.open_nursery() as nursery:
                nursery.start_soon(self._pump, near, far)
                nursery.start_soon(self._pump, far, near)
            self._streams -= {near, far}

    async def _pump(self, source: trio.SocketStream, sink: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await source.receive_some(SMALL):
                await self._passing.wait()
                await sink.send_all(data)
            await sink.send_eof()
            return
        # One direction is broken: so is the other.
        for stream in (source, sink):
            await trio.aclose_forcefully(stream)


def hold_little(stream: trio.SocketStream) -> None:
    """Have the system hold no more than it must for a socket."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        stream.setsockopt(socket.SOL_SOCKET, option, SMALL)


@asynccontextmanager
async def relaying(dial: Callable[[], Awaitable[Any]], path: str | None = None) -> AsyncIterator[tuple[Relay, int]]:
    """Pass on connections to a port of this machine, or a Unix socket, for a block; give the relay, and its port."""
    family = trio.socket.AF_INET if path is None else trio.socket.AF_UNIX
    listening = trio.socket.socket(family, trio.socket.SOCK_STREAM)
    await listening.bind(("127.0.0.1", 0) if path is None else path)
    listening.listen(128)
    relay = Relay(trio.SocketListener(listening), dial)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(relay.run)
        try:
            yield relay, 0 if path is not None else listening.getsockname()[1]
        finally:
            nursery.cancel_scope.cancel()
