"""Peers by hand for sessions over streams: their messages, a server for them, and a clock that jumps."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import trio
import trio.testing

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options

HELLO_INFO = {"name": "raw", "version": "1"}

HELLO: dict[str, Any] = {
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": HELLO_INFO},
}


def run(main: Callable[[], Awaitable[None]]) -> None:
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def lines(*messages: dict[str, Any]) -> bytes:
    return b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages)


def call(id: int, name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


class RawEnd:
    """One end of a stream by hand: JSON in, JSON out. ``end`` are the arguments that ``serve`` takes on its loop."""

    def __init__(self, end: tuple[Any, ...]) -> None:
        self.reader, self.writer = end[0], end[-1]
        self._is_trio = len(end) == 1
        self._unread = b""

    async def send(self, *messages: dict[str, Any]) -> None:
        if self._is_trio:
            await self.writer.send_all(lines(*messages))
        else:
            self.writer.write(lines(*messages))
            await self.writer.drain()

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

    async def shake_hands(self, **capabilities: Any) -> None:
        """Be the client of a handshake."""
        await self.send({**HELLO, "params": {**HELLO["params"], "capabilities": capabilities}})
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
            await self.writer.send_eof()
        else:
            self.writer.write_eof()

    async def close(self) -> None:
        if self._is_trio:
            await self.writer.aclose()
        else:
            self.writer.close()

    async def _read(self) -> bytes:
        return bytes(await (self.reader.receive_some(65536) if self._is_trio else self.reader.read(65536)))


def a_server(**limits: Any) -> Server:
    server = Server("s", options=Options(limits=Limits(**limits)))

    @server.tool
    def large(size: int) -> str:
        return "x" * size

    @server.tool
    async def never_ends(ctx: Context) -> None:
        try:
            await trio.sleep_forever()
        finally:
            server.instructions = "cancelled"

    @server.tool
    async def takes(ctx: Context, seconds: float, size: int = 1) -> str:
        await ctx.session.driver.runtime.sleep(seconds)
        return "x" * size

    return server


async def read_to_end(stream: trio.abc.ReceiveStream, *, pause: float = 0, at_once: int | None = None) -> bytes:
    received = b""
    while data := await stream.receive_some(at_once):
        received += data
        await trio.sleep(pause)
    return received


class WithRoom(trio.abc.HalfCloseableStream):
    """A stream that can be written to without a wait, as pipes can. Without a ``peer`` there is never room for it."""

    def __init__(
        self, stream: trio.StapledStream[Any, Any], peer: trio.testing.MemoryReceiveStream | None = None
    ) -> None:
        self.stream = stream
        self.peer = peer

    def send_nowait(self, data: bytes) -> int:
        if self.peer is None:
            return 0
        self.peer.put_data(data)
        return len(data)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self.stream.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return bytes(await self.stream.receive_some(max_bytes))

    async def aclose(self) -> None:
        await self.stream.aclose()
