"""Servers over WebSocket that listen in memory, alone or beside Streamable HTTP, for clients that a test plays."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from rawframes import FarClient
from triowire import MemoryListener, Pair, RawHttp

from mcpio import Server
from mcpio.trio import serve_http, serve_websocket
from mcpio.trio._http_parsers import ParserName
from mcpio.websocket import WebSocketOptions

__all__ = ["HOST", "KINDS", "WebSocketSite", "each_kind", "websocket_site"]

HOST = "localhost"

KINDS = ("alone", "shared", "shared-httptools")
"""How WebSocket is served: at an address of its own, or beside Streamable HTTP, with either parser."""

each_kind = pytest.mark.parametrize("kind", KINDS)


@attrs.frozen
class WebSocketSite:
    """A server that listens in memory."""

    listener: MemoryListener
    scope: trio.CancelScope
    """Cancelled, the server ends."""

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
) -> AsyncIterator[WebSocketSite]:
    """Serve a server for a block; ``how`` are options that ``serve_http`` and ``serve_websocket`` have in common."""
    listener = MemoryListener()
    if kind == "alone":
        serve: Any = partial(serve_websocket, server, options=options)
    else:
        parser: ParserName = "httptools" if kind.endswith("httptools") else "h11"
        serve = partial(serve_http, server, websocket=options or WebSocketOptions(), parser=parser)
    async with trio.open_nursery() as around, trio.open_nursery() as nursery:
        await nursery.start(partial(serve, listeners=[listener], **how))
        yield WebSocketSite(listener, nursery.cancel_scope)
        around.cancel_scope.cancel()
