"""``serve_tcp`` and ``serve_unix``: any number of clients, each with a connection and a session of its own."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Awaitable, Callable, Hashable, Sequence
from inspect import isawaitable
from typing import Any, Final, TypeAlias, TypedDict, Unpack

import attrs
import trio

from mcpio._driving import report
from mcpio.app.server import Server
from mcpio.app.serving import ServerSession
from mcpio.engine.limits import seconds
from mcpio.engine.table import Phase
from mcpio.trio._beginnings import TapSource, begin_server
from mcpio.trio._drivers import carry, check_options, lifespan_of
from mcpio.trio._groups import ungrouped
from mcpio.trio._listening import Door, SocketPeer, address_of, keep_tcp_alive, listen_tcp, listen_unix
from mcpio.trio._runtime import TrioRuntime
from mcpio.trio._signals import terminate_on_signals
from mcpio.trio._tasks import attached
from mcpio.trio._timekeeper import Timekeeper
from mcpio.trio._wire import StreamWire

__all__ = ["FindSocketPrincipal", "ServeSocketOptions", "SocketListening", "serve_tcp", "serve_unix"]

LAST_WRITES: Final = 0.4
"""Seconds, after the grace of the end, for what is left to say."""

TCP_KEEP_ALIVE: Final = 60.0

FindSocketPrincipal: TypeAlias = "Callable[[SocketPeer], Hashable | Awaitable[Hashable]]"
"""Returns whose a connection is. ``PermissionError`` turns the client away."""


class ServeSocketOptions(TypedDict, total=False):
    """The keyword arguments of ``serve_tcp`` and ``serve_unix``."""

    principal: FindSocketPrincipal | None
    """Says whose a connection is, a function or coroutine function of its ``SocketPeer``, which handlers then see;
    ``PermissionError`` turns it away. Without one it is the subject of the certificate that the client showed, where
    ``ssl_context`` asks for one, and otherwise ``None``."""
    max_connections: int
    """How many connections there may be at once, 1024 by default. Beyond, clients wait to be let in."""
    idle_timeout: float | None
    """After how many seconds a connection is closed by which nothing comes and for which nothing runs; ``None``, the
    default, keeps it. A client that pings is not idle."""
    handshake_timeout: float | None
    """Seconds that a client has for the handshake of TLS; 10 by default."""
    tcp_keep_alive: float | None
    """Seconds of silence after which the system asks whether a client on TCP is there; 60 by default, or ``None``."""
    tap: TapSource | None
    """Hears of each session. See ``mcpio.Tap``."""
    grace: float
    """Seconds that requests which run in the end have to be answered, 0.5 by default."""
    handle_signals: bool
    """Whether SIGINT and SIGTERM begin the end, and then end the process: see ``terminate_on_signals``."""


@attrs.frozen
class SocketListening:
    """A server that listens."""

    host: str | None
    """The address that it is bound to; ``None`` for what is no TCP socket."""
    port: int | None
    """The port, also where port 0 was asked for."""


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
    """Serve any number of clients over TCP until cancelled. Then it ends in order: see ``ServeSocketOptions.grace``.

    In order means: nobody new is let in, requests that run are answered, and then the connections are closed. With
    ``nursery.start`` it returns what listens; with port 0 the system finds a port. ``host=None`` listens on every
    address of the machine: then have ``ssl_context`` ask for certificates, for there is no other authentication.
    ``listeners`` are used in place of ``host`` and ``port``, and closed in the end.

    A session that fails costs itself only. The server's lifespan is entered once, for all. Tasks of tools outlive the
    sessions that began them, and end with this. Raises ``OSError`` when the address cannot be had. What the server's
    lifespan raises leaves as it is.
    """
    check_options(options, ServeSocketOptions.__annotations__)
    site = _Site(server, ssl_context, options)
    async with _until_signalled(options):
        bound = await listen_tcp(host, port) if listeners is None else listeners
        await site.run(bound, task_status)


async def serve_unix(
    server: Server,
    path: str | os.PathLike[str],
    *,
    mode: int = 0o600,
    task_status: trio.TaskStatus[SocketListening] = trio.TASK_STATUS_IGNORED,
    **options: Unpack[ServeSocketOptions],
) -> None:
    """Serve any number of clients on a Unix socket until cancelled, as ``serve_tcp`` does.

    ``mode`` says who may connect: by default the user that this process runs as. The socket's file is removed in the
    end; one that a server left behind which is gone is replaced. ``SocketPeer.user_id`` tells ``principal`` who a
    client is, on Linux.

    Raises ``OSError`` when the path cannot be had: another server listens there, or there is a file that is no socket.
    """
    check_options(options, ServeSocketOptions.__annotations__)
    site = _Site(server, None, options)
    async with _until_signalled(options), listen_unix(path, mode) as listener:
        await site.run([listener], task_status)


@contextlib.asynccontextmanager
async def _until_signalled(options: ServeSocketOptions) -> Any:
    if options.get("handle_signals", False):
        with terminate_on_signals(patience=options.get("grace", 0.5) + LAST_WRITES):
            yield
    else:
        yield


class _Site:
    """The sessions of one server, one to a connection."""

    def __init__(self, server: Server, ssl_context: ssl.SSLContext | None, options: ServeSocketOptions) -> None:
        self._server = server
        self._door = Door(
            max_connections=options.get("max_connections", 1024),
            ssl_context=ssl_context,
            handshake_timeout=seconds(options.get("handshake_timeout", 10.0)),
        )
        self._find_principal = options.get("principal")
        self._idle = seconds(options.get("idle_timeout"))
        self._tcp_keep_alive = seconds(options.get("tcp_keep_alive", TCP_KEEP_ALIVE))
        self._tap = options.get("tap")
        self._grace = seconds(options.get("grace", 0.5)) or 0.0
        self._sessions: dict[ServerSession, _Idle | None] = {}
        self._timekeeper = Timekeeper()
        self._state: Any = None
        self._is_closing = trio.Event()
        self._is_empty = trio.Event()

    async def run(
        self, listeners: Sequence[trio.abc.Listener[Any]], task_status: trio.TaskStatus[SocketListening]
    ) -> None:
        """Serve until cancelled; then end in order."""
        try:
            async with lifespan_of(self._server) as self._state:
                await self._accept(listeners, task_status)
        finally:
            for listener in listeners:
                await trio.aclose_forcefully(listener)

    async def _accept(
        self, listeners: Sequence[trio.abc.Listener[Any]], task_status: trio.TaskStatus[SocketListening]
    ) -> None:
        with ungrouped():
            async with trio.open_nursery() as nursery:
                connections = await nursery.start(self._hold)
                task_status.started(SocketListening(*(address_of(listeners[0]) or (None, None))))
                try:
                    await self._door.accept(listeners, connections, self._talk)
                finally:
                    self._is_closing.set()

    # What goes on after the cancellation, in order

    async def _hold(self, *, task_status: trio.TaskStatus[trio.Nursery]) -> None:
        """Hold the tasks of all connections, and end them when it is time."""
        tasks = self._server.tasks
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as around:
                around.start_soon(self._timekeeper.run)
                runtime = TrioRuntime(around)
                shared = contextlib.nullcontext() if tasks is None else attached(tasks, runtime, self._state)
                async with shared, trio.open_nursery() as connections:
                    task_status.started(connections)
                    await self._is_closing.wait()
                    await self._end(connections)
                around.cancel_scope.cancel()

    async def _end(self, connections: trio.Nursery) -> None:
        for session in tuple(self._sessions):
            session.close(self._grace)
        with trio.move_on_after(self._grace + LAST_WRITES / 2):
            while self._sessions:
                self._is_empty = trio.Event()
                await self._is_empty.wait()
        connections.cancel_scope.cancel()

    # One connection

    async def _talk(self, stream: trio.abc.Stream, peer: SocketPeer) -> None:
        keep_tcp_alive(stream, self._tcp_keep_alive)
        try:
            principal = await self._principal(peer)
            begun = begin_server(self._server, principal, tap=self._tap)
        except PermissionError:
            await trio.aclose_forcefully(stream)
            return
        except Exception as error:
            report("a connection could not be begun", error)
            await trio.aclose_forcefully(stream)
            return
        connection: Any = begun.connection
        made: list[ServerSession] = []

        def make_session(driver: Any) -> ServerSession:
            session = self._server.session(connection, driver, self._state)
            made.append(session)
            self._sessions[session] = None
            if self._idle is not None:
                self._sessions[session] = _Idle(session, self._timekeeper, self._idle)
            return session

        try:
            await carry(begun, StreamWire(stream), make_session, timekeeper=self._timekeeper)
        finally:
            for session in made:
                idle = self._sessions.pop(session)
                if idle is not None:
                    self._timekeeper.arm(idle, None)
            self._is_empty.set()

    async def _principal(self, peer: SocketPeer) -> Hashable:
        find = self._find_principal
        if find is None:
            return peer.certificate["subject"] if peer.certificate else None
        found = find(peer)
        return (await found) if isawaitable(found) else found


class _Idle:
    """Closes a session for which nothing is done and by which nothing comes."""

    def __init__(self, session: ServerSession, timekeeper: Timekeeper, limit: float) -> None:
        self._session = session
        self._timekeeper = timekeeper
        self._limit = limit
        self._began = trio.current_time()
        timekeeper.arm(self, self._began + limit)

    def handle_timeout(self) -> None:
        """Close the session if it is time, or else come back when it may be. The timekeeper calls this."""
        connection, now = self._session.connection, trio.current_time()
        if connection.phase in (Phase.CLOSING, Phase.CLOSED):
            return
        pending = connection.pending
        since = now if pending.outgoing or pending.incoming else max(self._began, connection.heard_at or self._began)
        if since + self._limit <= now:
            self._session.close()
        else:
            self._timekeeper.arm(self, since + self._limit)
