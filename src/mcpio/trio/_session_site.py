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

    def __init__(self, ground: Ground, *, tap: TapSource | None = None, idle_timeout: float | None = None) -> None:
        """``idle_timeout`` closes a session by which nothing comes for so many seconds, and for which nothing runs."""
        self._ground = ground
        self._tap = tap
        self._idle_timeout = idle_timeout
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
        made: list[tuple[ServerSession, _Idle | None]] = []

        def make_session(driver: Any) -> ServerSession:
            session = ground.server.session(connection, driver, ground.state)
            limit = self._idle_timeout
            made.append((session, None if limit is None else _Idle(session, ground.timekeeper, limit)))
            self._sessions.enter(session)
            return session

        try:
            await carry(begun, wire, make_session, timekeeper=ground.timekeeper)
        finally:
            for session, idle in made:
                self._sessions.leave(session)
                if idle is not None:
                    ground.timekeeper.arm(idle, None)

    def close(self, grace: float) -> None:
        """Begin the end of all sessions, and no others. What runs is answered within so many seconds."""
        self._is_closing = True
        for session in self._sessions:
            session.close(grace)

    async def wait_empty(self) -> None:
        """Wait until no session is left."""
        await self._sessions.wait_empty()


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
