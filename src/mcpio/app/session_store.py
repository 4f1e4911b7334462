"""Sessions and the effects of machines on a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from mcpio.http.sessions import (
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


# -------------------------------------------------------------------------------------------------------- store effects
# Apply a list of store effects, batching consecutive writes; failures are returned as values.

E = TypeVar("E")


def apply_effects(
    effects: Iterable[E], read: Callable[[E], Callable[[], Any] | None], write: Callable[[list[Any]], None]
) -> list[Any]:
    """Return the store's answer to each effect: a value, or the exception that it raised.

    ``read`` returns the function to call for an effect that reads, ``None`` for one that writes. ``write`` makes a list
    of changes atomically.
    """
    values: list[Any] = []
    changes: list[E] = []
    for effect in effects:
        call = read(effect)
        if call is None:
            changes.append(effect)
            continue
        values += _change(write, changes)
        changes = []
        values.append(_tried(call))
    return values + _change(write, changes)


def _change(write: Callable[[list[Any]], None], changes: list[E]) -> list[Any]:
    return [_tried(lambda: write(changes))] * len(changes) if changes else []


def _tried(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return error


# -------------------------------------------------------------------------------------------------------- session store
# Stores of durable HTTP sessions, and the worker that carries out their effects.

BATCH: Final = 256
"""How many effects go to the store at once."""


class SessionStore(Protocol):
    """A store of sessions: plain functions, called one at a time, in a thread if they block."""

    @property
    def blocking(self) -> bool:
        """Whether calls wait for a disk or a network, and so need a thread."""

    def session(self, key: str) -> StoredSession | None:
        """Return a session with its events, or ``None`` for an unknown key."""

    def write(self, changes: Sequence[SessionChange]) -> None:
        """Make the changes in order, atomically: all of them, or none if it raises. On return they are durable."""


class MemorySessionStore:
    """Keeps sessions in memory: a server that is started again in the same process resumes them."""

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
        """Make the changes in order."""
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
    """Carries out the effects of a machine by a store, in order."""

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

        Args:
            store: The store.
            runtime: Runs the thread of a store that blocks.
            next_effect: Gives the next effect.
            done: Takes a token and the store's answer.
            process: Acts on what follows from answers that came outside of ``carry_on``.
            report: Reports a fault to the operator.
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
        """Perform effects, and return whether any were due. If the store blocks, start a task for them."""
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
        """Perform effects in a thread, until none are left."""
        try:
            while batch := self._take():
                self._unwritten = batch
                values = await self._runtime.to_thread(partial(self._carry_out, batch))
                self._unwritten = []
                self._note(batch, values)
                self._process()
        finally:
            # If it is cut off, the batch is left to the next task: writing it twice is harmless.
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
