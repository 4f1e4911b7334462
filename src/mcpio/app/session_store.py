"""Stores of durable HTTP sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mcpio.http.sessions import SessionChange, SessionDelete, SessionSave, StoredEvent, StoredSession


class SessionStore(Protocol):
    """A store of sessions: plain functions, called one at a time, in a thread if they block."""

    @property
    def blocking(self) -> bool:
        """Whether calls wait for a disk or a network, and so need a thread."""

    def session(self, key: str) -> StoredSession | None:
        """Return a session with its events, or ``None`` for an unknown key."""

    def write(self, changes: Sequence[SessionChange]) -> object:
        """Make the changes in order, atomically: all of them, or none if it raises. On return they are durable."""


class MemorySessionStore:
    """Keeps sessions in memory: a server that is started again in the same process resumes them."""

    blocking = False

    def __init__(self) -> None:
        self._records: dict[str, tuple[bytes, float]] = {}
        self._events: dict[str, dict[tuple[int, int], bytes]] = {}

    def session(self, key: str) -> StoredSession | None:
        """Return a session with its events."""
        record = self._records.get(key)
        if record is None:
            return None
        events = sorted(self._events[key].items())
        return StoredSession(*record, [StoredEvent(*position, data) for position, data in events])

    def write(self, changes: Sequence[SessionChange]) -> None:
        """Make the changes in order."""
        for change in changes:
            if isinstance(change, SessionSave):
                self._records[change.key] = (change.record, change.at)
                events = self._events.setdefault(change.key, {})
                events |= {(each.stream, each.number): each.data for each in change.events}
                for position in change.forgotten:
                    events.pop(position, None)
            elif isinstance(change, SessionDelete):
                self._forget(change.key)
            else:
                self._sweep(change.before, change.most)

    def __len__(self) -> int:
        return len(self._records)

    def _sweep(self, before: float | None, limit: int) -> None:
        newest_first = sorted(self._records, key=lambda key: self._records[key][1], reverse=True)
        for rank, key in enumerate(newest_first):
            if rank >= limit or (before is not None and self._records[key][1] < before):
                self._forget(key)

    def _forget(self, key: str) -> None:
        self._records.pop(key, None)
        self._events.pop(key, None)
