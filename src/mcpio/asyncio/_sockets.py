"""TCP and Unix sockets."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from mcpio._drivers.event_loop import EventLoop
from mcpio._drivers.serving import Endpoint, Host, serve_sockets
from mcpio._drivers.setup import open_in_either_era
from mcpio._drivers.socket_client import SocketConnector, SocketOptions, TcpOptions, tcp_connector, unix_connector
from mcpio._drivers.socket_server import ServeSocketOptions, SocketListening, SocketPeer
from mcpio.app.client import Client
from mcpio.asyncio._drivers import AsyncioClientContext, Started, start_client
from mcpio.asyncio._event_loop import AsyncioEventLoop

if TYPE_CHECKING:
    from mcpio._drivers.http_server import HttpListening, ServeHttpOptions
    from mcpio._drivers.websocket import WebSocketConnectOptions
    from mcpio._drivers.websocket_server import ServeWebSocketOptions, WebSocketListening
    from mcpio.app.server import Server

__all__ = [
    "ServeSocketOptions",
    "SocketListening",
    "SocketOptions",
    "SocketPeer",
    "TcpOptions",
]


# -------------------------------------------------------------------------------------------------------------- serving
# ``serve_tcp``, ``serve_unix``, ``serve_http`` and ``serve_websocket``.

L = TypeVar("L")


def _host() -> Host:
    return Host(AsyncioEventLoop())


@contextmanager
def _telling(started: asyncio.Future[L] | None) -> Iterator[Callable[[L], None]]:
    """Yield what sets a future. If nothing does in the block, it is cancelled, so that no waiter waits forever."""

    def tell(listening: L) -> None:
        if started is not None and not started.done():
            started.set_result(listening)

    try:
        yield tell
    finally:
        if started is not None:
            started.cancel()  # does nothing to a future that is done


async def serve_tcp(
    server: Server,
    port: int = 0,
    *,
    host: str | None = "127.0.0.1",
    ssl_context: ssl.SSLContext | None = None,
    listeners: Sequence[socket.socket] | None = None,
    started: asyncio.Future[SocketListening] | None = None,
    **options: Unpack[ServeSocketOptions],
) -> None:
    """Serve any number of clients over TCP until cancelled; then end gracefully.

    Gracefully means: no connection is accepted any more, running requests are answered within
    ``ServeSocketOptions.grace``, and then the connections are closed. ``started`` is a future that gets a
    ``SocketListening`` once clients can connect, and is cancelled if that never happens; with port 0 the system chooses
    a port. ``host=None`` listens on every address of the machine: let ``ssl_context`` ask for certificates then, since
    there is no other authentication. ``listeners`` replace ``host`` and ``port``: sockets that listen, which are closed
    at the end.

    A session that fails costs only itself. The server's lifespan is entered once, for all sessions. Tasks of tools
    outlive the sessions that started them, and end with the server. Raises OSError if the address is not available;
    what the server's lifespan raises propagates unwrapped.
    """
    with _telling(started) as tell:
        here = _host()
        endpoint = Endpoint(loop=here.loop, host=host, port=port, listeners=listeners)
        await serve_sockets(server, endpoint, here, ssl_context, options, tell)


async def serve_unix(
    server: Server,
    path: str | os.PathLike[str],
    *,
    mode: int = 0o600,
    started: asyncio.Future[SocketListening] | None = None,
    **options: Unpack[ServeSocketOptions],
) -> None:
    """Serve any number of clients on a Unix socket until cancelled, as ``serve_tcp`` does.

    ``mode`` are the permissions of the socket's file, by default for the user of this process only. The file is removed
    at the end; one that an earlier server left behind is replaced. On Linux, ``SocketPeer.user_id`` tells ``principal``
    which user a client runs as.

    Raises OSError if another server listens on the path, or a file there is not a socket.
    """
    with _telling(started) as tell:
        here = _host()
        endpoint = Endpoint(loop=here.loop, unix=path, unix_mode=mode)
        await serve_sockets(server, endpoint, here, None, options, tell)


async def serve_http(
    server: Server,
    port: int = 8000,
    *,
    host: str = "127.0.0.1",
    unix: str | os.PathLike[str] | None = None,
    unix_mode: int = 0o600,
    ssl_context: ssl.SSLContext | None = None,
    listeners: Sequence[socket.socket] | None = None,
    started: asyncio.Future[HttpListening] | None = None,
    **options: Unpack[ServeHttpOptions],
) -> None:
    """Serve any number of clients over HTTP until cancelled; then end gracefully, within ``ServeHttpOptions.grace``.

    Gracefully means: no new connection is accepted, running requests are answered or cut off when the grace is over,
    and streams end with their last chunk. ``started`` is a future that gets an
    HttpListening once clients can connect, and is cancelled if that never happens.

    ``unix`` is the path of a Unix socket, in place of ``host`` and ``port``; there ``unix_mode`` decides who is served,
    as ``mode`` does for ``serve_unix``, and no pages are. ``listeners`` replace all of these, and are closed at the
    end. With ``ssl_context`` it is HTTPS.

    Tasks of tools outlive the sessions that began them, and end with the server. An exception of the server's lifespan
    propagates unwrapped.

    Raises:
        OSError: If the address cannot be bound.
        ValueError: For an unknown parser, for options that a store excludes, for ``auth`` beside ``principal``, and for
            a server with scopes that has neither.
        ImportError: If the parser, or the extra for HTTP/2, is not installed.

    """
    from mcpio._drivers import http_server  # only servers over HTTP pay for it

    with _telling(started) as tell:
        here = _host()
        endpoint = Endpoint(loop=here.loop, host=host, port=port, unix=unix, unix_mode=unix_mode, listeners=listeners)
        await http_server.serve_http(server, endpoint, here, ssl_context, options, tell)


async def serve_websocket(
    server: Server,
    port: int = 8000,
    *,
    host: str = "127.0.0.1",
    unix: str | os.PathLike[str] | None = None,
    unix_mode: int = 0o600,
    ssl_context: ssl.SSLContext | None = None,
    listeners: Sequence[socket.socket] | None = None,
    started: asyncio.Future[WebSocketListening] | None = None,
    **options: Unpack[ServeWebSocketOptions],
) -> None:
    """Serve any number of clients over WebSocket until cancelled, and end gracefully as ``serve_http`` does.

    Running requests are answered within ``ServeWebSocketOptions.grace``, and then each WebSocket is closed with 1001.
    Each connection is one session, and a session that fails costs only itself. To serve Streamable HTTP at the same
    address too, use ``serve_http(websocket=…)``. The opening handshake is an HTTP request, and is served as
    ``serve_http`` serves those; the place, ``ssl_context`` and ``started`` are the same, which gets a
    WebSocketListening.

    ``Limits`` in the server's options bound what a client may send. An exception of the server's lifespan propagates
    unwrapped.

    Raises:
        OSError: If the address cannot be bound.
        ValueError: For an unknown parser, for ``auth`` beside ``principal``, and for a server with scopes that has
            neither.
        ImportError: If the parser is not installed.

    """
    from mcpio._drivers import websocket_server  # only servers with WebSocket pay for it

    with _telling(started) as tell:
        here = _host()
        endpoint = Endpoint(loop=here.loop, host=host, port=port, unix=unix, unix_mode=unix_mode, listeners=listeners)
        await websocket_server.serve_websocket(server, endpoint, here, ssl_context, options, tell)


# -------------------------------------------------------------------------------------------------------------- sockets
# ``open_tcp``, ``open_unix``, ``open_websocket`` and their ``connect_…``: clients over sockets.

MakeConnector = Callable[[dict[str, Any], EventLoop], SocketConnector[Any]]
"""Takes its own options out of those of the client."""


def open_tcp(host: str, port: int, **options: Unpack[TcpOptions]) -> AsyncioClientContext[Client]:
    """Async context manager that yields a client of a server on TCP. See ``serve_tcp``.

    Raises ConnectFailed if the connection or the handshake fails.
    """
    return AsyncioClientContext(lambda: _start(partial(tcp_connector, host, port), None, options))


async def connect_tcp(
    host: str, port: int, *, group: asyncio.TaskGroup | None = None, **options: Unpack[TcpOptions]
) -> Client:
    """Return a client of a server on TCP, tied to no block. See ``open_tcp``.

    It ends when any task closes it, or with ``group``; without a group it ends with the event loop.
    """
    client, _ = await _start(partial(tcp_connector, host, port), group, options)
    return client


def open_unix(path: str | os.PathLike[str], **options: Unpack[SocketOptions]) -> AsyncioClientContext[Client]:
    """Async context manager that yields a client of a server on a Unix socket. See ``serve_unix``.

    Raises ConnectFailed if the connection or the handshake fails.
    """
    return AsyncioClientContext(lambda: _start(partial(unix_connector, path), None, options))


async def connect_unix(
    path: str | os.PathLike[str], *, group: asyncio.TaskGroup | None = None, **options: Unpack[SocketOptions]
) -> Client:
    """Return a client of a server on a Unix socket, tied to no block. See ``open_unix``, and ``connect_tcp``."""
    client, _ = await _start(partial(unix_connector, path), group, options)
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


def _to_websocket(url: str, client_options: dict[str, Any], loop: EventLoop) -> SocketConnector[Any]:
    from mcpio._drivers.websocket import websocket_connector  # only clients over WebSocket pay for it

    return websocket_connector(url, client_options, loop)


async def _start(make: MakeConnector, group: asyncio.TaskGroup | None, options: Mapping[str, Any]) -> Started[Client]:
    client_options = dict(options)
    connector = make(client_options, AsyncioEventLoop())
    return await open_in_either_era(lambda options: _connect(connector, group, options), client_options)


async def _connect(
    connector: SocketConnector[Any], group: asyncio.TaskGroup | None, client_options: dict[str, Any]
) -> Started[Client]:
    adapter, make_client = await connector.client(client_options)

    def abort() -> None:
        newest: Any = connector.adapter
        newest.stream.cut()

    return await start_client(adapter, group, client_options, make_client, abort=abort)
