"""Both ends of a stream in a test, one of them by hand, on the event loop of the test."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from eachloop import Here
from peers import HELLO, HELLO_INFO, lines

from mcpio import Client, Server
from mcpio.app import Session

__all__ = ["RawEnd", "conversation", "raw_client", "raw_server"]


class RawEnd:
    """One end of a stream by hand: JSON in, JSON out. ``end`` is one of those of ``Here.joined``."""

    def __init__(self, end: tuple[Any, ...]) -> None:
        self._reader, self._writer = end[0], end[-1]
        self._is_trio = len(end) == 1
        self._unread = b""

    async def send(self, *messages: dict[str, Any]) -> None:
        if self._is_trio:
            await self._writer.send_all(lines(*messages))
        else:
            self._writer.write(lines(*messages))
            await self._writer.drain()

    async def receive(self) -> dict[str, Any]:
        while b"\n" not in self._unread:
            data = await self._read()
            assert data, f"the end came after {self._unread!r}"
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    async def at_end(self) -> bool:
        """Wait for the next input, and return whether it is the end."""
        return not self._unread and not await self._read()

    async def shake_hands(self) -> None:
        """Be the client of a handshake."""
        await self.send(HELLO)
        assert (await self.receive())["id"] == HELLO["id"]
        await self.send({"method": "notifications/initialized"})

    async def greet(self) -> None:
        """Be the server of a handshake."""
        request = await self.receive()
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": HELLO_INFO}
        await self.send({"id": request["id"], "result": result})
        assert (await self.receive())["method"] == "notifications/initialized"

    async def send_eof(self) -> None:
        if self._is_trio:
            await self._writer.send_eof()
        else:
            self._writer.write_eof()

    async def close(self) -> None:
        if self._is_trio:
            await self._writer.aclose()
        else:
            self._writer.close()

    async def _read(self) -> bytes:
        return bytes(await (self._reader.receive_some(65536) if self._is_trio else self._reader.read(65536)))


@asynccontextmanager
async def conversation(here: Here, server: Server, **options: Any) -> AsyncIterator[Client]:
    """Give a client of a server, over a stream."""
    async with here.served(server) as near, here.open_client(near, **options) as client:
        yield client


@asynccontextmanager
async def raw_client(here: Here, server: Server) -> AsyncIterator[tuple[RawEnd, Session]]:
    """Serve a client by hand that has shaken hands."""
    async with here.served(server) as near:
        raw = RawEnd(near)
        try:
            known = server.sessions
            await raw.shake_hands()
            (session,) = (each for each in server.sessions if each not in known)
            yield raw, session
        finally:
            await raw.close()


@asynccontextmanager
async def raw_server(here: Here, **options: Any) -> AsyncIterator[tuple[RawEnd, Client]]:
    """Give a client whose server is a test."""
    near, far = await here.joined()
    raw = RawEnd(far)
    async with here.tasks() as tasks:
        greeted = here.event()

        async def greet() -> None:
            await raw.greet()
            greeted.set()

        tasks.spawn(greet())
        try:
            async with here.open_client(near, **{"era": "handshake", **options}) as client:
                await greeted.wait()
                yield raw, client
        finally:
            await raw.close()
