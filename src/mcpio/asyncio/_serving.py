"""``serve_tcp`` and ``serve_unix``: servers with one session per connection."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import attrs

from mcpio._checks import required
from mcpio._drivers import lifespan_of, report
from mcpio._drivers.preloading import preload
from mcpio._drivers.sockets.accepting import Acceptor, checked_acceptor
from mcpio._drivers.sockets.peer import ServeSocketOptions, SocketListening, SocketPeer
from mcpio._drivers.sockets.sessions import LAST_WRITES, StreamHandler
from mcpio._drivers.sockets.unix_path import BACKLOG, bound_unix
from mcpio._drivers.stream_adapter import StreamAdapter
from mcpio._drivers.task_host import TaskHost, hosted_tasks
from mcpio.app.runtime import Spawned
from mcpio.asyncio._drivers import AsyncioServingContext
from mcpio.asyncio._event_loop import AsyncioEventLoop
from mcpio.asyncio._runtime import AsyncioRuntime
from mcpio.asyncio._socket_stream import SocketStream
from mcpio.asyncio._stdio import terminate_on_signals
from mcpio.engine.limits import seconds

if TYPE_CHECKING:
    from mcpio.app.server import Server

__all__ = ["ServeSocketOptions", "SocketListening", "SocketPeer", "serve_tcp", "serve_unix"]

Started = asyncio.Future[SocketListening]


async def serve_tcp(
    server: Server,
    port: int = 0,
    *,
    host: str | None = "127.0.0.1",
    ssl_context: ssl.SSLContext | None = None,
    listeners: Sequence[socket.socket] | None = None,
    started: Started | None = None,
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
    started: Started | None = None,
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
def _cancelled_unless_set(started: Started | None) -> Iterator[None]:
    """Context manager that cancels a future at its end, so that its waiter does not wait forever."""
    try:
        yield
    finally:
        if started is not None:
            started.cancel()  # Does nothing to a future that is done.


class _Serving:
    """One server that is being served."""

    def __init__(
        self, server: Server, context: ssl.SSLContext | None, options: ServeSocketOptions, started: Started | None
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
    """``mcpio._drivers.sockets.accepting.ServerSockets`` for asyncio."""

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
