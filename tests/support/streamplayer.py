"""Conversation scripts over real sockets: what an engine says passes through a driver's own wire and a pair of them."""

from __future__ import annotations

import asyncio
import math
import socket
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import attrs
import trio
from asgiwire import OnAsyncio
from streams import Streams, joined

from mcpio._drivers.event_loop import StreamAdapter
from mcpio.asyncio._drivers import ReaderWriterStream
from mcpio.asyncio._event_loop import AsyncioEventLoop
from mcpio.engine.connection import Connection
from mcpio.engine.table import Role
from mcpio.revisions import Revision
from mcpio.testing import whole
from mcpio.testing.script import Script
from mcpio.testing.script_player import Player, Side
from mcpio.trio._drivers import adapter_for

__all__ = ["AsyncioPlayer", "TrioPlayer"]

T = TypeVar("T")


class Near(Protocol):
    """The end of a connection that the script plays."""

    async def say(self, data: bytes) -> None:
        """Send bytes, if anybody reads."""

    async def end(self) -> None:
        """Send nothing more."""

    async def line(self) -> bytes:
        """Return the next line, with its end."""

    async def at_end(self) -> bool:
        """Wait for the end; false when something else comes."""

    async def close(self) -> None:
        """Close it."""


class StreamPlayer(Player):
    """Plays a script with each engine at one end of a connection, and the script at the other."""

    def __init__(self, script: Script, revision: Revision) -> None:
        super().__init__(script, revision, whole, None)
        self._wires: dict[Connection, tuple[Any, Near]] = {}

    # What an event loop has to say

    @abstractmethod
    def _do(self, wait: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Have the event loop do something."""

    @abstractmethod
    async def _together(self, *waits: Callable[[], Awaitable[None]]) -> None:
        """Do several things at once."""

    @abstractmethod
    async def _lay(self) -> tuple[Any, Near]:
        """Return a new connection: a driver's wire, and the other end."""

    # The player

    def _engine(self, role: Role) -> Connection:
        connection = super()._engine(role)
        self._wires[connection] = self._do(self._lay)
        return connection

    async def _clear(self) -> None:
        for wire, near in self._wires.values():
            await near.close()
            await wire.aclose()

    def _feed(self, side: Side, data: bytes | None) -> None:
        self._do(self._cross, side, data)
        self._drain(side)

    async def _cross(self, side: Side, data: bytes | None) -> None:
        connection = side.connection
        wire, near = self._wires[connection]
        if data is None:
            await near.end()
            if connection.wants_read:
                await wire.receive(connection)
            return
        await near.say(data)
        await self._take_in(side, len(data))

    async def _take_in(self, side: Side, size: int) -> None:
        """Have the engine read so many bytes, which the other end has sent."""
        connection = side.connection
        wire, _ = self._wires[connection]
        before = connection.stats.received_bytes
        while connection.stats.received_bytes - before < size and connection.wants_read:
            await wire.receive(connection)
            self._drain(side)

    def _pull(self, connection: Connection) -> list[bytes | None]:
        return self._do(self._said, connection) if connection.wants_write else []

    async def _said(self, connection: Connection) -> list[bytes | None]:
        wire, near = self._wires[connection]
        before = connection.stats.sent_bytes
        wire.send_now(connection)
        chunks: list[bytes | None] = []

        async def hear() -> None:
            heard = 0
            while heard < connection.stats.sent_bytes - before:
                line = await near.line()
                heard += len(line.rstrip(b"\n"))
                chunks.append(line)

        ends = wire.ending
        await self._together(lambda: wire.send(connection), hear)
        if ends:
            assert await near.at_end()
            chunks.append(None)
        return chunks


class AsyncioPlayer(StreamPlayer):
    """Over streams of asyncio."""

    def play(self, engines: frozenset[Role]) -> None:
        """Play it in an event loop of its own."""
        with OnAsyncio().runner() as self._runner:
            try:
                super().play(engines)
            finally:
                self._runner.run(self._clear())

    def _do(self, wait: Callable[..., Awaitable[T]], *args: Any) -> T:
        coroutine: Any = wait(*args)
        found: T = self._runner.run(coroutine)
        return found

    async def _together(self, *waits: Callable[[], Awaitable[None]]) -> None:
        await asyncio.gather(*(wait() for wait in waits))

    async def _lay(self) -> tuple[Any, Near]:
        far, near = await joined()
        near[0]._limit = 1 << 24  # type: ignore[attr-defined]  # how much may wait to be read, which has no setter
        wire = StreamAdapter(ReaderWriterStream(*far), AsyncioEventLoop())
        wire._now = lambda: self._now
        return wire, _AsyncioNear(near, far)


@attrs.define
class _AsyncioNear:
    near: Streams
    far: Streams

    async def say(self, data: bytes) -> None:
        if not self.far[1].is_closing():
            self.near[1].write(data)

    async def end(self) -> None:
        writer = self.near[1]
        if writer.can_write_eof() and not writer.is_closing():
            writer.write_eof()

    async def line(self) -> bytes:
        return await self.near[0].readline()

    async def at_end(self) -> bool:
        return await self.near[0].read() == b""

    async def close(self) -> None:
        self.near[1].close()
        self.far[1].close()
        await self.near[1].wait_closed()


class TrioPlayer(StreamPlayer):
    """Over sockets of one family, as the drivers of Trio have them."""

    def __init__(self, script: Script, revision: Revision, family: socket.AddressFamily) -> None:
        super().__init__(script, revision)
        self._family = family

    def play(self, engines: frozenset[Role]) -> None:
        """Play it in a thread, which has an event loop do what waits."""
        trio.run(self._play, engines, clock=_Clock(self))

    @property
    def now(self) -> float:
        """The time in the script."""
        return self._now

    async def _play(self, engines: frozenset[Role]) -> None:
        try:
            await trio.to_thread.run_sync(super().play, engines)
        finally:
            await self._clear()

    def _do(self, wait: Callable[..., Awaitable[T]], *args: Any) -> T:
        return trio.from_thread.run(wait, *args)

    async def _together(self, *waits: Callable[[], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            for wait in waits:
                nursery.start_soon(wait)

    async def _lay(self) -> tuple[Any, Near]:
        if self._family is not socket.AF_INET:
            there, here = trio.socket.socketpair(self._family)
        else:
            with trio.socket.socket() as listener:
                await listener.bind(("127.0.0.1", 0))
                listener.listen()
                here = trio.socket.socket()
                await here.connect(listener.getsockname())
                there, _ = await listener.accept()
        return adapter_for(trio.SocketStream(there)), _TrioNear(trio.SocketStream(here))


class _TrioNear:
    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._data = b""

    async def say(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def end(self) -> None:
        await self._stream.send_eof()

    async def line(self) -> bytes:
        while b"\n" not in self._data:
            self._data += await self._stream.receive_some()
        line, _, self._data = self._data.partition(b"\n")
        return line + b"\n"

    async def at_end(self) -> bool:
        return self._data == b"" and await self._stream.receive_some() == b""

    async def close(self) -> None:
        await self._stream.aclose()


class _Clock(trio.abc.Clock):
    """The time of a script, which passes when the script says so."""

    def __init__(self, player: TrioPlayer) -> None:
        self._player = player

    def start_clock(self) -> None:
        """It goes when it is told to."""

    def current_time(self) -> float:
        return self._player.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return 0 if deadline <= self._player.now else math.inf
