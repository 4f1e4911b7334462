"""Clients over TCP and Unix sockets: one message a line, as over standard input and output."""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

import trio

from mcpio._checks import check_options, checked
from mcpio._drivers.event_loop import reason_of
from mcpio._drivers.tcp_keep_alive import TCP_KEEP_ALIVE
from mcpio.app.client import Client
from mcpio.engine.limits import seconds
from mcpio.errors import ConnectFailed
from mcpio.trio._drivers import ConnectOptions, TrioClientContext, start_client
from mcpio.trio._event_loop import TrioEventLoop, keep_tcp_alive
from mcpio.trio._nurseries import ungrouped
from mcpio.trio._transport import BROKEN, StreamAdapter, TransportAdapter, close_forcefully

if TYPE_CHECKING:
    from mcpio.backoff import Backoff
    from mcpio.restarts import RestartPolicy

__all__ = [
    "CONNECT_TIMEOUT",
    "SocketConnector",
    "SocketOptions",
    "TcpOptions",
    "connect_by",
    "connect_socket",
    "connect_tcp",
    "connect_unix",
    "open_tcp",
    "open_unix",
    "secured",
]

D = TypeVar("D")

CONNECT_TIMEOUT = 10.0
"""Seconds to connect, including the TLS handshake."""


class SocketOptions(ConnectOptions, total=False):
    """The keyword arguments of ``open_unix`` and ``connect_unix``: of the connection, and of all clients."""

    connect_timeout: float | None
    """Seconds to connect, including the TLS handshake; 10 by default, ``None`` for no limit."""
    reconnect: Backoff | RestartPolicy | None
    """The policy for connecting again after the connection was lost; ``None`` does not. See the guide."""
    on_session_lost: Callable[[], None] | None
    """With ``reconnect``, a plain function that is called for each lost session, before the next one starts. Without
    it, lost sessions are logged."""


class TcpOptions(SocketOptions, total=False):
    """The keyword arguments of ``open_tcp`` and ``connect_tcp``."""

    ssl_context: ssl.SSLContext | None
    """The TLS context, with the client's certificate if it has one; ``None`` uses no TLS."""
    server_hostname: str | None
    """The name that the server's certificate must have, if it is not ``host``."""
    tcp_keep_alive: float | None
    """Seconds of silence before the first TCP keep-alive probe; 60 by default, ``None`` sends none."""


def open_tcp(host: str, port: int, **options: Unpack[TcpOptions]) -> TrioClientContext[Client]:
    """Async context manager that yields a client of a server on TCP. See ``serve_tcp``.

    Raises ConnectFailed if the connection or the handshake fails.
    """
    return TrioClientContext(lambda nursery: connect_tcp(host, port, nursery=nursery, **options))


async def connect_tcp(host: str, port: int, *, nursery: trio.Nursery, **options: Unpack[TcpOptions]) -> Client:
    """Return a client of a server on TCP, tied to no block. See ``open_tcp``."""
    check_options(options, TcpOptions.__annotations__)
    given: dict[str, Any] = dict(options)
    context = checked("ssl_context", given.pop("ssl_context", None), ssl.SSLContext)
    name = given.pop("server_hostname", None) or host
    keep_alive = seconds(given.pop("tcp_keep_alive", TCP_KEEP_ALIVE))

    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return await _connect(partial(connect_socket, host, port, context, name, keep_alive), where, nursery, given)


def open_unix(path: str | os.PathLike[str], **options: Unpack[SocketOptions]) -> TrioClientContext[Client]:
    """Async context manager that yields a client of a server on a Unix socket. See ``serve_unix``.

    Raises ConnectFailed if the connection or the handshake fails.
    """
    return TrioClientContext(lambda nursery: connect_unix(path, nursery=nursery, **options))


async def connect_unix(
    path: str | os.PathLike[str], *, nursery: trio.Nursery, **options: Unpack[SocketOptions]
) -> Client:
    """Return a client of a server on a Unix socket, tied to no block. See ``open_unix``."""
    check_options(options, SocketOptions.__annotations__)
    return await _connect(partial(trio.open_unix_socket, path), os.fspath(path), nursery, dict(options))


async def connect_socket(
    host: str, port: int, context: ssl.SSLContext | None, name: str, keep_alive: float | None
) -> trio.abc.Stream:
    """Return a new connection, with TLS if there is a ``context``; ``name`` must be in the server's certificate."""
    with ungrouped():  # Trio tries several addresses at once.
        stream = await trio.open_tcp_stream(host, port)
    keep_tcp_alive(stream, keep_alive)
    return await secured(stream, context, name)


async def secured(stream: trio.SocketStream, context: ssl.SSLContext | None, name: str) -> trio.abc.Stream:
    """Return a stream with TLS on top, or as it is without a context. Closes it if the handshake fails."""
    if context is None:
        return stream
    found = trio.SSLStream(stream, context, server_hostname=name)
    try:
        await found.do_handshake()
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return found


async def _connect(
    open_stream: Callable[[], Awaitable[trio.abc.Stream]], where: str, nursery: trio.Nursery, given: dict[str, Any]
) -> Client:
    timeout = seconds(given.pop("connect_timeout", CONNECT_TIMEOUT))
    return await connect_by(SocketConnector(open_stream, where, timeout, StreamAdapter), nursery, given)


@trio.lowlevel.enable_ki_protection  # or a connection might be left that nothing closes
async def connect_by(connector: SocketConnector[Any], nursery: trio.Nursery, given: dict[str, Any]) -> Client:
    """Return a client of the connector's server, which outlives its connections if ``reconnect`` is given."""
    policy = given.pop("reconnect", None)
    if policy is None:
        given.pop("on_session_lost", None)
        return await start_client(connector.make_adapter(await connector.open()), nursery, given, Client)
    from mcpio._drivers.reconnecting import lasting_client

    adapter, make = await lasting_client(connector, policy, given, Client, TrioEventLoop())
    return await start_client(adapter, nursery, given, make)


class SocketConnector(Generic[D]):
    """Makes connections to one server, and their transport adapters."""

    def __init__(
        self,
        open_stream: Callable[[], Awaitable[D]],
        where: str,
        timeout: float | None,
        make_adapter: Callable[..., TransportAdapter],
    ) -> None:
        """``make_adapter`` takes the result of ``open_stream``; with ``end_is_loss``, its end is an error."""
        self._open_stream = open_stream
        self._where = where
        self._timeout = timeout
        self.make_adapter = make_adapter

    async def open(self) -> D:
        """Return a new stream. Raises ConnectFailed."""
        timeout, where = self._timeout, self._where
        try:
            if timeout is None:
                return await self._open_stream()
            with trio.fail_after(timeout):
                return await self._open_stream()
        except trio.TooSlowError:
            said = f"no connection to {where} within {timeout:g} s"
            raise ConnectFailed(said) from TimeoutError(said)
        except (*BROKEN, UnicodeError) as error:  # UnicodeError is for an invalid host name
            cause = error.__cause__ if isinstance(error, trio.BrokenResourceError) and error.__cause__ else error
            raise ConnectFailed(f"no connection to {where}: {reason_of(cause)}") from cause

    async def connect(self) -> TransportAdapter:
        """Return the adapter of a new connection. Raises ConnectFailed."""
        return self.make_adapter(await self.open(), end_is_loss=True)

    async def disconnect(self, adapter: TransportAdapter) -> str:
        """Close a lost connection, and return what is known of its end."""
        await close_forcefully(adapter)
        return "the connection was lost"
