"""The sessions of one server, one to a connection, over any wire."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import trio

from mcpio._driving import report
from mcpio.app.serving import ServerSession
from mcpio.engine.table import Phase
from mcpio.trio._beginnings import TapSource, begin_server
from mcpio.trio._drivers import carry
from mcpio.trio._site import Crowd, Ground
from mcpio.trio._timekeeper import Timekeeper
from mcpio.trio._wire import Wire, close_forcefully

__all__ = ["SessionSite"]


class SessionSite:
    """The sessions of one server, one to a connection. What becomes of one costs that one only."""

    def __init__(
        self,
        ground: Ground,
        *,
        tap: TapSource | None = None,
        idle_timeout: float | None = None,
        end_timeout: float | None = None,
    ) -> None:
        """See ``ServeSocketOptions`` for the timeouts, in seconds. ``end_timeout`` is for wires that end by halves."""
        self._ground = ground
        self._tap = tap
        self._timeouts = (idle_timeout, end_timeout)
        self._sessions: Crowd[ServerSession] = Crowd()
        self._is_closing = False

    async def talk(self, wire: Wire, principal: Hashable) -> None:
        """Serve one client until its session is over, and close the wire. Nothing that the client does raises here."""
        ground = self._ground
        if self._is_closing:
            await close_forcefully(wire)
            return
        try:
            begun = begin_server(ground.server, principal, tap=self._tap)
        except Exception as error:
            report("a session could not be begun", error)
            await close_forcefully(wire)
            return
        connection: Any = begun.connection
        made: list[tuple[ServerSession, _Patience]] = []

        def make_session(driver: Any) -> ServerSession:
            session = ground.server.session(connection, driver, ground.state)
            made.append((session, _Patience(session, ground.timekeeper, *self._timeouts)))
            self._sessions.enter(session)
            return session

        try:
            await carry(begun, wire, make_session, timekeeper=ground.timekeeper)
        finally:
            for session, patience in made:
                self._sessions.leave(session)
                patience.stop()

    def close(self, grace: float) -> None:
        """Begin the end of all sessions, and no others. What runs is answered within so many seconds."""
        self._is_closing = True
        for session in self._sessions:
            session.close(grace)

    async def wait_empty(self) -> None:
        """Wait until no session is left."""
        await self._sessions.wait_empty()


class _Patience:
    """Ends a session that nobody needs any more, as far as that can be known. It looks now and then."""

    def __init__(
        self, session: ServerSession, timekeeper: Timekeeper, idle: float | None, after_end: float | None
    ) -> None:
        self._session = session
        self._timekeeper = timekeeper
        self._idle = idle
        self._after_end = after_end
        self._began = trio.current_time()
        self._end_seen: float | None = None
        self._arm(*(self._began + limit for limit in (idle, after_end) if limit is not None))

    def handle_timeout(self) -> None:
        """End the session if it is time, or else come back when it may be. The timekeeper calls this."""
        connection, now = self._session.connection, trio.current_time()
        if connection.phase is Phase.CLOSED:
            return
        if connection.phase is Phase.CLOSING:
            self._wait_for_the_last(connection.wants_read, now)
            return
        due = [] if self._after_end is None else [now + self._after_end]
        if self._idle is not None:
            pending = connection.pending
            is_busy = bool(pending.outgoing or pending.incoming)
            until = (now if is_busy else max(self._began, connection.heard_at or self._began)) + self._idle
            if until <= now:
                self._session.close()
            due.append(max(until, now))
        self._arm(*due)

    def stop(self) -> None:
        """Look no more."""
        self._timekeeper.arm(self, None)

    def _wait_for_the_last(self, may_come_more: bool, now: float) -> None:
        """Cut off what still runs for a client that ended its side: it may be gone, which looks the same."""
        if self._after_end is None:
            return
        if may_come_more:
            self._end_seen = None
        elif self._end_seen is None:
            self._end_seen = now
        elif self._end_seen + self._after_end <= now:
            self._session.close(0)
            return
        self._arm(now + self._after_end)

    def _arm(self, *due: float) -> None:
        if due:
            self._timekeeper.arm(self, min(due))
