"""Servers over WebSocket that listen in memory, alone or beside Streamable HTTP, for clients that a test plays."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from rawframes import CLOSE, Far, FarClient
from triowire import MemoryListener, Pair, RawHttp

from mcpio import Context, Event, Server
from mcpio._drivers.http_parsers import ParserName
from mcpio.events import ConnectionClosed
from mcpio.observe import Tap
from mcpio.trio import serve_http, serve_websocket
from mcpio.websocket import WebSocketOptions

__all__ = [
    "ENDED",
    "HOST",
    "KINDS",
    "Ends",
    "WebSocketHandler",
    "call",
    "called",
    "each_kind",
    "half_stalled",
    "heard_close",
    "is_over",
    "make_server",
    "websocket_site",
]

HOST = "localhost"

KINDS = ("alone", "shared", "shared-httptools")
"""How WebSocket is served: at an address of its own, or beside Streamable HTTP, with either parser."""

each_kind = pytest.mark.parametrize("kind", KINDS)


@attrs.frozen
class WebSocketHandler:
    """A server that listens in memory."""

    listener: MemoryListener
    scope: trio.CancelScope
    """Cancelled, the server ends, and the test goes on."""

    def dial(self, pair: Callable[[], Pair] = trio.testing.memory_stream_pair) -> FarClient:
        """Return a client that has said nothing yet."""
        return FarClient(self.listener.connect(pair), HOST)

    async def open(self, **fields: str) -> FarClient:
        """Return a client that has shaken hands."""
        far = self.dial()
        await far.open(**fields)
        return far

    def connect(self) -> RawHttp:
        """Return a client over HTTP."""
        return RawHttp(self.listener.connect())


@contextlib.asynccontextmanager
async def websocket_site(
    server: Server, kind: str = "alone", options: WebSocketOptions | None = None, **how: Any
) -> AsyncIterator[WebSocketHandler]:
    """Serve a server for a block; ``how`` are options that ``serve_http`` and ``serve_websocket`` have in common."""
    listener = MemoryListener()
    if kind == "alone":
        serve: Any = partial(serve_websocket, server, options=options)
    else:
        parser: ParserName = "httptools" if kind.endswith("httptools") else "h11"
        serve = partial(serve_http, server, websocket=options or WebSocketOptions(), parser=parser)
    scope = trio.CancelScope()

    async def run(*, task_status: Any) -> None:
        with scope:
            await serve(listeners=[listener], task_status=task_status, **how)

    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        yield WebSocketHandler(listener, scope)
        nursery.cancel_scope.cancel()


def half_stalled() -> Pair:
    """Return two ends of a connection on which only what the first one sends finds room."""
    there, back = trio.testing.memory_stream_one_way_pair(), trio.testing.lockstep_stream_one_way_pair()
    return trio.StapledStream(there[0], back[1]), trio.StapledStream(back[0], there[1])


# What is served, and what clients do with it


ENDED: list[ConnectionClosed] = []
"""How the sessions of this test ended."""


class Ends(Tap):
    """Hears how sessions end."""

    def event(self, event: Event, now: float) -> None:
        """Keep the last event."""
        if isinstance(event, ConnectionClosed):
            ENDED.append(event)


def make_server(**options: Any) -> Server:
    server = Server("here", "1.0", **options)

    @server.tool
    async def wait(seconds: float) -> str:
        await trio.sleep(seconds)
        return "waited"

    @server.tool
    def who(ctx: Context) -> str:
        return repr(ctx.peer.principal)

    @server.tool
    def much(size: int) -> str:
        return "*" * size

    return server


async def call(far: Far, id: Any, tool: str, **arguments: Any) -> None:
    await far.say(id=id, method="tools/call", params={"name": tool, "arguments": arguments})


async def called(far: Far, tool: str, **arguments: Any) -> str:
    await call(far, "called", tool, **arguments)
    found: str = (await far.message())["result"]["content"][0]["text"]
    return found


async def heard_close(far: Far) -> tuple[int | None, bytes]:
    """Read to the close frame, and return what it says."""
    while (frame := await far.frame()).opcode != CLOSE:
        pass
    return frame.code, frame.payload[2:]


async def is_over(far: Far) -> bool:
    """Whether the server closes the connection, without another frame."""
    await far.ended()
    return True
