"""The HTTP+SSE transport of 2024-11-05, for clients that know no other: one path to listen, one to POST to (FALL-05).

A session begins when its client listens and ends with that. Everything that the server says goes out there, the answers
too, and the first event is the address that the client is to POST to (FALL-01).
"""

from __future__ import annotations

from posixpath import dirname, relpath
from typing import Final

from mcpio.engine.limits import Limits
from mcpio.http.checks import LEGACY_CHECKS, Checks, Rejection
from mcpio.http.options import HttpOptions
from mcpio.http.server.endpoint import CLOSING, TOO_MANY_SESSIONS, Connect
from mcpio.http.server.registry import NO_SESSION, OVERLOADED, Sessions
from mcpio.http.server.sessions import Exchange

__all__ = ["LegacyListening", "LegacyPosting"]


class LegacyListening:
    """The path to listen at."""

    def __init__(self, connect: Connect, options: HttpOptions, sessions: Sessions, paths: tuple[str, str]) -> None:
        """``paths`` are that of this endpoint, and that to POST to."""
        self.rules: Checks = Checks(LEGACY_CHECKS, ("GET",), options, 0)
        self._connect = connect
        self._sessions = sessions
        # As it is seen from here: whatever this is mounted under, the client need not know.
        self._address = relpath(paths[1], dirname(paths[0]))

    def admit(self, exchange: Exchange) -> Rejection | None:
        """Refuse new sessions while too much is held for those that there are."""
        return OVERLOADED if self._sessions.is_overloaded else None

    def serve(self, exchange: Exchange) -> None:
        """Begin a session, which is known by what nobody can guess (FALL-03)."""
        sessions = self._sessions
        if sessions.is_closing:
            exchange.reject(CLOSING)
        elif not sessions.make_room():
            exchange.reject(TOO_MANY_SESSIONS)
        else:
            session = sessions.begin(self._connect(exchange.principal), exchange.principal)
            session.is_legacy = True
            sessions.enter(session, exchange)
            sessions.streams.open_channel(session, exchange, f"{self._address}?{_KEY}={sessions.name(session)}")
            sessions.flush(session)


class LegacyPosting:
    """The path to POST to."""

    def __init__(self, options: HttpOptions, limits: Limits, sessions: Sessions) -> None:
        self.rules: Checks = Checks(LEGACY_CHECKS, ("POST",), options, limits.message_bytes)
        self._sessions = sessions

    def admit(self, exchange: Exchange) -> Rejection | None:
        """Find the session."""
        fields = dict(field.partition("=")[::2] for field in exchange.request.query.split("&"))
        session = self._sessions.find(fields.get(_KEY, ""), exchange.principal)
        if session is None or not session.is_legacy:
            return NO_SESSION
        self._sessions.enter(session, exchange)
        return None

    def serve(self, exchange: Exchange) -> None:
        """Take a message in. Whatever becomes of it goes out where the client listens (FALL-03)."""
        session = exchange.session
        if session is None or not self._sessions.is_open(session):
            exchange.reject(NO_SESSION)
            return
        session.connection.receive_message(exchange.take_body(), self._sessions.streams.now)
        exchange.respond(202, ())
        self._sessions.flush(session)


_KEY: Final = "session_id"
