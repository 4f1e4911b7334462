"""Servers and clients over sockets: TCP, Unix sockets, HTTP and WebSocket."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

import trio

from mcpio._drivers.serving import Endpoint, Host, serve_sockets
from mcpio._drivers.setup import open_in_either_era
from mcpio._drivers.socket_client import SocketConnector, SocketOptions, TcpOptions, tcp_connector, unix_connector
from mcpio._drivers.socket_server import ServeSocketOptions, SocketListening, SocketPeer
from mcpio.app.client import Client
from mcpio.app.server import Server
from mcpio.trio._drivers import TrioClientContext, start_client
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.trio._runtime import check_in_trio

if TYPE_CHECKING:
    from mcpio._drivers.http_server import HttpListening, ServeHttpOptions
    from mcpio._drivers.websocket import WebSocketConnectOptions
    from mcpio._drivers.websocket_server import ServeWebSocketOptions, WebSocketListening

__all__ = ["ServeSocketOptions", "SocketListening", "SocketOptions", "SocketPeer", "TcpOptions"]


# --------------------------------------------------------------------------------------------------------------- server
# ``serve_tcp``, ``serve_unix``, ``serve_http`` and ``serve_websocket``.

Listeners = Sequence["trio.abc.Listener[Any]"]

_LATE: Final = ("mcpio.trio._descriptors",) if os.name == "posix" else ()


def _host() -> Host:
    check_in_trio("servers")
    return Host(TrioEventLoop(), _LATE)


@trio.lowlevel.enable_ki_protection
async def serve_tcp(
    server: Server,
    port: int = 0,
    *,
    host: str | None = "127.0.0.1",
    ssl_context: ssl.SSLContext | None = None,
    listeners: Listeners | None = None,
    task_status: trio.TaskStatus[SocketListening] = trio.TASK_STATUS_IGNORED,
    **options: Unpack[ServeSocketOptions],
) -> None:
    """Serve any number of clients over TCP until cancelled; then end gracefully.

    Gracefully means: no connection is accepted any more, running requests are answered within
    ``ServeSocketOptions.grace``, and then the connections are closed. ``nursery.start`` returns a ``SocketListening``;
    with port 0 the system chooses a port. ``host=None`` listens on every address of the machine: let ``ssl_context``
    ask for certificates then, since there is no other authentication. ``listeners`` replace ``host`` and ``port``, and
    are closed at the end; it also ends when all of them were closed.

    A session that fails costs only itself. The server's lifespan is entered once, for all sessions. Tasks of tools
    outlive the sessions that started them, and end with the server. Raises OSError if the address is not available;
    what the server's lifespan raises propagates unwrapped.
    """
    here = _host()
    endpoint = Endpoint(loop=here.loop, host=host, port=port, listeners=listeners)
    await serve_sockets(server, endpoint, here, ssl_context, options, task_status.started)


@trio.lowlevel.enable_ki_protection
async def serve_unix(
    server: Server,
    path: str | os.PathLike[str],
    *,
    mode: int = 0o600,
    task_status: trio.TaskStatus[SocketListening] = trio.TASK_STATUS_IGNORED,
    **options: Unpack[ServeSocketOptions],
) -> None:
    """Serve any number of clients on a Unix socket until cancelled, as ``serve_tcp`` does.

    ``mode`` are the permissions of the socket's file, by default for the user of this process only. The file is removed
    at the end; one that an earlier server left behind is replaced. On Linux, ``SocketPeer.user_id`` tells ``principal``
    which user a client runs as.

    Raises OSError if another server listens on the path, or a file there is not a socket.
    """
    here = _host()
    endpoint = Endpoint(loop=here.loop, unix=path, unix_mode=mode)
    await serve_sockets(server, endpoint, here, None, options, task_status.started)


@trio.lowlevel.enable_ki_protection
async def serve_http(
    server: Server,
    port: int = 8000,
    *,
    host: str = "127.0.0.1",
    unix: str | os.PathLike[str] | None = None,
    unix_mode: int = 0o600,
    ssl_context: ssl.SSLContext | None = None,
    listeners: Listeners | None = None,
    task_status: trio.TaskStatus[HttpListening] = trio.TASK_STATUS_IGNORED,
    **options: Unpack[ServeHttpOptions],
) -> None:
    """Serve any number of clients over HTTP until cancelled; then end gracefully, within ``ServeHttpOptions.grace``.

    Gracefully means: no new connection is accepted, running requests are answered or cut off when the grace is over,
    and streams end with their last chunk. ``nursery.start`` returns an HttpListening.

    ``unix`` is the path of a Unix socket, in place of ``host`` and ``port``; there ``unix_mode`` decides who is served,
    as ``mode`` does for ``serve_unix``, and no pages are. ``listeners`` replace all of these, and are closed at the
    end; the
    server also ends if all of them are closed earlier. With ``ssl_context`` it is HTTPS.

    Tasks of tools outlive the sessions that began them, and end with the server. An exception of the server's lifespan
    propagates unwrapped.

    Raises:
        OSError: If the address cannot be bound.
        ValueError: For an unknown parser, for options that a store excludes, for ``auth`` beside ``principal``, and for
            a server with scopes that has neither.
        ImportError: If the parser, or the extra for HTTP/2, is not installed.

    """
    from mcpio._drivers import http_server  # only servers over HTTP pay for it

    here = _host()
    endpoint = Endpoint(loop=here.loop, host=host, port=port, unix=unix, unix_mode=unix_mode, listeners=listeners)
    await http_server.serve_http(server, endpoint, here, ssl_context, options, task_status.started)


@trio.lowlevel.enable_ki_protection
async def serve_websocket(
    server: Server,
    port: int = 8000,
    *,
    host: str = "127.0.0.1",
    unix: str | os.PathLike[str] | None = None,
    unix_mode: int = 0o600,
    ssl_context: ssl.SSLContext | None = None,
    listeners: Listeners | None = None,
    task_status: trio.TaskStatus[WebSocketListening] = trio.TASK_STATUS_IGNORED,
    **options: Unpack[ServeWebSocketOptions],
) -> None:
    """Serve any number of clients over WebSocket until cancelled, and end gracefully as ``serve_http`` does.

    Running requests are answered within ``ServeWebSocketOptions.grace``, and then each WebSocket is closed with 1001.
    Each connection is one session, and a session that fails costs only itself. To serve Streamable HTTP at the same
    address too, use ``serve_http(websocket=…)``. The opening handshake is an HTTP request, and is served as
    ``serve_http`` serves those; the place and ``ssl_context`` are the same, and ``nursery.start`` returns a
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

    here = _host()
    endpoint = Endpoint(loop=here.loop, host=host, port=port, unix=unix, unix_mode=unix_mode, listeners=listeners)
    await websocket_server.serve_websocket(server, endpoint, here, ssl_context, options, task_status.started)


# --------------------------------------------------------------------------------------------------------------- client
# Clients over TCP and Unix sockets: one message a line, as over standard input and output.


def open_tcp(host: str, port: int, **options: Unpack[TcpOptions]) -> TrioClientContext[Client]:
    """Async context manager that yields a client of a server on TCP. See ``serve_tcp``.

    Raises ConnectFailed if the connection or the handshake fails.
    """
    return TrioClientContext(lambda nursery: connect_tcp(host, port, nursery=nursery, **options))


async def connect_tcp(host: str, port: int, *, nursery: trio.Nursery, **options: Unpack[TcpOptions]) -> Client:
    """Return a client of a server on TCP, tied to no block. See ``open_tcp``."""
    client_options: dict[str, Any] = dict(options)
    return await connect_by(tcp_connector(host, port, client_options, TrioEventLoop()), nursery, client_options)


def open_unix(path: str | os.PathLike[str], **options: Unpack[SocketOptions]) -> TrioClientContext[Client]:
    """Async context manager that yields a client of a server on a Unix socket. See ``serve_unix``.

    Raises ConnectFailed if the connection or the handshake fails.
    """
    return TrioClientContext(lambda nursery: connect_unix(path, nursery=nursery, **options))


async def connect_unix(
    path: str | os.PathLike[str], *, nursery: trio.Nursery, **options: Unpack[SocketOptions]
) -> Client:
    """Return a client of a server on a Unix socket, tied to no block. See ``open_unix``."""
    client_options: dict[str, Any] = dict(options)
    return await connect_by(unix_connector(path, client_options, TrioEventLoop()), nursery, client_options)


def open_websocket(url: str, **options: Unpack[WebSocketConnectOptions]) -> TrioClientContext[Client]:
    """Async context manager that yields a client: ``async with open_websocket("ws://…/mcp") as client``.

    See ``connect_websocket``.
    """
    return TrioClientContext(lambda nursery: connect_websocket(url, nursery=nursery, **options))


async def connect_websocket(url: str, *, nursery: trio.Nursery, **options: Unpack[WebSocketConnectOptions]) -> Client:
    """Return a client of the server at a ``ws://`` or ``wss://`` URL, tied to no block.

    ``ws+unix://%2Frun%2Fserver.sock/mcp`` is a server on the Unix socket of that path, as for ``connect_http``.

    Raises ConnectFailed. Its cause is an OSError if there is no connection, an AuthorizationRequired for status 401 and
    403, with ``auth`` an AuthorizationError if there is no token to be had, an UnexpectedResponse for any other answer
    that is not a WebSocket with an offered subprotocol, and a RemoteProtocolError if the answer is not HTTP. Raises
    ValueError for an invalid URL or header field.

    When the connection ends, waiting calls raise ConnectionLost. Its cause tells how, unless the server closed
    gracefully (with 1000, 1001 or no code): a WebSocketClosed has any other code, 1006 for a connection that broke; a
    RemoteProtocolError tells what the server did wrong, a RequestTimeout that it gave no sign of life, and an OSError
    or ``trio.BrokenResourceError`` how the stream failed (XPORT-04).
    """
    from mcpio._drivers.websocket import websocket_connector  # only clients over WebSocket pay for it

    client_options: dict[str, Any] = dict(options)
    connector = websocket_connector(url, client_options, TrioEventLoop())
    return await connect_by(connector, nursery, client_options)


@trio.lowlevel.enable_ki_protection  # or a connection might be left that nothing closes
async def connect_by(connector: SocketConnector[Any], nursery: trio.Nursery, client_options: dict[str, Any]) -> Client:
    """Return a client of the connector's server, which outlives its connections if ``reconnect`` is given."""
    return await open_in_either_era(lambda options: _connect_once(connector, nursery, options), client_options)


async def _connect_once(
    connector: SocketConnector[Any], nursery: trio.Nursery, client_options: dict[str, Any]
) -> Client:
    adapter, make = await connector.client(client_options)
    return await start_client(adapter, nursery, client_options, make)
