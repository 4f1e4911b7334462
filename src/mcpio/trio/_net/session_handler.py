"""The sessions of a server that serves one session per connection."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import trio

from mcpio._drivers import TapSource, report
from mcpio._drivers.setup import ServerSetupOptions, prepare_server
from mcpio.app.server_session import ServerSession
from mcpio.engine.connection import Connection
from mcpio.engine.table import Phase
from mcpio.trio._drivers import carry
from mcpio.trio._net.serving import ActiveSet, ServingContext
from mcpio.trio._timekeeper import Timekeeper
from mcpio.trio._transport import TransportAdapter, close_forcefully

__all__ = ["SessionHandler"]


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
        self._sessions: ActiveSet[ServerSession] = ActiveSet()
        self._is_closing = False

    async def serve_session(self, adapter: TransportAdapter, principal: Hashable) -> None:
        """Serve one client until its session is over, and close the transport. Never raises for the client."""
        context = self._context
        if self._is_closing:
            await close_forcefully(adapter)
            return
        try:
            setup = prepare_server(context.server, principal, trio.current_time(), **self._beginning)
        except Exception as error:
            report("a session could not be started", error)
            await close_forcefully(adapter)
            return
        connection: Any = setup.connection
        made: list[tuple[ServerSession, _SilenceTimer]] = []

        def make_session(driver: Any) -> ServerSession:
            session = context.server.session(connection, driver, context.state)
            made.append((session, _SilenceTimer(session, context.timekeeper, *self._timeouts)))
            self._sessions.enter(session)
            return session

        try:
            await carry(setup, adapter, make_session, timekeeper=context.timekeeper)
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


class _SilenceTimer:
    """Closes a session whose client sends no first message, or nothing for too long. Checks at its own deadlines."""

    def __init__(self, session: ServerSession, timekeeper: Timekeeper, first: float | None, idle: float | None) -> None:
        self._session = session
        self._timekeeper = timekeeper
        self._first = first
        self._idle = idle
        self._began = trio.current_time()
        self.handle_timeout()

    def handle_timeout(self) -> None:
        """Close the session if it is time, or else check again when it may be. The timekeeper calls this."""
        connection, now = self._session.connection, trio.current_time()
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
            self._timekeeper.arm(self, min(due))

    def stop(self) -> None:
        """Stop checking."""
        self._timekeeper.arm(self, None)


def _has_sent_a_message(connection: Connection) -> bool:
    """Whether the client has sent a whole message: bytes alone do not count."""
    has_answered = connection.stats.sent_bytes > 0 or connection.stats.queued_bytes > 0
    return connection.phase is not Phase.NEW or has_answered or bool(connection.pending.incoming)
