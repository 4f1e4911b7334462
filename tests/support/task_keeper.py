"""The task machine by hand, and a store that answers when it is told to."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from mcpio.app.tasks.store import MemoryTaskStore
from mcpio.engine.tasks import (
    Owner,
    StoreDelete,
    StoreFetch,
    StorePut,
    StoreRenew,
    TaskChanged,
    TaskEnded,
    TaskEvent,
    TaskLimits,
    TaskMachine,
    TaskOutcome,
    load_record,
    not_found,
)
from mcpio.errors import RequestError
from mcpio.types.tasks import Task

EPOCH = 1_000_000.0
_DRAWN = itertools.count(1)
"""What machines draw differs, as it does everywhere else."""
GOOD = TaskOutcome({"content": []})
BAD = TaskOutcome({"content": [{"type": "text", "text": "no"}], "isError": True})
WRONG = TaskOutcome(error=RequestError(-32602, "wrong", {"x": 1}))


class Disk(MemoryTaskStore):
    """A store that answers when it is told to."""

    @property
    def records(self) -> dict[str, bytes]:
        return {key: row.record for key, row in self._rows.items()}

    def perform(self, effect: Any) -> Any:
        match effect:
            case StorePut() | StoreDelete():
                return self.write([effect])[0]
            case StoreFetch():
                return self.fetch(effect.key)
            case StoreRenew():
                return self.renew(effect.keys, effect.lease)
            case _:
                return self.adopt(effect.lease)


class Keeper:
    """A machine, its store and what it said."""

    def __init__(self, disk: Disk | None = None, now: float = 0.0, *, load: bool = True, **options: Any) -> None:
        self.now = now
        self.disk = disk or Disk()
        limits = TaskLimits(**options.pop("limits", {}))
        self.machine = TaskMachine(entropy=self._entropy, epoch=EPOCH, limits=limits, **options)
        self.events: list[TaskEvent] = []
        if load:
            self.machine.load(now)
            self.settle()

    def _entropy(self, size: int) -> bytes:
        return next(_DRAWN).to_bytes(size, "big")

    def settle(self) -> list[TaskEvent]:
        """Carry out every effect, and return what is new."""
        while (effect := self.machine.next_effect()) is not None:
            self.machine.store_done(effect.token, self.disk.perform(effect), self.now)
        return self.drain()

    def drain(self) -> list[TaskEvent]:
        found = list(self._drained())
        self.events.extend(found)
        return found

    def _drained(self) -> Iterator[TaskEvent]:
        while (event := self.machine.next_event()) is not None:
            yield event

    def create(self, owner: Owner = None, **options: Any) -> str:
        id = self.machine.create(owner, "dig", now=self.now, cookie="made", **options)
        self.settle()
        return id

    def finish(self, id: str, outcome: TaskOutcome = GOOD) -> bool:
        done = self.machine.finish(id, outcome, now=self.now)
        self.settle()
        return done

    def get(self, owner: Owner, id: str) -> Task:
        """Return a task: from the machine what runs here, all else from the store."""
        look = self.machine.look(owner, id)
        if look is not None:
            return look.task
        stored = self.disk.fetch(id)
        record = None if stored is None else load_record(id, stored.record)
        if record is None or record.owner != owner:
            raise not_found(id)
        return record.view()

    def inputs(self, id: str) -> Mapping[str, Any]:
        look = self.machine.look(None, id)
        assert look is not None
        return look.inputs

    def status(self, id: str, owner: Owner = None) -> str:
        return self.get(owner, id).status

    def outcome(self, id: str) -> Any:
        """Return what those that wait for the outcome were told, ``None`` while there is none."""
        ends = [event for event in self.events if isinstance(event, TaskEnded) and event.id == id]
        return said(ends[-1].outcome) if ends else None

    def changes(self) -> list[str]:
        return [f"{each.change} {each.task.status}" for each in self.events if isinstance(each, TaskChanged)]

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.machine.handle_timeout(self.now)
        self.settle()


def done(answer: Any) -> Any:
    """Return the answer of a store, whose method may be async and waits for nothing."""
    if not inspect.iscoroutine(answer):
        return answer
    with pytest.raises(StopIteration) as found:
        answer.send(None)
    return found.value.value


def said(answer: Any) -> Any:
    """Return what an outcome or a reply says: its result, or the code and text of its error."""
    if answer.error is not None:
        return answer.error.code, answer.error.message
    return answer.result if isinstance(answer, TaskOutcome) else answer.value


def refusal(keeper: Keeper, verb: str, *arguments: Any, **named: Any) -> tuple[int, str]:
    with pytest.raises(RequestError) as found:
        getattr(keeper if verb == "get" else keeper.machine, verb)(*arguments, **named)
    return found.value.code, found.value.message
