"""The sessions of a server that serves one session per connection, on any event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from mcpio._drivers import TapSource, report
from mcpio._drivers.actor import Deadlines, TransportAdapter, close_forcefully
from mcpio._drivers.event_loop import EventLoop
from mcpio._drivers.setup import ServerSetupOptions, SessionSetup, prepare_server
from mcpio._drivers.sockets.peer import ServeSocketOptions, SocketPeer
from mcpio.app.runtime import Driver
from mcpio.engine.connection import Connection
from mcpio.engine.limits import seconds
from mcpio.engine.table import Phase

if TYPE_CHECKING:  # clients do not pay for loading the server
    from mcpio.app.server import Server
    from mcpio.app.server_session import ServerSession

__all__ = ["LAST_WRITES", "ActiveSet", "ServingContext", "SessionHandler", "StreamHandler"]

T = TypeVar("T")

LAST_WRITES: Final = 0.4
"""Seconds, after the grace of the end, to write the remaining output."""

END_TIMEOUT: Final = 60.0
"""The default of ``ServeSocketOptions.end_timeout``, in seconds."""

FIRST_MESSAGE_TIMEOUT: Final = 10.0
"""The default of ``ServeSocketOptions.first_message_timeout``, in seconds."""


class ServingContext(Protocol):
    """State shared by all connections of a server while it is served."""

    @property
    def server(self) -> Server:
        """The server."""

    @property
    def state(self) -> Any:
        """The value of the server's lifespan."""

    @property
    def loop(self) -> EventLoop:
        """The event loop."""

    def deadlines(self) -> Deadlines:
        """Return ``Deadlines`` for one timer."""

    async def carry(
        self, setup: SessionSetup, adapter: TransportAdapter, make_session: Callable[[Driver], ServerSession]
    ) -> None:
        """Run one session, with its handlers, until it ends, and close its transport."""


class ActiveSet(Generic[T]):
    """An ordered set, the oldest member first, that can be waited on to become empty."""

    def __init__(self, loop: EventLoop) -> None:
        self._members: dict[T, None] = {}
        self._event = loop.event
        self._is_empty = loop.event()

    def __iter__(self) -> Iterator[T]:
        """Iterate over the present members; they may leave during that."""
        return iter(tuple(self._members))

    def __len__(self) -> int:
        return len(self._members)

    def enter(self, member: T) -> None:
        """Add a member."""
        self._members[member] = None

    def leave(self, member: T) -> None:
        """Remove a member, if it is in the set."""
        self._members.pop(member, None)
        if not self._members:
            is_empty, self._is_empty = self._is_empty, self._event()
            is_empty.set()

    async def wait_empty(self) -> None:
        """Wait until the set is empty."""
        while self._members:
            await self._is_empty.wait()


class SessionHandler:
    """Serves one session per connection. A session that fails costs only itself."""

    def __init__(
        self,
        context: ServingContext,
        *,
        tap: TapSource | None = None,
        first_message_timeout: float | None = None,
        idle_timeout: float | None = None,
        end_timeout: float | None = None,
    ) -> None:
        """See ``ServeSocketOptions`` for the timeouts. ``end_timeout`` is for transports that can half-close."""
        self._context = context
        self._beginning = ServerSetupOptions(tap=tap, end_timeout=end_timeout)
        self._timeouts = (first_message_timeout, idle_timeout)
        self._sessions: ActiveSet[ServerSession] = ActiveSet(context.loop)
        self._is_closing = False

    async def serve_session(self, adapter: TransportAdapter, principal: Hashable) -> None:
        """Serve one client until its session ends, and close the transport. Never raises for the client's input."""
        context = self._context
        if self._is_closing:
            await close_forcefully(adapter, context.loop)
            return
        try:
            setup = prepare_server(context.server, principal, context.loop.now(), **self._beginning)
        except Exception as error:
            report("a session could not be started", error)
            await close_forcefully(adapter, context.loop)
            return
        connection: Any = setup.connection
        made: list[tuple[ServerSession, _SilenceTimer]] = []

        def make_session(driver: Driver) -> ServerSession:
            session = context.server.session(connection, driver, context.state)
            made.append((session, _SilenceTimer(session, context, *self._timeouts)))
            self._sessions.enter(session)
            return session

        try:
            await context.carry(setup, adapter, make_session)
        finally:
            for session, timer in made:
                self._sessions.leave(session)
                timer.stop()

    def close(self, grace: float) -> None:
        """Start no further session, and close all. Running requests have ``grace`` seconds."""
        self._is_closing = True
        for session in self._sessions:
            session.close(grace)

    async def wait_empty(self) -> None:
        """Wait until no session is left."""
        await self._sessions.wait_empty()


class StreamHandler:
    """Handles stream connections: one message a line, one session each."""

    def __init__(
        self,
        context: ServingContext,
        options: ServeSocketOptions,
        make_adapter: Callable[[Any], TransportAdapter],
    ) -> None:
        self._sessions = SessionHandler(
            context,
            tap=options.get("tap"),
            first_message_timeout=seconds(options.get("first_message_timeout", FIRST_MESSAGE_TIMEOUT)),
            idle_timeout=seconds(options.get("idle_timeout")),
            end_timeout=seconds(options.get("end_timeout", END_TIMEOUT)),
        )
        self._loop = context.loop
        self._make_adapter = make_adapter
        self._find_principal = options.get("principal")

    async def receive(self, stream: Any, peer: SocketPeer) -> None:
        """Handle a connection until it ends, and close its stream. Never raises for the client's input."""
        try:
            principal = await self._principal(peer)
        except Exception as error:
            if not isinstance(error, PermissionError):
                report("the principal of a connection could not be found", error)
            await self._loop.abort(stream)
            return
        await self._sessions.serve_session(self._make_adapter(stream), principal)

    def retire(self) -> None:
        """Do nothing: a session continues until it is closed."""

    def make_room(self) -> None:
        """Do nothing: only the client knows whether a session is still needed."""

    def close(self, grace: float) -> None:
        """Start closing all sessions."""
        self._sessions.close(grace)

    async def wait_empty(self) -> None:
        """Wait until no session is left."""
        await self._sessions.wait_empty()

    async def _principal(self, peer: SocketPeer) -> Hashable:
        if self._find_principal is None:
            return peer.identity
        found: Hashable | Awaitable[Hashable] = self._find_principal(peer)
        return (await found) if isawaitable(found) else found


class _SilenceTimer:
    """Closes a session whose client sends no first message, or is idle for too long. Checks at its own deadlines."""

    def __init__(
        self, session: ServerSession, context: ServingContext, first: float | None, idle: float | None
    ) -> None:
        self._session = session
        self._deadlines = context.deadlines()
        self._now = context.loop.now
        self._first = first
        self._idle = idle
        self._began = self._now()
        self.handle_timeout()

    def handle_timeout(self) -> None:
        """Close the session if it is time, or else check again when it may be. Called at its deadline."""
        connection, now = self._session.connection, self._now()
        if connection.phase in (Phase.CLOSING, Phase.CLOSED):
            return
        due = []
        if self._first is not None and not _has_sent_a_message(connection):
            due.append(self._began + self._first)
        if self._idle is not None:
            is_busy = bool(connection.pending.outgoing or connection.pending.incoming)
            due.append((now if is_busy else max(self._began, connection.last_received_at or self._began)) + self._idle)
        if due and min(due) <= now:
            self._session.close()
        elif due:
            self._deadlines.arm(self, min(due))

    def stop(self) -> None:
        """Stop checking."""
        self._deadlines.arm(self, None)


def _has_sent_a_message(connection: Connection) -> bool:
    """Whether the client has sent a whole message: bytes alone do not count."""
    has_answered = connection.stats.sent_bytes > 0 or connection.stats.queued_bytes > 0
    return connection.phase is not Phase.NEW or has_answered or bool(connection.pending.incoming)
