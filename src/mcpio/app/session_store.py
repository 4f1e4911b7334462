"""Sessions over HTTP that outlive the process: where they are kept, and who has the store work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from mcpio.app.store_effects import apply_effects
from mcpio.http.session_records import (
    SessionChange,
    SessionDelete,
    SessionEffect,
    SessionLoad,
    SessionSave,
    StoredEvent,
    StoredSession,
)

if TYPE_CHECKING:
    from mcpio.app.runtime import Runtime

__all__ = ["MemorySessionStore", "SessionStore", "SessionStoreWorker"]

BATCH: Final = 256
"""How many effects are carried out at once."""


class SessionStore(Protocol):
    """Where sessions are kept: plain functions. Where they block they are called in a thread, one at a time."""

    @property
    def blocking(self) -> bool:
        """Whether calls wait, for a disk or a network, and so belong in a thread."""

    def session(self, key: str) -> StoredSession | None:
        """Return a session with its events, ``None`` where there is none under this key."""

    def write(self, changes: Sequence[SessionChange]) -> None:
        """Make the changes, in order: all of them or, raising, none. What is back from here is safe."""


class MemorySessionStore:
    """Keeps sessions as long as the process lives: a server that is begun again in it goes on with them."""

    blocking = False

    def __init__(self) -> None:
        self._records: dict[str, tuple[bytes, float]] = {}
        self._events: dict[str, dict[tuple[int, int], bytes]] = {}

    def session(self, key: str) -> StoredSession | None:
        """Return a session with its events."""
        found = self._records.get(key)
        if found is None:
            return None
        events = sorted(self._events[key].items())
        return StoredSession(*found, [StoredEvent(*place, data) for place, data in events])

    def write(self, changes: Sequence[SessionChange]) -> None:
        """Make the changes, in order."""
        for change in changes:
            if isinstance(change, SessionSave):
                self._records[change.key] = (change.record, change.at)
                events = self._events.setdefault(change.key, {})
                events |= {(each.stream, each.number): each.data for each in change.events}
                for place in change.forgotten:
                    events.pop(place, None)
            elif isinstance(change, SessionDelete):
                self._forget(change.key)
            else:
                self._sweep(change.before, change.most)

    def __len__(self) -> int:
        return len(self._records)

    def _sweep(self, before: float | None, most: int) -> None:
        newest_first = sorted(self._records, key=lambda key: self._records[key][1], reverse=True)
        for place, key in enumerate(newest_first):
            if place >= most or (before is not None and self._records[key][1] < before):
                self._forget(key)

    def _forget(self, key: str) -> None:
        self._records.pop(key, None)
        self._events.pop(key, None)


class SessionStoreWorker:
    """Has a store carry out what a machine wants of it, in order."""

    def __init__(
        self,
        store: SessionStore,
        runtime: Runtime,
        *,
        next_effect: Callable[[], SessionEffect | None],
        done: Callable[[int, Any], None],
        process: Callable[[], None],
        report: Callable[[str, BaseException | None], None],
    ) -> None:
        """Use a store.

        ``done`` takes a token and what the store answered; ``process`` acts on what followed from answers that came at
        another time than ``carry_on``.
        """
        self._store = store
        self._runtime = runtime
        self._next_effect = next_effect
        self._done = done
        self._process = process
        self._report = report
        self._unwritten: list[SessionEffect] = []
        self._is_writing = False

    def carry_on(self) -> bool:
        """Have the store do something here and now; tell whether it did. Where it blocks, see that a task does it."""
        if self._is_writing:
            return False
        batch = self._take()
        if batch and not self._store.blocking:
            self._note(batch, self._carry_out(batch))
            return True
        self._unwritten = batch
        if batch:
            self._is_writing = True
            self._runtime.spawn(self._write())
        return False

    async def _write(self) -> None:
        """Be the task that has the store work in a thread, until there is nothing more to do."""
        try:
            while batch := self._take():
                self._unwritten = batch
                values = await self._runtime.to_thread(partial(self._carry_out, batch))
                self._unwritten = []
                self._note(batch, values)
                self._process()
        finally:
            # Cut off, it leaves the batch to the next: to write it twice does no harm.
            self._is_writing = False

    def _take(self) -> list[SessionEffect]:
        batch, self._unwritten = self._unwritten, []
        while len(batch) < BATCH and (effect := self._next_effect()) is not None:
            batch.append(effect)
        return batch

    def _carry_out(self, batch: Sequence[SessionEffect]) -> list[Any]:
        return apply_effects(batch, self._read, self._store.write)

    def _read(self, effect: SessionEffect) -> Callable[[], Any] | None:
        return partial(self._store.session, effect.key) if isinstance(effect, SessionLoad) else None

    def _note(self, batch: Sequence[SessionEffect], values: Sequence[Any]) -> None:
        failed: BaseException | None = None
        for effect, value in zip(batch, values, strict=True):
            if isinstance(value, BaseException) and value is not failed:
                failed = value
                self._report("the store of sessions failed", value)
            self._done(effect.token, value)
