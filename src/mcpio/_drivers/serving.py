"""Servers on sockets: what they listen on, and serving until cancelled with a graceful end, for every transport."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import attrs

from mcpio._checks import check_options
from mcpio._drivers import check_authorization, lifespan_of
from mcpio._drivers.actor import TaskHost, hosted_tasks
from mcpio._drivers.event_loop import TCP_KEEP_ALIVE, EventLoop
from mcpio._drivers.setup import preload
from mcpio._drivers.signals import ExitTimer
from mcpio._drivers.socket_server import (
    LAST_WRITES,
    MAX_CONNECTIONS,
    Acceptor,
    ServeSocketOptions,
    ServingContext,
    SocketListening,
    SocketPeer,
    StreamHandler,
    bound_unix,
    close_all,
)
from mcpio.engine.limits import seconds

if TYPE_CHECKING:
    from mcpio.app.server import Server


# ------------------------------------------------------------------------------------------------------------ listening
# Where a server listens.


@attrs.frozen(kw_only=True)
class Endpoint:
    """Where a server listens: ``listeners`` of the caller's, or else ``unix``, or else ``host`` and ``port``."""

    loop: EventLoop
    host: str | None = None
    port: int = 0
    unix: str | os.PathLike[str] | None = None
    unix_mode: int = 0o600
    listeners: Sequence[Any] | None = None

    @asynccontextmanager
    async def bound(self) -> AsyncIterator[Sequence[Any]]:
        """Yield the listeners. Raises OSError for an address that is not available, which its text names."""
        if self.unix is not None:
            if self.listeners is not None:
                raise TypeError("give either unix= or listeners=")
            async with bound_unix(self.unix, self.unix_mode, self.loop) as bound:
                yield [self.loop.listener(bound)]
        elif self.listeners is None:
            yield await self._listen()
        elif not self.listeners:
            raise ValueError("listeners must be at least one that listens, not an empty collection")
        else:
            yield self.loop.given_listeners(self.listeners)

    async def _listen(self) -> Sequence[Any]:
        """Listen on every address of the host; with port 0 on one only, since each would get a different port."""
        try:
            first, *others = await self.loop.listen(self.host, self.port)
        except OSError as error:
            error.filename = f"{'every address' if self.host is None else self.host} port {self.port}"
            raise
        if self.port == 0:
            await close_all(others, self.loop)
            return [first]
        return [first, *others]


def address_of(listener: Any, loop: EventLoop) -> tuple[str, int] | str | None:
    """Return host and port of a listener on TCP, the path of one on a Unix socket, or ``None`` for another."""
    listening_socket = loop.socket_of(listener)
    if listening_socket is None:
        return None
    if listening_socket.family in (socket.AF_INET, socket.AF_INET6):
        host, port, *_ = listening_socket.getsockname()
        return host, port
    return (
        os.fsdecode(listening_socket.getsockname())
        if listening_socket.family == getattr(socket, "AF_UNIX", None)
        else None
    )


# -------------------------------------------------------------------------------------------------------------- serving
# Serving many connections until cancelled, with a graceful end.


class ConnectionHandler(Protocol):
    """Handles the connections of a server."""

    async def receive(self, stream: Any, peer: SocketPeer) -> None:
        """Handle a connection until it ends, and close its stream. Never raises for the client's input."""

    def make_room(self) -> None:
        """Close an idle connection, if any, because another client waits."""

    def retire(self) -> None:
        """Make each connection end after its current request, or its next one."""

    def close(self, grace: float) -> None:
        """Start closing all connections gracefully. Running requests have ``grace`` seconds."""

    async def wait_empty(self) -> None:
        """Wait until no connection is left."""

    async def finish(self) -> None:
        """Cut off the handlers that run although no connection is left: no client could hear of them."""


S = TypeVar("S", bound=ConnectionHandler)


@attrs.frozen
class Host:
    """An event loop that serves: what the drivers of Trio and asyncio give the servers that they share."""

    loop: EventLoop
    late: Sequence[str] = ()
    """Modules that connections import late, besides those of every session."""


async def serve_listeners(
    server: Server,
    make_handler: Callable[[ServingContext], S],
    acceptor: Acceptor,
    listeners: Sequence[Any],
    where: Host,
    *,
    grace: float,
    drain: float = 0.0,
    timer: ExitTimer,
    started: Callable[[S], None],
) -> None:
    """Serve until cancelled; then end gracefully, within ``drain`` and ``grace`` seconds and a moment.

    For ``drain`` seconds no connection is accepted, and those that are open serve on. ``started`` is called with the
    handler once clients can connect. The server's lifespan is entered around all of it; what it raises propagates
    unwrapped. Tasks of tools end with it, and the listeners are closed. Raises ValueError for an invalid ``grace`` or
    ``drain``.
    """
    loop = where.loop
    try:
        drain, grace = seconds("drain", drain) or 0.0, seconds("grace", grace) or 0.0
        async with lifespan_of(server) as state, loop.lasting() as runtime:
            context = ServingContext(server, state, loop, runtime, loop.timekeeper(runtime))
            handler = make_handler(context)
            tasks = hosted_tasks(server, TaskHost(runtime, loop.now), state, loop.last_moment)
            async with tasks, loop.lasting() as connections:
                try:
                    started(handler)
                    await acceptor.accept(
                        listeners, connections, handler.receive, handler.make_room, drains=bool(drain)
                    )
                finally:
                    async with loop.last_moment(None):
                        await _end(handler, acceptor, drain, grace, loop, timer)
    finally:
        await close_all(listeners, loop)


async def _end(
    handler: ConnectionHandler, acceptor: Acceptor, drain: float, grace: float, loop: EventLoop, timer: ExitTimer
) -> None:
    if drain:
        timer.extend(drain + grace + LAST_WRITES)
        # A client that keeps a connection may be sending on it now: closed over that, the request would be lost, so
        # the connection ends with an answer that says so.
        handler.retire()
        with loop.scope(drain):
            await acceptor.wait_empty()
    timer.extend(grace + LAST_WRITES)
    handler.close(grace)
    is_empty = False
    with loop.scope(grace):
        await handler.wait_empty()
        is_empty = True
    if not is_empty:
        # From here on, not from the close on: a busy loop comes late to the end of the grace, and then sends answers.
        timer.extend(LAST_WRITES)
        with loop.scope(LAST_WRITES / 2):
            await handler.wait_empty()
            is_empty = True
    if is_empty:
        await handler.finish()


def exit_timer(grace: float, drain: float = 0.0) -> ExitTimer:
    """Return the timer of a process whose server has ``grace`` and ``drain`` seconds to end, and a moment.

    Raises ValueError if one is not a number of seconds.
    """
    return ExitTimer((seconds("grace", grace) or 0.0) + (seconds("drain", drain) or 0.0) + LAST_WRITES)


def until_signalled(loop: EventLoop, handle_signals: bool, timer: ExitTimer) -> AbstractContextManager[object]:
    """Context manager in which SIGINT and SIGTERM cancel the block and then end the process, if that is wanted."""
    return loop.terminate_on_signals(timer) if handle_signals else nullcontext()


# -------------------------------------------------------------------------------------------------------------- streams
# ``serve_tcp`` and ``serve_unix``: servers with one session per connection.


async def serve_sockets(
    server: Server,
    endpoint: Endpoint,
    where: Host,
    ssl_context: ssl.SSLContext | None,
    options: ServeSocketOptions,
    started: Callable[[SocketListening], None],
) -> None:
    """Serve clients on sockets until cancelled. See ``serve_tcp``."""
    loop = where.loop
    check_options(options, ServeSocketOptions.__annotations__)
    check_authorization(server, is_authorized=options.get("principal") is not None)
    acceptor = Acceptor(
        loop,
        max_connections=options.get("max_connections", MAX_CONNECTIONS),
        max_per_address=options.get("max_per_address"),
        ssl_context=ssl_context,
        handshake_timeout=seconds("handshake_timeout", options.get("handshake_timeout", 10.0)),
        tcp_keep_alive=seconds("tcp_keep_alive", options.get("tcp_keep_alive", TCP_KEEP_ALIVE)),
    )
    grace = options.get("grace", 0.5)
    timer = exit_timer(grace)
    with until_signalled(loop, options.get("handle_signals", False), timer):
        # Before clients can connect, who would wait for it; and imports fail at the limit of open files.
        preload(*where.late)
        async with endpoint.bound() as bound:
            address = address_of(bound[0], loop)
            listening = SocketListening(*(address if isinstance(address, tuple) else (None, None)))
            await serve_listeners(
                server,
                lambda context: StreamHandler(context, options),
                acceptor,
                bound,
                where,
                grace=grace,
                timer=timer,
                started=lambda _: started(listening),
            )
