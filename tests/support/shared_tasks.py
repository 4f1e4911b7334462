"""A store of tasks that several processes share, in memory and by a clock of the test's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from mcpio.app.runtime import settled
from mcpio.engine.tasks import Owner, StoreDelete, StoredTask, StorePut


@attrs.define
class Row:
    record: bytes
    payload: bytes | None
    owner: Owner
    version: int = 1
    holder: int = 0
    until: float = 0.0
    answers: dict[str, bytes] = attrs.field(factory=dict)


class Shelf:
    """What all processes see."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rows: dict[str, Row] = {}
        self.callbacks: dict[int, Callable[[str | None], None]] = {}
        self.puts: list[StorePut] = []
        self.heard = 0.0
        self.grace = 0.0
        self.is_broken = False
        self.is_mute = False

    def tell(self, key: str) -> None:
        for callback in () if self.is_mute else tuple(self.callbacks.values()):
            callback(key)


class SharedShelf:
    """One process's way to a shelf: a ``TaskStore``."""

    blocking = False
    lease = 30.0
    clock_offset = 0.0
    _numbers = itertools.count(1)

    def __init__(self, shelf: Shelf | None = None) -> None:
        self.shelf = shelf or Shelf()
        self.number = next(self._numbers)

    def _rows(self) -> dict[str, Row]:
        if self.shelf.is_broken:
            raise OSError("no way to the shelf")
        return self.shelf.rows

    def _stored(self, key: str, row: Row) -> StoredTask:
        return StoredTask(key, row.record, row.payload, row.version, dict(row.answers))

    async def write(self, changes: Sequence[StorePut | StoreDelete]) -> list[bool]:
        return [self.put(each) if isinstance(each, StorePut) else self.delete(each.key) for each in changes]

    def put(self, change: StorePut) -> bool:
        row = self._rows().get(change.key)
        self.shelf.puts.append(change)
        if row is None:
            row = self._rows()[change.key] = Row(b"", None, change.owner, 0, self.number)
        elif row.holder != self.number and not (row.until == float("inf") and row.record == bytes(change.record)):
            return False
        row.record = bytes(change.record)
        row.payload = row.payload if change.payload is None else bytes(change.payload)
        row.version += 1
        self._lease(row, change.lease)
        self.shelf.tell(change.key)
        return True

    def _lease(self, row: Row, lease: float | None) -> None:
        row.holder = self.number if lease else 0
        row.until = float("inf") if lease is None else lease and self.shelf.now + lease

    def delete(self, key: str) -> bool:
        row = self._rows().get(key)
        if row is None or (row.holder != self.number and row.until != float("inf")):
            return False
        del self._rows()[key]
        self.shelf.tell(key)
        return True

    async def fetch(self, key: str) -> StoredTask | None:
        row = self._rows().get(key)
        return None if row is None else self._stored(key, row)

    async def summary(self, key: str) -> StoredTask | None:
        row = self._rows().get(key)
        return None if row is None else attrs.evolve(self._stored(key, row), payload=None)

    async def end(self, key: str, version: int, record: bytes) -> bool:
        row = self._rows().get(key)
        if row is None or row.version != version:
            return False
        row.record, row.version = record, version + 1
        self._lease(row, None)
        self.shelf.tell(key)
        return True

    async def answer(self, key: str, answers: Mapping[str, bytes]) -> None:
        row = self._rows().get(key)
        if row is not None:
            row.answers = {**answers, **row.answers}
            self.shelf.tell(key)

    def _hear(self, lease: float) -> None:
        shelf = self.shelf
        if shelf.now - shelf.heard > lease / 2:
            shelf.grace = shelf.now + lease
        shelf.heard = shelf.now

    async def renew(self, keys: Sequence[str], lease: float) -> list[str]:
        rows = self._rows()
        self._hear(lease)
        lost = [key for key in keys if key not in rows or rows[key].holder != self.number]
        for key in keys:
            if key not in lost:
                self._lease(rows[key], lease)
        return lost

    async def adopt(self, lease: float) -> list[StoredTask]:
        rows, found = self._rows(), []
        self._hear(lease)
        expired = 0.0 if self.shelf.grace > self.shelf.now else self.shelf.now
        for key, row in rows.items():
            if row.until <= expired:
                self._lease(row, lease)
                found.append(self._stored(key, row))
        return found

    async def owned(self, owner: Owner) -> list[StoredTask]:
        rows = self._rows().items()
        return [self._stored(key, row) for key, row in rows if owner is not None and row.owner == owner]

    def subscribe(self, callback: Callable[[str | None], None]) -> Callable[[], object]:
        self.shelf.callbacks[self.number] = callback
        return lambda: self.shelf.callbacks.pop(self.number, None)


def put(key: str, record: bytes = b"{}", payload: bytes | None = None, **options: Any) -> StorePut:
    """Return an effect that stores a task for 30 seconds."""
    return StorePut(0, key, record, payload, **{"lease": 30.0, **options})


async def changed(store: Any, change: StorePut | StoreDelete) -> bool:
    """Have a store make one change, and return whether it did."""
    (found,) = await settled(store.write([change]))
    return bool(found)


async def delete(store: Any, key: str) -> bool:
    """Have a store delete a task, and return whether it did."""
    return await changed(store, StoreDelete(0, key))
