"""Servers in memory for the table of raw messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
import trio.testing
from triowire import in_virtual_time, memory_site

from mcpio import Server
from mcpio.app import TaskOptions
from mcpio.cli.rules.trial import Connect, HttpCarrier, LineCarrier, RawCarrier
from mcpio.http.client import Location
from mcpio.trio import serve

__all__ = ["CARRIERS", "connected", "empty_server", "full_server", "in_virtual_time"]

CARRIERS = ("stream", "http")


def full_server() -> Server:
    """Return a server that declares every capability, and whose lists have two pages."""
    server = Server("workshop", "2", page_size=2, tasks=TaskOptions(list=True))

    @server.tool
    def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(task_support="optional")
    def dig(depth: int) -> str:
        """Dig."""
        return "a hole" * depth

    for name in ("cut", "glue", "sand"):
        server.tool(name=name)(lambda: None)
        server.resource(f"bench://{name}", name=name)(lambda: "nothing")
        server.resource(f"bench://{name}/{{number}}", name=name)(lambda number: f"drawer {number}")

        @server.prompt(name=name)
        def ask(thing: str) -> str:
            return thing

    server.completion("thing", prompt="cut")(lambda value: [f"{value} nail"])
    return server


def empty_server() -> Server:
    """Return a server that declares nothing."""
    return Server("empty", "1", log_level=None)


@asynccontextmanager
async def connected(server: Server, carrier: str) -> AsyncIterator[Connect]:
    """Serve a server for a block, and yield what connects to it."""
    if carrier == "stream":
        yield partial(_lines, server)
        return
    async with memory_site(server) as site:

        async def dial() -> Any:
            await trio.lowlevel.checkpoint()
            return site.listener.connect()

        @asynccontextmanager
        async def connect() -> AsyncIterator[RawCarrier]:
            yield HttpCarrier(Location.parse("http://localhost/mcp"), timeout=5, dial=dial)

        yield connect


@asynccontextmanager
async def _lines(server: Server) -> AsyncIterator[RawCarrier]:
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, server, far)
        yield LineCarrier(near, timeout=5)
        nursery.cancel_scope.cancel()
