"""``open_tcp``, ``open_unix``, ``open_websocket`` and their ``connect_…``: clients over sockets."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Unpack

from mcpio._drivers.event_loop import EventLoop
from mcpio._drivers.setup import open_in_either_era
from mcpio._drivers.sockets.client import SocketConnector, SocketOptions, TcpOptions, tcp_connector, unix_connector
from mcpio._drivers.stream_adapter import StreamAdapter
from mcpio._drivers.websocket.client import WebSocketConnectOptions, websocket_connector
from mcpio.app.client import Client
from mcpio.asyncio._drivers import AsyncioClientContext, Started, start_client
from mcpio.asyncio._event_loop import AsyncioEventLoop
from mcpio.asyncio._runtime import AsyncioRuntime

__all__ = [
    "SocketOptions",
    "TcpOptions",
    "WebSocketConnectOptions",
    "connect_tcp",
    "connect_unix",
    "connect_websocket",
    "open_tcp",
    "open_unix",
    "open_websocket",
]

MakeConnector = Callable[[dict[str, Any], EventLoop], SocketConnector[Any]]
"""Takes its own options out of those of the client."""


def open_tcp(host: str, port: int, **options: Unpack[TcpOptions]) -> AsyncioClientContext[Client]:
    """Async context manager that yields a client of a server on TCP. See ``serve_tcp``.

    Raises ConnectFailed if the connection or the handshake fails.
    """
    return AsyncioClientContext(lambda: _start(partial(_to_tcp, host, port), None, options))


async def connect_tcp(
    host: str, port: int, *, group: asyncio.TaskGroup | None = None, **options: Unpack[TcpOptions]
) -> Client:
    """Return a client of a server on TCP, tied to no block. See ``open_tcp``.

    It ends when any task closes it, or with ``group``; without a group it ends with the event loop.
    """
    client, _ = await _start(partial(_to_tcp, host, port), group, options)
    return client


def open_unix(path: str | os.PathLike[str], **options: Unpack[SocketOptions]) -> AsyncioClientContext[Client]:
    """Async context manager that yields a client of a server on a Unix socket. See ``serve_unix``.

    Raises ConnectFailed if the connection or the handshake fails.
    """
    return AsyncioClientContext(lambda: _start(partial(_to_unix, path), None, options))


async def connect_unix(
    path: str | os.PathLike[str], *, group: asyncio.TaskGroup | None = None, **options: Unpack[SocketOptions]
) -> Client:
    """Return a client of a server on a Unix socket, tied to no block. See ``open_unix``, and ``connect_tcp``."""
    client, _ = await _start(partial(_to_unix, path), group, options)
    return client


def open_websocket(url: str, **options: Unpack[WebSocketConnectOptions]) -> AsyncioClientContext[Client]:
    """Async context manager that yields a client: ``async with open_websocket("ws://…/mcp") as client``.

    See ``connect_websocket``.
    """
    return AsyncioClientContext(lambda: _start(partial(_to_websocket, url), None, options))


async def connect_websocket(
    url: str, *, group: asyncio.TaskGroup | None = None, **options: Unpack[WebSocketConnectOptions]
) -> Client:
    """Return a client of the server at a ``ws://`` or ``wss://`` URL, tied to no block. See ``connect_tcp``.

    ``ws+unix://%2Frun%2Fserver.sock/mcp`` is a server on the Unix socket of that path, as for ``connect_http``.

    Raises ConnectFailed. Its cause is an OSError if there is no connection, an AuthorizationRequired for status 401 and
    403, with ``auth`` an AuthorizationError if there is no token to be had, an UnexpectedResponse for any other answer
    that is not a WebSocket with an offered subprotocol, and a RemoteProtocolError if the answer is not HTTP. Raises
    ValueError for an invalid URL or header field.

    When the connection ends, waiting calls raise ConnectionLost. Its cause tells how, unless the server closed
    gracefully (with 1000, 1001 or no code): a WebSocketClosed has any other code, 1006 for a connection that broke; a
    RemoteProtocolError tells what the server did wrong, a RequestTimeout that it gave no sign of life, and an OSError
    how the stream failed (XPORT-04).
    """
    client, _ = await _start(partial(_to_websocket, url), group, options)
    return client


def _to_tcp(host: str, port: int, given: dict[str, Any], loop: EventLoop) -> SocketConnector[Any]:
    return tcp_connector(host, port, given, partial(StreamAdapter, loop=loop), loop)


def _to_unix(path: str | os.PathLike[str], given: dict[str, Any], loop: EventLoop) -> SocketConnector[Any]:
    return unix_connector(path, given, partial(StreamAdapter, loop=loop), loop)


def _to_websocket(url: str, given: dict[str, Any], loop: EventLoop) -> SocketConnector[Any]:
    return websocket_connector(url, given, lambda stream: stream, loop, AsyncioRuntime(None))


async def _start(make: MakeConnector, group: asyncio.TaskGroup | None, options: Mapping[str, Any]) -> Started[Client]:
    given = dict(options)
    connector = make(given, AsyncioEventLoop())
    return await open_in_either_era(lambda options: _connect(connector, group, options), given)


async def _connect(
    connector: SocketConnector[Any], group: asyncio.TaskGroup | None, given: dict[str, Any]
) -> Started[Client]:
    adapter, make_client = await connector.client(given)

    def abort() -> None:
        newest: Any = connector.adapter
        newest.stream.cut()

    return await start_client(adapter, group, given, make_client, abort=abort)
