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
