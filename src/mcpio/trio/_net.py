"""TCP and Unix sockets."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from math import inf
from typing import Any, Final, Protocol, TypeAlias, TypeVar, Unpack

import attrs
import trio

from mcpio._drivers import lifespan_of, report
from mcpio._drivers.actor import TaskHost, TransportAdapter, hosted_tasks
from mcpio._drivers.setup import SessionSetup, open_in_either_era, preload
from mcpio._drivers.socket_client import SocketConnector, SocketOptions, TcpOptions, tcp_connector, unix_connector
from mcpio._drivers.socket_server import (
    BACKLOG,
    LAST_WRITES,
    Acceptor,
    ListenerClosed,
    ServeSocketOptions,
    SocketListening,
    SocketPeer,
    StreamHandler,
    bound_unix,
    checked_acceptor,
)
from mcpio.app.client import Client
from mcpio.app.runtime import Driver
from mcpio.app.server import Server
from mcpio.app.server_session import ServerSession
from mcpio.engine.limits import seconds
from mcpio.trio._drivers import TrioClientContext, carry, start_client
from mcpio.trio._event_loop import BROKEN, TrioEventLoop
from mcpio.trio._runtime import Timekeeper, TrioOneShot, TrioRuntime, check_in_trio, last_moment, ungrouped
from mcpio.trio._signals import terminate_on_signals
from mcpio.trio._transport import stream_adapter

__all__ = ["Acceptor", "ServeSocketOptions", "SocketListening", "SocketOptions", "SocketPeer", "TcpOptions"]


# ------------------------------------------------------------------------------------------------------------ listening
# Listeners on Trio, and the acceptor's interface to Trio.

Listener: TypeAlias = "trio.abc.Listener[Any]"


def new_acceptor(**options: Any) -> Acceptor:
    """Return an acceptor of Trio's connections. See ``Acceptor`` for the options."""
    return Acceptor(TrioEventLoop(), _Sockets(), **options)


class _Sockets:
    """``mcpio._drivers.socket_server.ServerSockets`` for Trio: an accepted connection is a stream already."""

    async def accept(self, listener: Listener) -> Any:
        """Wait for a connection."""
        try:
            return await listener.accept()
        except trio.ClosedResourceError:
            raise ListenerClosed from None

    async def accept_waiting(self, listener: Listener) -> Any:
        """Return a connection that the system has accepted already."""
        # A socket is tried before the deadline counts.
        with trio.CancelScope(shield=True), trio.move_on_after(0.001), suppress(ListenerClosed, OSError):
            return await self.accept(listener)
        return None

    def socket_of(self, accepted: trio.abc.Stream) -> Any:
        """Return the socket of a plain socket stream."""
        return accepted.socket if isinstance(accepted, trio.SocketStream) else None

    async def stream(
        self,
        accepted: trio.abc.Stream,
        context: ssl.SSLContext | None,
        timeout: float | None,
        *,
        https_compatible: bool,
    ) -> tuple[trio.abc.Stream, Any] | None:
        """Perform the TLS handshake as a server, if a context is given."""
        if context is None:
            return accepted, None
        secured = trio.SSLStream(accepted, context, server_side=True, https_compatible=https_compatible)
        return (secured, secured) if await _shake_hands(secured, timeout) else None

    async def abandon(self, accepted: trio.abc.Stream) -> None:
        """Close a stream forcefully."""
        await trio.aclose_forcefully(accepted)

    async def close_all(self, listeners: Sequence[Listener]) -> None:
        """Close listeners, shielded from cancellation."""
        await close_all(listeners)


async def close_all(listeners: Sequence[Listener]) -> None:
    """Close listeners, shielded from cancellation. Further calls do nothing. Failures are logged."""
    with trio.CancelScope(shield=True):
        for listener in listeners:
            try:
                await listener.aclose()
            except Exception as error:
                report("a listener could not be closed", error)


async def _shake_hands(stream: trio.SSLStream[Any], timeout: float | None) -> bool:
    """Return whether the TLS handshake succeeds within the timeout."""
    try:
        with trio.fail_after(inf if timeout is None else timeout):
            await stream.do_handshake()
    except (trio.TooSlowError, *BROKEN):
        return False
    return True


def given_listeners(listeners: Sequence[Any]) -> Sequence[Listener]:
    """Return the caller's listeners. Raises ValueError for none, and TypeError for others, as plain sockets are."""
    if not listeners:
        raise ValueError("listeners= is empty: give at least one of Trio's listeners")
    for listener in listeners:
        if not isinstance(listener, trio.abc.Listener):
            advice = "trio.SocketListener(trio.socket.from_stdlib_socket(sock)) makes one of a socket that listens"
            raise TypeError(f"listeners= takes Trio's listeners, not {listener!r:.100}: {advice}")
    return listeners


async def listen_tcp(host: str | None, port: int) -> list[trio.SocketListener]:
    """Listen on every address of a host; with port 0 on one only, since each would get a different port.

    Raises OSError if an address is not available; its ``filename`` is the address, so that the text names it.
    """
    # Before clients can connect, who would wait for it; a server that is told to end meanwhile would reset them.
    preload(*_LATE)
    try:
        listeners = await trio.open_tcp_listeners(port, host=host, backlog=BACKLOG)
    except OSError as error:
        error.filename = f"{'every address' if host is None else host} port {port}"
        raise
    if port == 0:
        for listener in listeners[1:]:
            await listener.aclose()
        del listeners[1:]
    return list(listeners)


@asynccontextmanager
async def listen_unix(path: str | os.PathLike[str], mode: int) -> AsyncIterator[trio.SocketListener]:
    """Listen on a Unix socket during a block. See ``bound_unix``."""
    async with bound_unix(path, mode, trio.sleep) as bound:
        yield trio.SocketListener(trio.socket.from_stdlib_socket(bound))


def unix_path_of(listener: Listener) -> str | None:
    """Return the path of a listener on a Unix socket, or ``None`` for another listener."""
    if not isinstance(listener, trio.SocketListener) or not hasattr(socket, "AF_UNIX"):
        return None
    if listener.socket.family != socket.AF_UNIX:
        return None
    return os.fsdecode(listener.socket.getsockname())


def address_of(listener: Listener) -> tuple[str, int] | None:
    """Return the host and port of a listener on TCP, or ``None`` for another listener."""
    if not isinstance(listener, trio.SocketListener):
        return None
    if listener.socket.family not in (trio.socket.AF_INET, trio.socket.AF_INET6):
        return None
    host, port, *_ = listener.socket.getsockname()
    return host, port


# -------------------------------------------------------------------------------------------------------------- serving
# Serving many connections until cancelled, with a graceful end; the same for every transport.

_LATE: Final = ("mcpio.trio._socket_stream",) if os.name == "posix" else ()
"""The modules that connections import late, besides those of every session."""


@attrs.frozen
class ServingContext:
    """Shared by all connections of a server while it is served, until the last of them has ended."""

    server: Server
    state: Any
    """The value of the server's lifespan."""
    runtime: TrioRuntime
    """Runs handlers that no single connection owns."""
    timekeeper: Timekeeper
    loop: TrioEventLoop = attrs.field(factory=TrioEventLoop)

    def deadlines(self) -> Timekeeper:
        """Return the timekeeper of all sessions."""
        return self.timekeeper

    async def carry(
        self, setup: SessionSetup, adapter: TransportAdapter, make_session: Callable[[Driver], ServerSession]
    ) -> None:
        """Run one session."""
        await carry(setup, adapter, make_session, timekeeper=self.timekeeper)


class ConnectionHandler(Protocol):
    """Handles the connections of a server."""

    async def receive(self, stream: trio.abc.Stream, peer: SocketPeer) -> None:
        """Handle a connection until it ends, and close its stream. Never raises for the client's input."""

    def make_room(self) -> None:
        """Close an idle connection, if any, because another client waits."""

    def retire(self) -> None:
        """Make each connection end after its current request, or its next one."""

    def close(self, grace: float) -> None:
        """Start closing all connections gracefully. Running requests have ``grace`` seconds."""

    async def wait_empty(self) -> None:
        """Wait until no connection is left."""


S = TypeVar("S", bound=ConnectionHandler)


async def serve_listeners(
    server: Server,
    make_handler: Callable[[ServingContext], S],
    acceptor: Acceptor,
    listeners: Sequence[trio.abc.Listener[Any]],
    *,
    grace: float,
    drain: float = 0.0,
    started: Callable[[S], None],
) -> None:
    """Serve until cancelled; then end gracefully, within ``drain`` and ``grace`` seconds and a moment.

    For ``drain`` seconds no connection is accepted, and those that are open serve on. ``started`` is called with the
    handler once clients can connect. Modules are imported before, since imports fail at the limit of open files. The
    server's lifespan is entered around all of it; what it raises propagates unwrapped. Tasks of tools end with it, and
    the listeners are closed. Raises ValueError for an invalid ``grace`` or ``drain``.
    """
    try:
        limits = seconds(drain) or 0.0, seconds(grace) or 0.0
        preload(*_LATE)
        async with lifespan_of(server) as state:
            hold = partial(_hold, server, state, make_handler, *limits)
            with ungrouped():
                await _accept(hold, acceptor, listeners, started, drains=bool(drain))
    finally:
        await close_all(listeners)


def until_signalled(handle_signals: bool, *limits: float) -> contextlib.AbstractContextManager[object]:
    """Context manager in which SIGINT and SIGTERM cancel the block and then end the process, if that is wanted.

    The block has the sum of ``limits`` to end, in seconds, and a moment. Raises RuntimeError outside Trio, and
    ValueError for a limit that is not a number of seconds.
    """
    check_in_trio("servers")
    limit = sum(seconds(each) or 0.0 for each in limits)
    if not handle_signals:
        return contextlib.nullcontext()
    return terminate_on_signals(timeout=limit + LAST_WRITES)


async def _accept(
    hold: Callable[..., Awaitable[None]],
    acceptor: Acceptor,
    listeners: Sequence[trio.abc.Listener[Any]],
    started: Callable[[S], None],
    *,
    drains: bool,
) -> None:
    """Accept connections until cancelled, then let ``hold`` end."""
    async with trio.open_nursery() as nursery:
        closing, held = trio.Event(), TrioOneShot()
        # Not ``nursery.start``: cancelled, it would wait for the end of ``hold`` before ``closing`` could be set.
        nursery.start_soon(hold, held, closing)
        try:
            # Shielded: clients may have connected since the listener was bound, and are served even if the server is
            # told to end before it accepts them.
            with trio.CancelScope(shield=drains):
                found = await held.wait()
            if found is None:
                return
            handler, connections = found
            started(handler)
            await acceptor.accept(listeners, connections, handler.receive, handler.make_room, drains=drains)
        finally:
            closing.set()


async def _hold(
    server: Server,
    state: Any,
    make_handler: Callable[[ServingContext], S],
    drain: float,
    grace: float,
    held: TrioOneShot,
    closing: trio.Event,
) -> None:
    """Run the tasks of all connections, shielded, and end them after ``closing``.

    ``held`` gets the connection handler, and the nursery of the connections; ``None`` if that fails.
    """
    timekeeper = Timekeeper()
    with contextlib.ExitStack() as over, trio.CancelScope(shield=True):
        over.callback(held.set, None)  # further calls do nothing
        async with trio.open_nursery() as handlers:
            handlers.start_soon(timekeeper.run)
            runtime = TrioRuntime(handlers)
            handler = make_handler(ServingContext(server, state, runtime, timekeeper))
            tasks = hosted_tasks(server, TaskHost(runtime, trio.current_time), state, last_moment)
            async with tasks, trio.open_nursery() as connections:
                held.set((handler, TrioRuntime(connections)))
                await closing.wait()
                if drain:
                    # A client that keeps a connection may be sending on it now: closed over that, the request would be
                    # lost, so the connection ends with an answer that says so.
                    handler.retire()
                    with trio.move_on_after(drain):
                        await handler.wait_empty()
                handler.close(grace)
                with trio.move_on_after(grace + LAST_WRITES / 2):
                    await handler.wait_empty()
                connections.cancel_scope.cancel()
            handlers.cancel_scope.cancel()


# --------------------------------------------------------------------------------------------------------------- server
# ``serve_tcp`` and ``serve_unix``: servers with one session per connection.


async def serve_tcp(
    server: Server,
    port: int = 0,
    *,
    host: str | None = "127.0.0.1",
    ssl_context: ssl.SSLContext | None = None,
    listeners: Sequence[trio.abc.Listener[Any]] | None = None,
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
    acceptor = checked_acceptor(server, options, new_acceptor, ssl_context)
    grace = options.get("grace", 0.5)
    with until_signalled(options.get("handle_signals", False), grace):
        bound = await listen_tcp(host, port) if listeners is None else given_listeners(listeners)
        await _run(server, bound, acceptor, grace, options, task_status)


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
    acceptor = checked_acceptor(server, options, new_acceptor)
    grace = options.get("grace", 0.5)
    with until_signalled(options.get("handle_signals", False), grace):
        async with listen_unix(path, mode) as listener:
            await _run(server, [listener], acceptor, grace, options, task_status)


async def _run(
    server: Server,
    listeners: Sequence[trio.abc.Listener[Any]],
    acceptor: Acceptor,
    grace: float,
    options: ServeSocketOptions,
    task_status: trio.TaskStatus[SocketListening],
) -> None:
    place = address_of(listeners[0]) or (None, None)
    await serve_listeners(
        server,
        lambda context: StreamHandler(context, options, stream_adapter),
        acceptor,
        listeners,
        grace=grace,
        started=lambda _: task_status.started(SocketListening(*place)),
    )


# --------------------------------------------------------------------------------------------------------------- client
# Clients over TCP and Unix sockets: one message a line, as over standard input and output.


def open_tcp(host: str, port: int, **options: Unpack[TcpOptions]) -> TrioClientContext[Client]:
    """Async context manager that yields a client of a server on TCP. See ``serve_tcp``.

    Raises ConnectFailed if the connection or the handshake fails.
    """
    return TrioClientContext(lambda nursery: connect_tcp(host, port, nursery=nursery, **options))


async def connect_tcp(host: str, port: int, *, nursery: trio.Nursery, **options: Unpack[TcpOptions]) -> Client:
    """Return a client of a server on TCP, tied to no block. See ``open_tcp``."""
    given: dict[str, Any] = dict(options)
    return await connect_by(tcp_connector(host, port, given, stream_adapter, TrioEventLoop()), nursery, given)


def open_unix(path: str | os.PathLike[str], **options: Unpack[SocketOptions]) -> TrioClientContext[Client]:
    """Async context manager that yields a client of a server on a Unix socket. See ``serve_unix``.

    Raises ConnectFailed if the connection or the handshake fails.
    """
    return TrioClientContext(lambda nursery: connect_unix(path, nursery=nursery, **options))


async def connect_unix(
    path: str | os.PathLike[str], *, nursery: trio.Nursery, **options: Unpack[SocketOptions]
) -> Client:
    """Return a client of a server on a Unix socket, tied to no block. See ``open_unix``."""
    given: dict[str, Any] = dict(options)
    return await connect_by(unix_connector(path, given, stream_adapter, TrioEventLoop()), nursery, given)


@trio.lowlevel.enable_ki_protection  # or a connection might be left that nothing closes
async def connect_by(connector: SocketConnector[Any], nursery: trio.Nursery, given: dict[str, Any]) -> Client:
    """Return a client of the connector's server, which outlives its connections if ``reconnect`` is given."""
    return await open_in_either_era(lambda options: _connect_once(connector, nursery, options), given)


async def _connect_once(connector: SocketConnector[Any], nursery: trio.Nursery, given: dict[str, Any]) -> Client:
    adapter, make = await connector.client(given)
    return await start_client(adapter, nursery, given, make)
