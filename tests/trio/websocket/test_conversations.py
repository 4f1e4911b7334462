"""The conversations of ``tests/conversations`` over WebSocket, with the wire of the drivers and compression or not."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from _pytest.mark import ParameterSet
from rawframes import CLOSE, PING, PONG, Far, Frame, close, inflated, text
from scripts import newest_cases
from streamplayer import TrioPlayer

from mcpio._drivers.websocket import WebSocketAdapter
from mcpio.engine.connection import Connection
from mcpio.engine.table import Role
from mcpio.revisions import Revision
from mcpio.testing import Script
from mcpio.testing.script_player import Side
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.websocket import WebSocket, WebSocketOptions

OPTIONS = WebSocketOptions(ping_interval=None, first_message_timeout=None)

OTHERWISE = {("end-while-requests-run", "server"): "whoever closed a WebSocket hears no answers any more (XPORT-04)"}
"""By script and engines: why it goes otherwise over WebSocket."""


def _cases() -> Iterator[ParameterSet]:
    for case in newest_cases():
        script, engines, _ = case.values
        assert isinstance(script, Script)
        if _key(script, engines) not in OTHERWISE:
            yield case


def _key(script: Script, engines: Any) -> tuple[str, str]:
    return script.name.removesuffix(".txt"), "-".join(sorted(role.value for role in engines))


@pytest.mark.req("SSTD-06")
@pytest.mark.parametrize("bits", [None, 15], ids=["plain", "deflate"])
@pytest.mark.parametrize(("script", "engines", "revision"), list(_cases()))
def test_a_conversation_holds_over_websocket(
    script: Script, engines: frozenset[Role], revision: Revision, bits: int | None
) -> None:
    WebSocketPlayer(script, revision, bits).play(engines)


def test_skipped_conversations_exist() -> None:
    known = {_key(case.values[0], case.values[1]) for case in newest_cases()}  # type: ignore[arg-type]  # as they are made
    assert known >= OTHERWISE.keys()


class WebSocketPlayer(TrioPlayer):
    """Plays a script with each engine at one end of a WebSocket."""

    def __init__(self, script: Script, revision: Revision, bits: int | None) -> None:
        super().__init__(script, revision, socket.AF_UNIX)
        self._bits = bits
        self._role = Role.SERVER
        self._over: list[Connection] = []

    def _engine(self, role: Role) -> Connection:
        self._role = role
        return super()._engine(role)

    async def _lay(self) -> tuple[Any, Any]:
        there, here = trio.socket.socketpair(self._family)
        near = _Near(trio.SocketStream(here), masks=self._role is Role.SERVER)
        # Messages that are too long are for the engine to find: a WebSocket ends with them (XPORT-04).
        made = WebSocket(
            self._role, OPTIONS, max_bytes=1 << 24, now=self._now, entropy=lambda n: b"mask"[:n], window_bits=self._bits
        )
        loop = TrioEventLoop()
        return WebSocketAdapter(loop.quickened(trio.SocketStream(there)), made, b"", loop), near

    async def _take_in(self, side: Side, size: int) -> None:
        connection = side.connection
        wire, _ = self._wires[connection]
        # What was said is there when the ping after it is.
        while not wire.unsent and connection.wants_read:
            await wire.receive(connection)
            self._drain(side)
        wire._socket.data_to_send(self._now)

    async def _said(self, connection: Connection) -> list[bytes | None]:
        wire, near = self._wires[connection]
        chunks = await super()._said(connection)
        if connection.end is not None and connection not in self._over:
            self._over.append(connection)

            async def hear_the_end() -> None:
                assert await near.at_end()
                chunks.append(None)
                await near.close()

            # Whoever runs a session closes its wire in the end, and that the WebSocket.
            await self._together(wire.aclose, hear_the_end)
        return chunks

    async def _clear(self) -> None:
        for connection in self._over:
            del self._wires[connection]
        await super()._clear()


class _Near(Far):
    """The end that the script plays, which says each line in a message, and hears lines."""

    async def say(self, data: bytes) -> None:  # type: ignore[override]  # as a player of lines wants it
        await self.send(*(text(line) for line in data.splitlines()), Frame(PING))

    async def end(self) -> None:
        await self.send(close())

    async def line(self) -> bytes:
        while (frame := await self.frame()).opcode == PONG:
            pass
        payload = inflated(frame.payload) if frame.rsv else frame.payload
        json.loads(payload)
        return payload + b"\n"

    async def at_end(self) -> bool:
        return (await self.frame()).opcode == CLOSE

    async def close(self) -> None:
        await self.stream.aclose()
