"""Conversation scripts over streams of asyncio: the bytes of each engine cross a real pair of sockets."""

from __future__ import annotations

import asyncio
from typing import Any

from asgiwire import OnAsyncio
from streams import Streams, joined

from mcpio.asyncio._wire import StreamWire
from mcpio.engine.connection import Connection
from mcpio.engine.table import Role
from mcpio.revisions import Revision
from mcpio.testing import whole
from mcpio.testing.acts import Side
from mcpio.testing.player import Player
from mcpio.testing.script import Script

__all__ = ["StreamPlayer"]


class StreamPlayer(Player):
    """Plays a script with each engine at one end of streams, and the script at the other."""

    def __init__(self, script: Script, revision: Revision) -> None:
        super().__init__(script, revision, whole, None)
        self._wires: dict[Connection, tuple[StreamWire, Streams]] = {}

    def play(self, engines: frozenset[Role]) -> None:
        """Play it in an event loop of its own."""
        with OnAsyncio().runner() as self._runner:
            try:
                super().play(engines)
            finally:
                self._runner.run(self._clear())

    def _engine(self, role: Role) -> Connection:
        connection = super()._engine(role)
        far, here = self._runner.run(joined())
        self._runner.run(self._lay(connection, far, here))
        return connection

    async def _lay(self, connection: Connection, far: Streams, here: Streams) -> None:
        here[0]._limit = 1 << 24  # type: ignore[attr-defined]  # how much may wait to be read, which has no setter
        wire: Any = StreamWire(*far)
        wire._clock = lambda: self._now
        self._wires[connection] = wire, here

    async def _clear(self) -> None:
        for wire, (_, writer) in self._wires.values():
            writer.close()
            await wire.aclose()
            await writer.wait_closed()

    def _feed(self, side: Side, data: bytes | None) -> None:
        self._runner.run(self._cross(side, data))
        self._drain(side)

    async def _cross(self, side: Side, data: bytes | None) -> None:
        wire, (_, writer) = self._wires[side.connection]
        if data is None:
            if writer.can_write_eof() and not writer.is_closing():
                writer.write_eof()
            await wire.receive(side.connection)
            return
        if wire._writer.is_closing():
            return
        writer.write(data)
        before = side.connection.received_bytes
        while side.connection.received_bytes - before < len(data) and side.connection.wants_read:
            await wire.receive(side.connection)
            self._drain(side)

    def _pull(self, connection: Connection) -> list[bytes | None]:
        return self._runner.run(self._said(connection)) if connection.wants_write else []

    async def _said(self, connection: Connection) -> list[bytes | None]:
        wire, (reader, _) = self._wires[connection]
        before = connection.sent_bytes
        wire.send_now(connection)
        ends, size = wire.ending, connection.sent_bytes - before
        sending = asyncio.ensure_future(wire.send(connection))
        chunks: list[bytes | None] = []
        while size > 0:
            line = await reader.readline()
            chunks.append(line)
            size -= len(line.rstrip(b"\n"))
        await sending
        if ends:
            assert await reader.read() == b""
            chunks.append(None)
        return chunks
