"""Every transport of mcpio as the transport kit wants to see it."""

from __future__ import annotations

import os
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Unpack

import trio
import trio.testing
import trustme
from relay import Relay, hold_little, relaying

from mcpio import Server
from mcpio.app import ClientOptions
from mcpio.backoff import Backoff
from mcpio.http.client import HttpClientOptions
from mcpio.http.model import HostPolicy, HttpOptions
from mcpio.testing.transport_kit import Conversation, Ends, Harness
from mcpio.trio import (
    memory_client,
    open_http,
    open_stdio,
    open_tcp,
    open_unix,
    open_websocket,
    serve_http,
    serve_tcp,
    serve_unix,
    serve_websocket,
)
from mcpio.trio._descriptors import PollReader, PollWriter, StdioStream

CHILD = """
import trio
from mcpio.testing.transport_kit import kit_server
from mcpio.trio import serve_stdio
trio.run(serve_stdio, kit_server())
"""
ROOM = 2 * 1024 * 1024
"""Bytes that the buffers of all sockets between two ends hold."""


class MemoryHarness(Harness):
    """``memory_client``: nothing is between the two."""

    virtual_time = True
    loses = stalls = False

    @asynccontextmanager
    async def join(self, server: Server, **options: Unpack[ClientOptions]) -> AsyncIterator[Conversation]:
        async with memory_client(server, **options) as client:
            yield Conversation(client)


class ChildHarness(Harness):
    """``open_stdio`` and ``serve_stdio``, in another process."""

    in_process = stalls = False

    @asynccontextmanager
    async def join(self, server: Server, **options: Unpack[ClientOptions]) -> AsyncIterator[Conversation]:
        command = [sys.executable, "-c", CHILD]
        async with open_stdio(command, inherit_env=True, close_grace=0.1, **options) as client:

            async def lose() -> None:
                os.kill(client.child.pid, 9)

            yield Conversation(client, lose)


class SocketHarness(Harness):
    """``open_tcp`` and ``serve_tcp``."""

    half_closes = True
    room = ROOM

    def __init__(self, **options: Any) -> None:
        self.options = options

    @asynccontextmanager
    async def relayed(self, server: Server) -> AsyncIterator[tuple[Relay, Any]]:
        """Serve, with a relay before it; give that, and where to find it."""
        async with trio.open_nursery() as nursery:
            ports: list[int] = []

            async def dial() -> trio.SocketStream:
                return await trio.open_tcp_stream("127.0.0.1", ports[0])

            async with relaying(dial) as (relay, port):
                listening = await nursery.start(partial(self.serve, server, port))
                ports.append(listening.port)
                yield relay, port
            nursery.cancel_scope.cancel()

    async def serve(self, server: Server, place: int, **status: Any) -> None:
        """Serve at a port that clients find at another."""
        await serve_tcp(server, **status)

    def open(self, place: Any, options: Any) -> Any:
        return open_tcp("127.0.0.1", place, **self.options, **options)

    async def connect(self, place: Any) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", place)

    @asynccontextmanager
    async def join(self, server: Server, **options: Unpack[ClientOptions]) -> AsyncIterator[Conversation]:
        async with self.relayed(server) as (relay, place), self.open(place, options) as client:
            yield Conversation(client, relay.lose, relay.stall, relay.resume)

    @asynccontextmanager
    async def dial(self, server: Server) -> AsyncIterator[trio.abc.HalfCloseableStream]:
        async with self.relayed(server) as (_, place), await self.connect(place) as stream:
            yield stream


class ReconnectingHarness(SocketHarness):
    """The same, with a client that connects again."""

    reconnects = True

    def __init__(self) -> None:
        super().__init__(reconnect=Backoff(tries=20, base=0.001, cap=0.01), on_session_lost=lambda: None)


class TlsHarness(SocketHarness):
    """The same, over TLS, which has no half-close."""

    half_closes = False

    def __init__(self) -> None:
        authority = trustme.CA()
        self._serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(self._serving)
        asking = ssl.create_default_context()
        authority.configure_trust(asking)
        super().__init__(ssl_context=asking)

    async def serve(self, server: Server, place: int, **status: Any) -> None:
        await serve_tcp(server, ssl_context=self._serving, **status)


class UnixHarness(SocketHarness):
    """``open_unix`` and ``serve_unix``."""

    @asynccontextmanager
    async def relayed(self, server: Server) -> AsyncIterator[tuple[Relay, Any]]:
        with tempfile.TemporaryDirectory() as directory:
            near, far = f"{directory}/near", f"{directory}/far"
            async with trio.open_nursery() as nursery:
                await nursery.start(serve_unix, server, far)
                async with relaying(partial(trio.open_unix_socket, far), near) as (relay, _):
                    yield relay, near
                nursery.cancel_scope.cancel()

    def open(self, place: Any, options: Any) -> Any:
        return open_unix(place, **self.options, **options)

    async def connect(self, place: Any) -> trio.SocketStream:
        return await trio.open_unix_socket(place)


class HttpHarness(SocketHarness):
    """``open_http`` and ``serve_http``. Connections come and go, and the client with its session goes on."""

    half_closes = ordered = False
    reconnects = True

    def __init__(self, answers: Any) -> None:
        super().__init__(http=HttpClientOptions(reconnect_after=0.005))
        self.speaks_back = answers != "json"
        self._answers = answers

    async def serve(self, server: Server, place: int, **status: Any) -> None:
        options = HttpOptions(answers=self._answers, policy=HostPolicy.for_address("127.0.0.1", place))
        await serve_http(server, port=0, options=options, **status)

    def open(self, place: Any, options: Any) -> Any:
        return open_http(f"http://127.0.0.1:{place}/mcp", trust_env=False, **self.options, **options)


class WebSocketHarness(SocketHarness):
    """``open_websocket`` and ``serve_websocket``."""

    half_closes = False

    async def serve(self, server: Server, place: int, **status: Any) -> None:
        await serve_websocket(server, port=0, policy=HostPolicy.for_address("127.0.0.1", place), **status)

    def open(self, place: Any, options: Any) -> Any:
        return open_websocket(f"ws://127.0.0.1:{place}/mcp", **self.options, **options)


def pipe_pair() -> Ends:
    """Return two ends of two pipes, as a server on standard input and output has them."""
    there, here = os.pipe(), os.pipe()
    for descriptor in (*there, *here):
        os.set_blocking(descriptor, False)
    return (
        StdioStream(PollReader(here[0]), PollWriter(there[1])),
        StdioStream(PollReader(there[0]), PollWriter(here[1])),
    )


async def socket_pair() -> Ends:
    """Return two ends of a TCP connection, as Trio makes them."""
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        near = await trio.testing.open_stream_to_socket_listener(listener)
        far = await listener.accept()
        for end in (near, far):
            hold_little(end)
        return near, far
