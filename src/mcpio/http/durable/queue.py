"""Sessions that outlive the process: what the store is asked, in which order, and what its answers let happen.

Output commit: nothing that rests on a session goes out before the store has what it rests on. So whatever a client has
seen, a process that takes over knows; what it does not know, no client has seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import attrs

from mcpio.engine.limits import Limits
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.engine.timers import Timers
from mcpio.errors import McpError
from mcpio.http.durable.journal import Journal
from mcpio.http.options import HttpOptions
from mcpio.http.server.sessions import Exchange, HttpSession
from mcpio.http.session_records import (
    SessionDelete,
    SessionEffect,
    SessionLoad,
    SessionRecord,
    SessionSave,
    SessionSweep,
    StoredSession,
    load_session,
)

__all__ = ["DurableHooks", "StoreQueue"]

AGAIN: Final = 1.0
"""Seconds after which a store that failed is asked again."""

PATIENCE: Final = 10.0
"""Seconds that a request waits for the store to say whether there is the session that it names."""

KEY_LENGTH: Final = 32
"""Characters of an id."""

Loaded: TypeAlias = Callable[["LoadedSession | None", list[Exchange]], None]
"""Takes a session that was looked up, ``None`` where there is none, and who waits for it."""


@attrs.define(kw_only=True)
class DurableHooks:
    """How sessions are made into values and back, for a server whose sessions outlive its process."""

    save: Callable[[HttpSession], Mapping[str, Any]]
    """Returns a session as a value that JSON can hold. It is called when all events were drained.
    ``McpError`` when that cannot be."""
    restore: Callable[[Mapping[str, Any], Hashable, float], ServerConnection]
    """Returns the connection that goes on, given the value, the principal and the time. ``McpError`` when there can be
    none; the session counts as unknown then."""
    report: Callable[[str, BaseException], None]
    """Tells the operator what went wrong."""
    epoch: float = 0.0
    """Unix time, in seconds, at ``now == 0``. It may be set anew: clocks drift, or stand still for a while."""


@attrs.frozen
class LoadedSession:
    """A session that the store knew."""

    key: str
    stored: StoredSession
    record: SessionRecord


@attrs.frozen
class _Kept:
    """A session that the store is to know."""

    session: HttpSession
    key: str
    journal: Journal


class StoreQueue:
    """The dealings of a server with the store of its sessions."""

    def __init__(
        self,
        keeping: DurableHooks,
        options: HttpOptions,
        limits: Limits,
        *,
        release: Callable[[HttpSession, Journal], None],
        refuse: Callable[[HttpSession, Journal], None],
        loaded: Loaded,
        unreachable: Callable[[list[Exchange]], None],
    ) -> None:
        """Say by callbacks what becomes of a session, or of exchanges.

        ``release``: the store has more of it; ``refuse``: it could not be stored; ``loaded``: it was looked up;
        ``unreachable``: these exchanges waited in vain.
        """
        self._keeping = keeping
        self._options = options
        self._limits = limits
        self._release = release
        self._refuse = refuse
        self._loaded = loaded
        self._unreachable = unreachable
        self._asked: deque[tuple[SessionEffect, _Kept | None]] = deque()
        self._answers: dict[int, tuple[SessionEffect, _Kept | None]] = {}
        # By the key of the session, as the server calls it.
        self._kept: dict[int, _Kept] = {}
        self._changed: dict[int, None] = {}
        self._waiting: dict[str, list[Exchange]] = {}
        self._loads = 0
        self._next_token = 1
        self._retries: Timers[int] = Timers()
        # By the token of the effect.
        self._lookups: Timers[int] = Timers()
        self._has_swept = False

    # For the server

    def open(self, session: HttpSession, id: str, *, is_new: bool) -> Journal:
        """Begin to keep a session under its id. Whoever it belongs to must be an ``Owner``."""
        journal = session.journal = Journal(session, partial(self._note, session.key), self._limits, is_new=is_new)
        self._kept[session.key] = _Kept(session, id, journal)
        return journal

    def end(self, session: HttpSession) -> None:
        """Forget a session that is over. What says so waits until the store has forgotten it too."""
        kept = self.leave(session)
        if kept is None:
            return
        if kept.journal.is_new and not kept.journal.is_writing:
            # The store has never heard of it. It need not, however many of them a flood brings while it is slow.
            kept.journal.reach()
            self._release(session, kept.journal)
        else:
            self._asked.append((SessionDelete(self._take_token(), kept.key), kept))

    def leave(self, session: HttpSession) -> _Kept | None:
        """Let go of a session as it is in the store."""
        self._changed.pop(session.key, None)
        self._retries.clear(session.key)
        return self._kept.pop(session.key, None)

    def look_up(self, exchange: Exchange, key: str, now: float) -> bool:
        """Ask the store for the session that an exchange names; return whether that makes sense."""
        if len(key) != KEY_LENGTH or not set(key) <= _HEXADECIMAL:
            return False
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(exchange)
            return True
        if self._loads >= self._limits.exchanges:
            # Nobody waits for most of them any more.
            self._unreachable([exchange])
            return True
        self._loads += 1
        self._waiting[key] = [exchange]
        token = self._take_token()
        self._asked.append((SessionLoad(token, key), None))
        self._lookups.set(token, now + PATIENCE)
        return True

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, or ``None``."""
        due = (self._retries.next(), self._lookups.next())
        return min((each for each in due if each is not None), default=None)

    def handle_timeout(self, now: float) -> None:
        """Ask a store again that failed; have nobody wait for ever for one that does not answer."""
        for key in self._retries.pop_expired(now):
            self._changed[key] = None
        expired = set(self._lookups.pop_expired(now))
        for effect, _ in (*self._asked, *self._answers.values()) if expired else ():
            if isinstance(effect, SessionLoad) and effect.token in expired:
                self._unreachable(self._waiting.pop(effect.key, []))

    # For whoever carries the effects out

    def next_effect(self, now: float) -> SessionEffect | None:
        """Return what the store is to do next, or ``None``."""
        if now == float("-inf"):
            return None  # nobody has come yet, nor is it known when that is
        if not self._has_swept:
            self._has_swept = True
            idle = self._options.session_idle
            before = None if idle is None else self._keeping.epoch + now - 2 * idle
            self._asked.appendleft((SessionSweep(self._take_token(), before, self._limits.sessions), None))
        while not self._asked and self._changed:
            key = next(iter(self._changed))
            del self._changed[key]
            self._save(self._kept[key], now)
        if not self._asked:
            return None
        effect, kept = self._asked.popleft()
        self._answers[effect.token] = (effect, kept)
        return effect

    def store_done(self, token: int, value: Any, now: float) -> None:
        """Take in what the store answered: a value, or the exception that it raised."""
        asked = self._answers.pop(token, None)
        if asked is None:
            return
        effect, kept = asked
        if isinstance(effect, SessionLoad):
            self._loads -= 1
            self._lookups.clear(token)
            self._take_in(effect, value, now)
        elif kept is None:
            return
        elif isinstance(value, BaseException):
            self._fail(kept, now)
        elif isinstance(effect, SessionSave):
            kept.journal.written()
            if kept.journal.has_more:
                self._note(kept.session.key)
            self._release(kept.session, kept.journal)
        else:
            kept.journal.reach()
            self._release(kept.session, kept.journal)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to do."""
        return not self._asked and not self._answers and not self._changed

    # Inside

    def _note(self, key: int) -> None:
        kept = self._kept.get(key)
        # One at a time: what comes meanwhile goes together. A store that failed is asked again in a while.
        if kept is not None and not kept.journal.is_writing and not kept.journal.is_failing:
            self._changed[key] = None

    def _save(self, kept: _Kept, now: float) -> None:
        session, journal = kept.session, kept.journal
        if session.connection.phase is Phase.CLOSING:
            # It is about to end for good: there is nothing that anybody could take up.
            journal.reach()
            self._release(session, journal)
            return
        idle = self._options.session_idle
        moment = self._keeping.epoch + now
        try:
            saved = self._keeping.save(session)
            written = journal.write(session, saved, moment, float("inf") if idle is None else idle / 4)
        except McpError as error:
            self._keeping.report("a session cannot be stored", error)
            self._fail(kept, now)
            return
        if written is None:
            self._release(session, journal)
        else:
            self._asked.append((SessionSave(self._take_token(), kept.key, written[0], moment, *written[1:]), kept))

    def _fail(self, kept: _Kept, now: float) -> None:
        kept.journal.failed()
        if kept.session.key in self._kept:
            self._retries.set(kept.session.key, now + AGAIN)
        self._refuse(kept.session, kept.journal)

    def _take_in(self, effect: SessionLoad, value: Any, now: float) -> None:
        waiting = self._waiting.pop(effect.key, [])
        if isinstance(value, BaseException):
            self._unreachable(waiting)
            return
        found: LoadedSession | None = None
        if value is not None:
            try:
                found = self._read(effect.key, value, now)
            except McpError as error:
                # Another version's, perhaps. Whoever goes back to that finds it again, until it is swept away.
                self._keeping.report("a stored session cannot be read", error)
        if waiting:
            self._loaded(found, waiting)

    def _read(self, key: str, stored: Any, now: float) -> LoadedSession | None:
        """Return a session, ``None`` for one that was idle for too long. ``InvalidMessage`` for what is none."""
        record = load_session(key, stored)
        idle = self._options.session_idle
        is_idle = idle is not None and stored.at + idle <= self._keeping.epoch + now
        return None if is_idle else LoadedSession(key, stored, record)

    def _take_token(self) -> int:
        token = self._next_token
        self._next_token += 1
        return token


_HEXADECIMAL: Final = frozenset("0123456789abcdef")
