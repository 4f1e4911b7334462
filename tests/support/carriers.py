"""Every way from a client to a server, for tests that are about none of them in particular."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from mcpio import Client, Context, Server
from mcpio.trio import (
    connect_http,
    connect_stdio,
    connect_tcp,
    connect_unix,
    connect_websocket,
    serve_http,
    serve_stdio,
    serve_tcp,
    serve_unix,
    serve_websocket,
)

__all__ = ["CARRIERS", "Connect", "added", "make_server", "over", "run", "until"]

Connect = Callable[..., Awaitable[Client]]
"""Takes ``nursery=`` and options, and returns a client."""


def make_server() -> Server:
    """Return a server of which one tool answers at once, and one never."""
    server = Server("carried", "1.0")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def wait(ctx: Context) -> None:
        ctx.progress(1)
        await trio.sleep_forever()

    return server


@attrs.frozen
class Carrier:
    """A way to serve, and to connect to what listens then."""

    serve: Callable[..., Awaitable[None]]
    """Takes a server, the options of this way, and ``task_status``."""
    connect: Callable[[Any, Path], Connect]
    """Takes what ``serve`` gave, and a directory of the test's own."""
    where: Callable[[Path], dict[str, Any]] = lambda _: {}
    """Returns options of ``serve`` for that directory."""


QUICK: dict[str, Any] = {"end_timeout": 0.05}
"""How soon a server takes a client that ended its side for gone."""

CARRIERS: dict[str, Carrier | None] = {
    "stdio": None,  # Each client starts a server of its own.
    "tcp": Carrier(serve_tcp, lambda at, _: partial(connect_tcp, at.host, at.port), lambda _: QUICK),
    "unix": Carrier(serve_unix, lambda _, to: partial(connect_unix, to / "s"), lambda to: QUICK | {"path": to / "s"}),
    "http": Carrier(serve_http, lambda at, _: partial(connect_http, at.url), lambda _: {"port": 0}),
    "http+unix": Carrier(serve_http, lambda at, _: partial(connect_http, at.url), lambda to: {"unix": to / "s"}),
    "websocket": Carrier(serve_websocket, lambda at, _: partial(connect_websocket, at.url), lambda _: {"port": 0}),
    "ws+unix": Carrier(
        serve_websocket, lambda at, _: partial(connect_websocket, at.url), lambda to: {"unix": to / "s"}
    ),
}
"""By name. ``None`` for child processes."""


@asynccontextmanager
async def over(kind: str, server: Server, directory: Path) -> AsyncIterator[Connect]:
    """Serve for a block, over one of ``CARRIERS``, and give what connects. A child process serves its own server."""
    carrier = CARRIERS[kind]
    if carrier is None:
        argv = [sys.executable, "-c", "import carriers; carriers.be_a_child()"]
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        yield partial(connect_stdio, argv, env={"PYTHONPATH": path}, close_grace=0.2)
        return
    async with trio.open_nursery() as nursery:
        listening = await nursery.start(partial(carrier.serve, server, **carrier.where(directory)))
        yield carrier.connect(listening, directory)
        nursery.cancel_scope.cancel()


def be_a_child() -> None:
    """Be the server of a child process."""
    trio.run(serve_stdio, make_server())


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run where sockets and processes take their time, but not for ever."""

    async def limited() -> None:
        with trio.fail_after(20):
            await main()

    trio.run(limited)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds of which nobody tells."""
    while True:
        if holds():
            return
        await trio.sleep(0.005)


async def added(client: Client, a: int, b: int) -> int:
    """Ask a server of ``make_server`` for a sum."""
    result = await client.call_tool("add", {"a": a, "b": b})
    found: int = result.structured_content["result"]
    return found
