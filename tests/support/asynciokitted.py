"""Every transport of ``mcpio.asyncio`` as the transport kit wants to see it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Unpack

from asynciorelay import AsyncioRelay, Streams, hold_little, relaying

from mcpio import Server
from mcpio.app import ClientOptions
from mcpio.asyncio import (
    memory_client,
    open_http,
    open_stdio,
    open_tcp,
    open_unix,
    open_websocket,
    serve_tcp,
    serve_unix,
)
from mcpio.backoff import Backoff
from mcpio.http.client import HttpClientOptions
from mcpio.testing.transport_kit import AsyncioEnds, Conversation, Harness

CHILD = """
import asyncio
from mcpio.asyncio import serve_stdio
from mcpio.testing.transport_kit import kit_server
asyncio.run(serve_stdio(kit_server()))
"""
SERVING = """
import sys, trio
from functools import partial
from mcpio.http.model import HostPolicy, HttpOptions
from mcpio.testing.transport_kit import kit_server
from mcpio.trio import serve_http, serve_websocket

kind, port = sys.argv[1], int(sys.argv[2])
policy = HostPolicy.for_address("127.0.0.1", port)

async def main():
    async with trio.open_nursery() as nursery:
        if kind == "websocket":
            serve = partial(serve_websocket, kit_server(), port=0, policy=policy)
        else:
            serve = partial(serve_http, kit_server(), port=0, options=HttpOptions(answers=kind, policy=policy))
        print((await nursery.start(serve)).port, flush=True)

trio.run(main)
"""
"""A server of the kit, on Trio, for clients that find it at another port."""
ROOM = 2 * 1024 * 1024
"""Bytes that the buffers of all sockets between two ends hold."""


class AsyncioHarness(Harness):
    """Runs on asyncio's own event loop, or on uvloop."""

    def __init__(self, loop: Any) -> None:
        self.loop = loop


class MemoryHarness(AsyncioHarness):
    """``memory_client``: nothing is between the two."""

    loses = stalls = False

    @asynccontextmanager
    async def join(self, server: Server, **options: Unpack[ClientOptions]) -> AsyncIterator[Conversation]:
        async with memory_client(server, **options) as client:
            yield Conversation(client)


class ChildHarness(AsyncioHarness):
    """``open_stdio`` and ``serve_stdio``, in another process."""

    in_process = stalls = False

    @asynccontextmanager
    async def join(self, server: Server, **options: Unpack[ClientOptions]) -> AsyncIterator[Conversation]:
        command = [sys.executable, "-c", CHILD]
        async with open_stdio(command, inherit_env=True, close_grace=0.1, **options) as client:

            async def lose() -> None:
                os.kill(client.child.pid, 9)

            yield Conversation(client, lose)


class SocketHarness(AsyncioHarness):
    """``open_tcp`` and ``serve_tcp``."""

    half_closes = True
    room = ROOM

    def __init__(self, loop: Any, **options: Any) -> None:
        super().__init__(loop)
        self.options = options

    @asynccontextmanager
    async def relayed(self, server: Server) -> AsyncIterator[tuple[AsyncioRelay, Any]]:
        """Serve, with a relay before it; give that, and where to find it."""
        ports: list[int] = []

        async def dial() -> Streams:
            return await asyncio.open_connection("127.0.0.1", ports[0])

        async with relaying(dial) as (relay, port), self.serving(server, port) as found:
            ports.append(found)
            yield relay, port

    @asynccontextmanager
    async def serving(self, server: Server, place: int) -> AsyncIterator[int]:
        """Serve at a port that clients find at another; give it."""
        async with running(partial(serve_tcp, server)) as listening:
            yield listening.port

    def open(self, place: Any, options: Any) -> Any:
        return open_tcp("127.0.0.1", place, **self.options, **options)

    async def connect(self, place: Any) -> Streams:
        return await asyncio.open_connection("127.0.0.1", place)

    @asynccontextmanager
    async def join(self, server: Server, **options: Unpack[ClientOptions]) -> AsyncIterator[Conversation]:
        async with self.relayed(server) as (relay, place), self.open(place, options) as client:
            yield Conversation(client, relay.lose, relay.stall, relay.resume)

    @asynccontextmanager
    async def dial(self, server: Server) -> AsyncIterator[Streams]:
        async with self.relayed(server) as (_, place):
            yield await self.connect(place)


class ReconnectingHarness(SocketHarness):
    """The same, with a client that connects again."""

    reconnects = True

    def __init__(self, loop: Any) -> None:
        super().__init__(loop, reconnect=Backoff(tries=20, base=0.001, cap=0.01), on_session_lost=lambda: None)


class UnixHarness(SocketHarness):
    """``open_unix`` and ``serve_unix``."""

    @asynccontextmanager
    async def relayed(self, server: Server) -> AsyncIterator[tuple[AsyncioRelay, Any]]:
        with tempfile.TemporaryDirectory() as directory:
            near, far = f"{directory}/near", f"{directory}/far"
            dial = partial(asyncio.open_unix_connection, far)
            async with running(partial(serve_unix, server, far)), relaying(dial, near) as (relay, _):
                yield relay, near

    def open(self, place: Any, options: Any) -> Any:
        return open_unix(place, **self.options, **options)

    async def connect(self, place: Any) -> Streams:
        return await asyncio.open_unix_connection(place)


class WebSocketHarness(SocketHarness):
    """``open_websocket``, and a server on Trio in another process."""

    half_closes = in_process = stalls = False
    kind = "websocket"

    @asynccontextmanager
    async def serving(self, server: Server, place: int) -> AsyncIterator[int]:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SERVING, self.kind, str(place), stdout=asyncio.subprocess.PIPE
        )
        assert child.stdout is not None
        try:
            yield int(await child.stdout.readline())
        finally:
            child.kill()
            await child.wait()

    def open(self, place: Any, options: Any) -> Any:
        return open_websocket(f"ws://127.0.0.1:{place}/mcp", **self.options, **options)


class HttpHarness(WebSocketHarness):
    """``open_http``, and such a server. Connections come and go, and the client with its session goes on."""

    ordered = False
    reconnects = True

    def __init__(self, loop: Any, answers: str) -> None:
        super().__init__(loop, http=HttpClientOptions(reconnect_after=0.005))
        self.speaks_back = answers != "json"
        self.kind = answers

    def open(self, place: Any, options: Any) -> Any:
        return open_http(f"http://127.0.0.1:{place}/mcp", trust_env=False, **self.options, **options)


@asynccontextmanager
async def running(serve: Any) -> AsyncIterator[Any]:
    """Serve for a block; give what it listens at."""
    started = asyncio.get_running_loop().create_future()
    task: asyncio.Task[None] = asyncio.create_task(_serve(serve(started=started)))
    try:
        yield await started
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _serve(serving: Coroutine[Any, Any, None]) -> None:
    await serving


async def socket_pair() -> AsyncioEnds:
    """Return two ends of a connection, as asyncio makes them."""
    near, far = socket.socketpair()
    ends = await asyncio.open_connection(sock=near), await asyncio.open_connection(sock=far)
    for _, writer in ends:
        hold_little(writer)
    return ends


class Queue:
    """One direction of a channel, with room for so many texts."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._texts: deque[str] = deque()
        self._changed = asyncio.Event()
        self._is_closed = False

    async def send(self, text: str) -> None:
        """Put a text in; OSError if either side has closed."""
        await self._until(lambda: len(self._texts) < self._room)
        if self._is_closed:
            raise BrokenPipeError("closed")
        self._texts.append(text)
        self._changed.set()

    async def receive(self) -> str | None:
        """Take the next text; ``None`` at the end."""
        await self._until(lambda: len(self._texts) > 0)
        if not self._texts:
            return None
        self._changed.set()
        return self._texts.popleft()

    def close(self) -> None:
        """End it, for both sides."""
        self._is_closed = True
        self._changed.set()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition() and not self._is_closed:
            self._changed.clear()
            await self._changed.wait()


def channel_pair(room: int = 4) -> AsyncioEnds:
    """Return two ends of a pair of queues."""
    there, here = Queue(room), Queue(room)

    async def close() -> None:
        there.close()
        here.close()

    return (here.receive, there.send, close), (there.receive, here.send, close)
