"""Clients over TCP and Unix sockets: options, connecting, and connecting again."""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mcpio._checks import check_options, checked, required
from mcpio._drivers.actor import TransportAdapter, close_forcefully
from mcpio._drivers.event_loop import TCP_KEEP_ALIVE, ByteStream, EventLoop, reason_of, stream_adapter
from mcpio._drivers.setup import ConnectOptions
from mcpio.app.client import Client
from mcpio.engine.limits import seconds
from mcpio.errors import ConnectFailed

if TYPE_CHECKING:
    from mcpio.backoff import Backoff
    from mcpio.restarts import RestartPolicy

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


class SocketConnector(Generic[D]):
    """Makes connections to one server, and their transport adapters."""

    adapter: TransportAdapter
    """The newest adapter, once there was one."""

    def __init__(
        self,
        open_stream: Callable[[], Awaitable[D]],
        where: str,
        timeout: float | None,
        make_adapter: Callable[..., TransportAdapter],
        loop: EventLoop,
    ) -> None:
        """``make_adapter`` takes the result of ``open_stream``; with ``end_is_loss``, its end is an error."""
        self._open_stream = open_stream
        self._where = where
        self._timeout = timeout
        self._make_adapter = make_adapter
        self._loop = loop

    async def client(self, options: dict[str, Any]) -> tuple[TransportAdapter, Callable[..., Client]]:
        """Connect, and return the adapter and what makes its client.

        ``options`` are the arguments of the client, from which those on reconnecting are taken out: with ``reconnect``
        the client outlives its connections. Raises ConnectFailed.
        """
        policy = options.pop("reconnect", None)
        if policy is None:
            options.pop("on_session_lost", None)
            return await self.connect(end_is_loss=False), Client
        from mcpio._drivers.reconnecting import lasting_client

        return await lasting_client(self, policy, options, Client, self._loop)

    async def connect(self, *, end_is_loss: bool = True) -> TransportAdapter:
        """Return the adapter of a new connection. Raises ConnectFailed."""
        opened = await open_in_time(self._open_stream, self._where, self._timeout, self._loop)
        self.adapter = self._make_adapter(opened, end_is_loss=end_is_loss)
        return self.adapter

    async def disconnect(self, adapter: TransportAdapter) -> str:
        """Close a lost connection, and return an error that describes its end."""
        await close_forcefully(adapter, self._loop)
        return "the connection was lost"


async def open_in_time(
    open_stream: Callable[[], Awaitable[D]], where: str, timeout: float | None, loop: EventLoop
) -> D:
    """Await ``open_stream`` with a timeout in seconds, and return its stream. Raises ConnectFailed."""
    unopenable: tuple[type[Exception], ...] = (*loop.broken, UnicodeError)  # UnicodeError: an invalid host name
    with loop.scope(timeout):
        try:
            return await open_stream()
        except unopenable as error:
            # Trio's own errors say less than their causes.
            cause = error if isinstance(error, OSError | UnicodeError) else error.__cause__ or error
            raise ConnectFailed(f"no connection to {where}: {reason_of(cause)}") from cause
    # Only an expired scope leads here: it swallows its own cancellation.
    reason = f"no connection to {where} within {timeout:g} s"
    raise ConnectFailed(reason) from TimeoutError(reason)


def tcp_connector(host: str, port: int, options: dict[str, Any], loop: EventLoop) -> SocketConnector[ByteStream]:
    """Return the connector of a server on TCP. Takes ``TcpOptions`` out of ``options``, but for those of the client."""
    check_options(options, TcpOptions.__annotations__)
    required("host", host, str)
    required("port", port, int)
    context = checked("ssl_context", options.pop("ssl_context", None), ssl.SSLContext)
    name = options.pop("server_hostname", None) or host
    keep_alive = seconds("tcp_keep_alive", options.pop("tcp_keep_alive", TCP_KEEP_ALIVE))
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    timeout = seconds("connect_timeout", options.pop("connect_timeout", CONNECT_TIMEOUT))

    async def connect() -> ByteStream:
        return await connect_socket(loop, host, port, None, context, name, keep_alive)

    return SocketConnector(connect, where, timeout, partial(stream_adapter, loop=loop), loop)


def unix_connector(
    path: str | os.PathLike[str],
    options: dict[str, Any],
    loop: EventLoop,
) -> SocketConnector[ByteStream]:
    """Return the connector of a server on a Unix socket. See ``tcp_connector``."""
    check_options(options, SocketOptions.__annotations__)
    where = os.fspath(path)
    timeout = seconds("connect_timeout", options.pop("connect_timeout", CONNECT_TIMEOUT))

    async def connect() -> ByteStream:
        return await loop.open_stream("", 0, where)

    return SocketConnector(connect, where, timeout, partial(stream_adapter, loop=loop), loop)


async def connect_socket(
    loop: EventLoop,
    host: str,
    port: int,
    unix: str | None,
    context: ssl.SSLContext | None,
    name: str,
    keep_alive: float | None,
) -> ByteStream:
    """Return a new connection, with TLS if ``context`` is given; the server's certificate must have ``name``."""
    stream = await loop.open_stream(host, port, unix, keep_alive)
    if context is None:
        return stream
    try:
        # Only HTTP says itself where a message ends; here the end of the stream must be told from a cut.
        return await loop.start_tls(stream, context, name, https_compatible=False)
    except BaseException:  # a cancellation in the TLS handshake, too: the caller never gets the stream to close it
        await loop.abort(stream)
        raise
