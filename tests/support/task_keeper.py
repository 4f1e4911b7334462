"""The task machine by hand, and a store that answers when it is told to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mcpio.engine.tasks import (
    Owner,
    StoreDelete,
    StoreLoad,
    StorePut,
    TaskChanged,
    TaskEvent,
    TaskLimits,
    TaskMachine,
    TaskOutcome,
    TaskReplied,
)
from mcpio.errors import RequestError

EPOCH = 1_000_000.0
GOOD = TaskOutcome({"content": []})
BAD = TaskOutcome({"content": [{"type": "text", "text": "no"}], "isError": True})
WRONG = TaskOutcome(error=RequestError(-32602, "wrong", {"x": 1}))


class Disk:
    """A store that answers when it is told to."""

    def __init__(self) -> None:
        self.records: dict[str, bytes] = {}
        self.payloads: dict[str, bytes] = {}

    def answer(self, effect: Any) -> Any:
        match effect:
            case StorePut(_, key, record, payload):
                self.records[key] = bytes(memoryview(record))  # as MemoryTaskStore does
                if payload is not None:
                    self.payloads[key] = bytes(memoryview(payload))
            case StoreDelete(_, key):
                self.records.pop(key, None)
                self.payloads.pop(key, None)
            case StoreLoad(_, None):
                return list(self.records.items())
            case StoreLoad(_, str(key)):
                return self.payloads.get(key)
        return None


class Keeper:
    """A machine, its store and what it said."""

    def __init__(self, disk: Disk | None = None, now: float = 0.0, *, load: bool = True, **options: Any) -> None:
        self.now = now
        self.disk = disk or Disk()
        self.bytes = 0
        limits = TaskLimits(**options.pop("limits", {}))
        self.machine = TaskMachine(entropy=self._entropy, epoch=EPOCH, limits=limits, **options)
        self.events: list[TaskEvent] = []
        if load:
            self.machine.load(now)
            self.settle()

    def _entropy(self, size: int) -> bytes:
        self.bytes += 1
        return (self.bytes + id(self) * 1000).to_bytes(size, "big")

    def settle(self) -> list[TaskEvent]:
        """Carry out every effect, and return what is new."""
        while (effect := self.machine.next_effect()) is not None:
            self.machine.store_done(effect.token, self.disk.answer(effect), self.now)
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

    def status(self, id: str, owner: Owner = None) -> str:
        return self.machine.get(owner, id).status

    def outcome(self, id: str, owner: Owner = None) -> Any:
        """Ask for the outcome: what the answer is, or ``None`` while there is none."""
        cookie = object()
        self.machine.result(owner, id, cookie=cookie)
        replies = [event for event in self.settle() if isinstance(event, TaskReplied) and event.cookie is cookie]
        return None if not replies else said(replies[0])

    def changes(self) -> list[str]:
        return [f"{each.change} {each.task.status}" for each in self.events if isinstance(each, TaskChanged)]

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.machine.handle_timeout(self.now)
        self.settle()


def said(reply: Any) -> Any:
    if reply.error is not None:
        return reply.error.code, reply.error.message
    if isinstance(reply.value, TaskOutcome) and reply.value.error is not None:
        return reply.value.error.code, reply.value.error.message
    return reply.value.result if isinstance(reply.value, TaskOutcome) else reply.value


def refusal(keeper: Keeper, verb: str, *arguments: Any, **named: Any) -> tuple[int, str]:
    with pytest.raises(RequestError) as found:
        getattr(keeper.machine, verb)(*arguments, **named)
    return found.value.code, found.value.message
