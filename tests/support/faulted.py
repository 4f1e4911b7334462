"""What carries bad input: a server or a client of ours at one end, and at the other one that a test plays by hand."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pytest
import streams
import trio
import trio.testing
from faults import End
from websocketends import WebSockets

from mcpio import Client, Server
from mcpio.asyncio import open_streams
from mcpio.trio import open_tcp, open_transport, open_unix, serve, serve_tcp, serve_unix

__all__ = ["CARRIERS", "SOCKETS", "Carrier", "Open", "each_carrier", "each_carrier_of_messages", "each_socket"]

Open: TypeAlias = Callable[..., AbstractAsyncContextManager[Client]]
"""Takes the options of a client."""
Play: TypeAlias = Callable[[Any], Awaitable[None]]
"""Plays a server by its end of the connection, which is closed then. It may raise ``EOFError`` at the client's end."""


class Carrier(Protocol):
    """A loop, and what is between the two ends. Times pass as soon as nothing moves."""

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        """Run a test."""

    def served(self, server: Server, directory: Path) -> AbstractAsyncContextManager[End]:
        """Serve for a block, and give the client's end. Nothing was said on it."""

    def opened(self, play: Play, directory: Path) -> AbstractAsyncContextManager[Open]:
        """Have a server played to one client, which is to be opened in the block."""


class TrioStreams:
    """Trio's streams in memory, under the drivers that take any stream."""

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))

    @asynccontextmanager
    async def served(self, server: Server, directory: Path) -> AsyncIterator[End]:
        near, far = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, server, far)
            yield near
            await near.aclose()

    @asynccontextmanager
    async def opened(self, play: Play, directory: Path) -> AsyncIterator[Open]:
        near, far = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_played, play, far)
            yield partial(open_transport, near)


class AsyncioStreams:
    """Streams of asyncio, over a pair of sockets."""

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        streams.run(main)

    @asynccontextmanager
    async def served(self, server: Server, directory: Path) -> AsyncIterator[End]:
        near, far = await streams.joined()
        async with streams.served(server, far):
            yield _AsyncioEnd(near)
            await streams.Raw(near).close()

    @asynccontextmanager
    async def opened(self, play: Play, directory: Path) -> AsyncIterator[Open]:
        near, far = await streams.joined()
        async with asyncio.TaskGroup() as group:
            group.create_task(_played(play, _AsyncioEnd(far)))
            yield partial(open_streams, *near)


class _AsyncioEnd:
    def __init__(self, ends: streams.Streams) -> None:
        self._reader, self._writer = ends
        self.aclose = streams.Raw(ends).close

    async def send_all(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def receive_some(self, max_bytes: int) -> bytes:
        return await self._reader.read(max_bytes)

    async def send_eof(self) -> None:
        self._writer.write_eof()


class Sockets:
    """Sockets that listen, over TCP or on the path of a Unix socket."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.02))

    @asynccontextmanager
    async def served(self, server: Server, directory: Path) -> AsyncIterator[trio.SocketStream]:
        async with trio.open_nursery() as nursery:
            if self.kind == "tcp":
                listening = await nursery.start(serve_tcp, server)
                stream = await trio.open_tcp_stream(listening.host, listening.port)
            else:
                await nursery.start(serve_unix, server, directory / "s")
                stream = await trio.open_unix_socket(directory / "s")
            yield stream
            await stream.aclose()
            nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def opened(self, play: Play, directory: Path) -> AsyncIterator[Open]:
        listener = trio.socket.socket(trio.socket.AF_INET if self.kind == "tcp" else trio.socket.AF_UNIX)
        with listener:
            await listener.bind(("127.0.0.1", 0) if self.kind == "tcp" else str(directory / "s"))
            listener.listen()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._accept, listener, play)
                yield self.opener(listener.getsockname())

    def opener(self, address: Any) -> Open:
        """Return what opens a client to an address, as sockets have it."""
        return partial(open_tcp, *address[:2]) if self.kind == "tcp" else partial(open_unix, address)

    async def _accept(self, listener: trio.socket.SocketType, play: Play) -> None:
        await _played(play, trio.SocketStream((await listener.accept())[0]))


async def _played(play: Play, end: End) -> None:
    try:
        with suppress(EOFError):
            await play(end)
    finally:
        await end.aclose()


SOCKETS = {"tcp": Sockets("tcp"), "unix": Sockets("unix")}
CARRIERS: dict[str, Carrier] = {"trio": TrioStreams(), "asyncio": AsyncioStreams(), **SOCKETS}


def _each(carriers: Mapping[str, Carrier]) -> pytest.MarkDecorator:
    on_posix = pytest.mark.skipif(os.name != "posix", reason="there are no Unix sockets")
    rows = [pytest.param(carrier, id=name, marks=[on_posix] * (name == "unix")) for name, carrier in carriers.items()]
    return pytest.mark.parametrize("over", rows)


each_socket = _each(SOCKETS)
each_carrier = _each(CARRIERS)
each_carrier_of_messages = _each({**CARRIERS, "websocket": WebSockets()})
"""For what does not depend on how messages are kept apart."""
