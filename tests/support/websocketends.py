"""WebSocket under bad input: what a test says line by line goes in messages, and so does what it hears."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import trio
import trio.testing
from rawframes import CLOSE, TEXT, Far, FarClient, FarServer, Lost, answer_to, close, text

from mcpio import Server
from mcpio.trio import open_websocket, serve_websocket

__all__ = ["WebSockets"]


class WebSockets:
    """Carries bad input over WebSocket."""

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        """Run a test."""
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.02))

    @asynccontextmanager
    async def served(self, server: Server, directory: Path) -> AsyncIterator[Lines]:
        """Serve for a block, and give the client's end."""
        async with trio.open_nursery() as nursery:
            listening = await nursery.start(partial(serve_websocket, server, port=0))
            stream = await trio.open_tcp_stream("127.0.0.1", listening.port)
            async with FarClient(stream, f"127.0.0.1:{listening.port}") as far:
                assert (await far.ask())[0] == 101
                yield Lines(far)
            nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def opened(self, play: Any, directory: Path) -> AsyncIterator[Callable[..., Any]]:
        """Have a server played to one client, which is to be opened in the block."""

        async def accept() -> None:
            far = FarServer(await listener.accept())
            _, asked = await far.head()
            await far.send_bytes(answer_to(asked))
            end = Lines(far)
            try:
                with suppress(EOFError):
                    await play(end)
            finally:
                await end.aclose()

        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with listener, trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            yield partial(_opened, f"ws://127.0.0.1:{listener.socket.getsockname()[1]}/mcp")


def _opened(url: str, **options: Any) -> Any:
    return open_websocket(url, **options)


class Lines:
    """One end, as if it had lines."""

    def __init__(self, far: Far) -> None:
        self._far = far
        self._unsaid = b""
        self._heard = b""

    async def send_all(self, data: bytes) -> None:
        """Say each line that is whole, and not blank, in a message of its own.

        What is no UTF-8 becomes something that is no JSON: a WebSocket ends with what is no text at all.
        """
        *lines, self._unsaid = (self._unsaid + data).split(b"\n")
        await self._far.send(*(text(_as_text(line)) for line in lines if line.strip()))

    async def receive_some(self, max_bytes: int) -> bytes:
        """Return some of what was heard."""
        while not self._heard:
            try:
                frame = await self._far.frame()
            except Lost:
                return b""
            if frame.opcode == CLOSE:
                return b""
            if frame.opcode == TEXT:
                self._heard = frame.payload + b"\n"
        data, self._heard = self._heard[:max_bytes], self._heard[max_bytes:]
        return data

    async def send_eof(self) -> None:
        """Close."""
        await self._far.send(close())

    async def aclose(self) -> None:
        """Close, and let go of the connection."""
        await self._far.send(close())
        await self._far.leave()


def _as_text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return "\ufffd"
