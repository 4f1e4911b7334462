"""The queue of store effects of durable sessions: their order, and the continuation of each.

Output commit: nothing that depends on a session is sent before the store has that state. So the next process knows all
that a client has seen, and no client has seen what it does not know.
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

RETRY_AFTER: Final = 1.0
"""Seconds before a failed write is tried again."""

LOOKUP_TIMEOUT: Final = 10.0
"""Seconds that a request waits for the store to look up its session."""

KEY_LENGTH: Final = 32
"""Characters of a session id."""

Loaded: TypeAlias = Callable[["LoadedSession | None", list[Exchange]], None]
"""Takes a session that was looked up, or ``None``, and the exchanges that wait for it."""


@attrs.define(kw_only=True)
class DurableHooks:
    """How sessions become values and back, for a server with durable sessions."""

    save: Callable[[HttpSession], Mapping[str, Any]]
    """Returns a session as a value that JSON can express. It is called when all events were drained. Raises McpError
    if the session cannot be saved."""
    restore: Callable[[Mapping[str, Any], Hashable, float], ServerConnection]
    """Returns the restored connection, given the value, the principal and the time. Raises McpError if it cannot be
    restored; the session then counts as unknown."""
    report: Callable[[str, BaseException], None]
    """Reports a fault to the operator."""
    epoch: float = 0.0
    """Unix time in seconds at ``now == 0``. It may be corrected: clocks drift, or stand still for a while."""


@attrs.frozen
class LoadedSession:
    """A session that was loaded from the store."""

    key: str
    stored: StoredSession
    record: SessionRecord


@attrs.frozen
class _Entry:
    """A session to store."""

    session: HttpSession
    key: str
    journal: Journal


class StoreQueue:
    """The effects for the store, in their order, and the answers that are outstanding."""

    def __init__(
        self,
        hooks: DurableHooks,
        options: HttpOptions,
        limits: Limits,
        *,
        release: Callable[[HttpSession, Journal], None],
        refuse: Callable[[HttpSession, Journal], None],
        loaded: Loaded,
        unreachable: Callable[[list[Exchange]], None],
    ) -> None:
        """Create an empty queue.

        Args:
            hooks: How sessions become values and back.
            options: Choices of the server.
            limits: Limits on waiting exchanges and effects.
            release: Called when the store has more of a session.
            refuse: Called when a session could not be stored.
            loaded: Called when a session was looked up.
            unreachable: Called with exchanges that the store left without an answer.
        """
        self._hooks = hooks
        self._options = options
        self._limits = limits
        self._release = release
        self._refuse = refuse
        self._loaded = loaded
        self._unreachable = unreachable
        self._asked: deque[tuple[SessionEffect, _Entry | None]] = deque()
        self._answers: dict[int, tuple[SessionEffect, _Entry | None]] = {}
        # By the key of the session, as the server calls it.
        self._entries: dict[int, _Entry] = {}
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
        """Start storing a session under its id. Its principal must be an ``Owner``."""
        journal = session.journal = Journal(session, partial(self._note, session.key), self._limits, is_new=is_new)
        self._entries[session.key] = _Entry(session, id, journal)
        return journal

    def end(self, session: HttpSession) -> None:
        """Delete a session that has ended. Output that reveals the end waits until the store has deleted it."""
        entry = self.leave(session)
        if entry is None:
            return
        if entry.journal.is_new and not entry.journal.is_writing:
            # The store has never heard of it. It need not, however many of them a flood brings while it is slow.
            entry.journal.reach()
            self._release(session, entry.journal)
        else:
            self._asked.append((SessionDelete(self._take_token(), entry.key), entry))

    def leave(self, session: HttpSession) -> _Entry | None:
        """Drop a session here, and keep it in the store."""
        self._changed.pop(session.key, None)
        self._retries.clear(session.key)
        return self._entries.pop(session.key, None)

    def look_up(self, exchange: Exchange, key: str, now: float) -> bool:
        """Ask the store for the session that an exchange names; return whether that makes sense."""
        if len(key) != KEY_LENGTH or not set(key) <= _HEXADECIMAL:
            return False
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(exchange)
            return True
        if self._loads >= self._limits.exchanges:
            # The exchanges of most of them are gone.
            self._unreachable([exchange])
            return True
        self._loads += 1
        self._waiting[key] = [exchange]
        token = self._take_token()
        self._asked.append((SessionLoad(token, key), None))
        self._lookups.set(token, now + LOOKUP_TIMEOUT)
        return True

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, or ``None``."""
        due = (self._retries.next(), self._lookups.next())
        return min((each for each in due if each is not None), default=None)

    def handle_timeout(self, now: float) -> None:
        """Retry failed writes; turn away exchanges that the store has left waiting."""
        for key in self._retries.pop_expired(now):
            self._changed[key] = None
        expired = set(self._lookups.pop_expired(now))
        for effect, _ in (*self._asked, *self._answers.values()) if expired else ():
            if isinstance(effect, SessionLoad) and effect.token in expired:
                self._unreachable(self._waiting.pop(effect.key, []))

    # For the driver of the store

    def next_effect(self, now: float) -> SessionEffect | None:
        """Return the next effect for the store, or ``None``."""
        if now == float("-inf"):
            return None  # no call has told the time yet
        if not self._has_swept:
            self._has_swept = True
            idle = self._options.session_idle
            before = None if idle is None else self._hooks.epoch + now - 2 * idle
            self._asked.appendleft((SessionSweep(self._take_token(), before, self._limits.sessions), None))
        # A session whose record is as the store has it gives no effect: look at the next one.
        while not self._asked and self._changed:
            key = next(iter(self._changed))
            del self._changed[key]
            self._save(self._entries[key], now)
        if not self._asked:
            return None
        effect, entry = self._asked.popleft()
        self._answers[effect.token] = (effect, entry)
        return effect

    def store_done(self, token: int, value: Any, now: float) -> None:
        """Process the store's answer: a value, or the exception that it raised."""
        asked = self._answers.pop(token, None)
        if asked is None:
            return
        effect, entry = asked
        if isinstance(effect, SessionLoad):
            self._loads -= 1
            # Past its deadline the requests that waited for it were turned away. Others may wait for a later look-up of
            # the same session by now, and must not get this answer: the session may have been deleted in between.
            if self._lookups.get(token) is not None:
                self._lookups.clear(token)
                self._loaded_answer(effect, value, now)
        elif entry is None:
            return
        elif isinstance(value, BaseException):
            self._fail(entry, now)
        elif isinstance(effect, SessionSave):
            entry.journal.written()
            if entry.journal.has_more:
                self._note(entry.session.key)
            self._release(entry.session, entry.journal)
        else:
            entry.journal.reach()
            self._release(entry.session, entry.journal)

    @property
    def is_idle(self) -> bool:
        """Whether no effect waits or is under way."""
        return not self._asked and not self._answers and not self._changed

    # Inside

    def _note(self, key: int) -> None:
        entry = self._entries.get(key)
        # One write at a time: further changes go together in the next. A failed one is retried after a delay.
        if entry is not None and not entry.journal.is_writing and not entry.journal.is_failing:
            self._changed[key] = None

    def _save(self, entry: _Entry, now: float) -> None:
        session, journal = entry.session, entry.journal
        if session.connection.phase is Phase.CLOSING:
            # It is about to end for good: nothing of it can be resumed.
            journal.reach()
            self._release(session, journal)
            return
        idle = self._options.session_idle
        moment = self._hooks.epoch + now
        try:
            saved = self._hooks.save(session)
            written = journal.write(session, saved, moment, float("inf") if idle is None else idle / 4)
        except McpError as error:
            self._hooks.report("a session cannot be stored", error)
            self._fail(entry, now)
            return
        if written is None:
            self._release(session, journal)
        else:
            self._asked.append((SessionSave(self._take_token(), entry.key, written[0], moment, *written[1:]), entry))

    def _fail(self, entry: _Entry, now: float) -> None:
        entry.journal.failed()
        if entry.session.key in self._entries:  # a session that has ended is not deleted again: the sweep finds it
            self._retries.set(entry.session.key, now + RETRY_AFTER)
        self._refuse(entry.session, entry.journal)

    def _loaded_answer(self, effect: SessionLoad, value: Any, now: float) -> None:
        waiting = self._waiting.pop(effect.key)
        if isinstance(value, BaseException):
            self._unreachable(waiting)
            return
        found: LoadedSession | None = None
        if value is not None:
            try:
                found = self._read(effect.key, value, now)
            except McpError as error:
                # It may be of another version, which finds it again after a downgrade, until it is swept.
                self._hooks.report("a stored session cannot be read", error)
        self._loaded(found, waiting)

    def _read(self, key: str, stored: Any, now: float) -> LoadedSession | None:
        """Return a loaded session, ``None`` if it was idle for too long. Raises InvalidMessage if it is invalid."""
        record = load_session(key, stored)
        idle = self._options.session_idle
        is_idle = idle is not None and stored.at + idle <= self._hooks.epoch + now
        return None if is_idle else LoadedSession(key, stored, record)

    def _take_token(self) -> int:
        token = self._next_token
        self._next_token += 1
        return token


_HEXADECIMAL: Final = frozenset("0123456789abcdef")
