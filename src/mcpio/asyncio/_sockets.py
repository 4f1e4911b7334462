"""TCP and Unix sockets."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import attrs

from mcpio._checks import required
from mcpio._drivers import lifespan_of, report
from mcpio._drivers.actor import TaskHost, hosted_tasks
from mcpio._drivers.event_loop import EventLoop, StreamAdapter
from mcpio._drivers.setup import open_in_either_era, preload
from mcpio._drivers.socket_client import SocketConnector, SocketOptions, TcpOptions, tcp_connector, unix_connector
from mcpio._drivers.socket_server import (
    BACKLOG,
    LAST_WRITES,
    Acceptor,
    ServeSocketOptions,
    SocketListening,
    SocketPeer,
    StreamHandler,
    bound_unix,
    checked_acceptor,
)
from mcpio._drivers.websocket import WebSocketConnectOptions, websocket_connector
from mcpio.app.client import Client
from mcpio.app.runtime import Spawned
from mcpio.asyncio._drivers import AsyncioClientContext, AsyncioServingContext, Started, start_client
from mcpio.asyncio._event_loop import AsyncioEventLoop, SocketStream
from mcpio.asyncio._runtime import AsyncioRuntime
from mcpio.asyncio._stdio import terminate_on_signals
from mcpio.engine.limits import seconds

if TYPE_CHECKING:
    from mcpio.app.server import Server

__all__ = [
    "ServeSocketOptions",
    "SocketListening",
    "SocketOptions",
    "SocketPeer",
    "TcpOptions",
    "WebSocketConnectOptions",
]


# -------------------------------------------------------------------------------------------------------------- serving
# ``serve_tcp`` and ``serve_unix``: servers with one session per connection.

StartedListening = asyncio.Future[SocketListening]


async def serve_tcp(
    server: Server,
    port: int = 0,
    *,
    host: str | None = "127.0.0.1",
    ssl_context: ssl.SSLContext | None = None,
    listeners: Sequence[socket.socket] | None = None,
    started: StartedListening | None = None,
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
    with _cancelled_unless_set(started):
        serving = _Serving(server, ssl_context, options, started)
        with serving.until_signalled():
            await serving.run(await _listen(host, port) if listeners is None else _given(listeners))


async def serve_unix(
    server: Server,
    path: str | os.PathLike[str],
    *,
    mode: int = 0o600,
    started: StartedListening | None = None,
    **options: Unpack[ServeSocketOptions],
) -> None:
    """Serve any number of clients on a Unix socket until cancelled, as ``serve_tcp`` does.

    ``mode`` are the permissions of the socket's file, by default for the user of this process only. The file is removed
    at the end; one that an earlier server left behind is replaced. On Linux, ``SocketPeer.user_id`` tells ``principal``
    which user a client runs as.

    Raises OSError if another server listens on the path, or a file there is not a socket.
    """
    with _cancelled_unless_set(started):
        serving = _Serving(server, None, options, started)
        with serving.until_signalled():
            async with bound_unix(path, mode, asyncio.sleep) as bound:
                await serving.run([bound])


@contextmanager
def _cancelled_unless_set(started: StartedListening | None) -> Iterator[None]:
    """Context manager that cancels a future at its end, so that its waiter does not wait forever."""
    try:
        yield
    finally:
        if started is not None:
            started.cancel()  # Does nothing to a future that is done.


class _Serving:
    """One server that is being served."""

    def __init__(
        self,
        server: Server,
        context: ssl.SSLContext | None,
        options: ServeSocketOptions,
        started: StartedListening | None,
    ) -> None:
        self._loop = AsyncioEventLoop()
        self._server = server
        self._options = options
        self._started = started
        self._sockets = _Sockets()
        self._acceptor = checked_acceptor(server, options, partial(Acceptor, self._loop, self._sockets), context)
        self._grace = seconds(options.get("grace", 0.5)) or 0.0

    def until_signalled(self) -> Any:
        """Context manager in which SIGINT and SIGTERM cancel the block and then end the process, if that is wanted."""
        wanted = self._options.get("handle_signals", False)
        return terminate_on_signals(timeout=self._grace + LAST_WRITES) if wanted else nullcontext()

    async def run(self, listeners: Sequence[socket.socket]) -> None:
        """Serve until cancelled; then end gracefully, and close the listeners."""
        loop = self._loop
        try:
            preload()
            async with lifespan_of(self._server) as state, loop.group() as runtime:
                host = TaskHost(runtime, loop.now)
                async with hosted_tasks(self._server, host, state, loop.last_moment):
                    await self._accept(listeners, AsyncioServingContext(self._server, state, loop), runtime)
        finally:
            await self._sockets.close_all(listeners)

    async def _accept(
        self, listeners: Sequence[socket.socket], context: AsyncioServingContext, runtime: AsyncioRuntime
    ) -> None:
        handler = StreamHandler(context, self._options, partial(StreamAdapter, loop=self._loop))
        connections = _Connections(runtime)
        if self._started is not None and not self._started.done():
            self._started.set_result(_address_of(listeners[0]))
        try:
            await self._acceptor.accept(listeners, connections, handler.receive, handler.make_room)
        finally:
            handler.close(self._grace)
            async with self._loop.last_moment(self._grace + LAST_WRITES / 2):
                await handler.wait_empty()
            connections.cancel()


class _Connections(AsyncioRuntime):
    """The tasks of the connections, which are cancelled together."""

    __slots__ = ("_running",)

    def __init__(self, runtime: AsyncioRuntime) -> None:
        super().__init__(runtime.group)
        self._running: set[Spawned] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> Any:
        """Run a coroutine as a task."""

        async def run() -> None:
            try:
                await coroutine
            finally:
                self._running.discard(task)

        task = super().spawn(run())
        self._running.add(task)
        return task

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in tuple(self._running):
            task.cancel()


@attrs.define(eq=False)
class _Accepted:
    """A connection, at first as a socket, then as a stream."""

    socket: socket.socket
    stream: SocketStream | None = None


class _Sockets:
    """``mcpio._drivers.socket_server.ServerSockets`` for asyncio."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    async def accept(self, listener: socket.socket) -> _Accepted:
        """Wait for a connection."""
        accepted, _ = await self._loop.sock_accept(listener)
        return _Accepted(accepted)

    async def accept_waiting(self, listener: socket.socket) -> _Accepted | None:
        """Return a connection that the system has accepted already."""
        try:
            accepted, _ = listener.accept()  # listeners do not block
        except OSError:
            return None
        accepted.setblocking(False)
        return _Accepted(accepted)

    def socket_of(self, accepted: _Accepted) -> socket.socket:
        """Return the socket."""
        return accepted.socket

    async def stream(
        self, accepted: _Accepted, context: ssl.SSLContext | None, timeout: float | None, *, https_compatible: bool
    ) -> tuple[SocketStream, Any] | None:
        """Perform the TLS handshake as a server, if a context is given. asyncio limits its time to 60 s."""
        stream = SocketStream()
        try:
            await self._loop.connect_accepted_socket(
                lambda: stream,
                accepted.socket,
                ssl=context,
                ssl_handshake_timeout=None if context is None else timeout,
            )
        except OSError:
            return None  # The client is gone, or does not speak TLS as the server does.
        accepted.stream = stream
        return stream, None if context is None else stream.get_extra_info("ssl_object")

    async def abandon(self, accepted: _Accepted) -> None:
        """Close a connection forcefully."""
        if accepted.stream is None:
            accepted.socket.close()
        else:
            accepted.stream.cut()

    async def close_all(self, listeners: Sequence[socket.socket]) -> None:
        """Close listeners."""
        for listener in listeners:
            try:
                listener.close()
            except OSError as error:
                report("a listener could not be closed", error)


def _given(listeners: Sequence[socket.socket]) -> Sequence[socket.socket]:
    """Return the caller's listeners. Raises TypeError for another kind, and ValueError without any."""
    if not listeners:
        raise ValueError("listeners= is empty: give at least one socket that listens")
    for listener in listeners:
        # asyncio accepts from a blocking socket too, and holds up the event loop until a client comes.
        required("listeners", listener, socket.socket).setblocking(False)
    return listeners


async def _listen(host: str | None, port: int) -> list[socket.socket]:
    """Listen on every address of a host; with port 0 on one only, since each would get a different port.

    Raises OSError if an address is not available; its ``filename`` is the address, so that the text names it.
    """
    listeners: list[socket.socket] = []
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in dict.fromkeys(found):
            listeners.append(made := socket.socket(family, kind, protocol))
            made.setblocking(False)
            if os.name == "posix":
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind(address)
            made.listen(BACKLOG)
            if port == 0:
                break
    except BaseException as error:
        for listener in listeners:
            listener.close()
        if isinstance(error, OSError):
            error.filename = f"{'every address' if host is None else host} port {port}"
        raise
    return listeners


def _address_of(listener: socket.socket) -> SocketListening:
    if listener.family not in (socket.AF_INET, socket.AF_INET6):
        return SocketListening(None, None)
    host, port, *_ = listener.getsockname()
    return SocketListening(host, port)


# -------------------------------------------------------------------------------------------------------------- sockets
# ``open_tcp``, ``open_unix``, ``open_websocket`` and their ``connect_…``: clients over sockets.

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
