"""Tasks that run in another process, or are over: read and cancelled in the store that the processes share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mcpio.app.awaitables import settled
from mcpio.engine.task_records import (
    TaskChanged,
    TaskLook,
    TaskOutcome,
    TaskRecord,
    TaskState,
    dump_record,
    load_outcome,
    load_record,
    not_found,
    unreadable,
    was_cancelled,
)
from mcpio.errors import ErrorCode, InvalidMessage, RequestError
from mcpio.framing import json

if TYPE_CHECKING:
    from mcpio.app.runtime import OneShot, Runtime
    from mcpio.app.tasks.store import Settled, SharedTaskStore
    from mcpio.engine.task_records import Owner, StoredTask
    from mcpio.types.tasks import Task

__all__ = ["SharedTasks"]

T = TypeVar("T")

LONGEST_WAIT: Final = 5.0
"""Seconds after which a task is read again even if no process said that it changed: such calls may get lost."""


class SharedTasks:
    """The tasks in a shared store.

    Each call raises RequestError: -32602 for a task that its owner does not have, and -32603 while the store cannot be
    reached.
    """

    def __init__(self, store: SharedTaskStore, report: Callable[[str, BaseException], None]) -> None:
        """``report`` tells the operator of what cannot be read."""
        self._store = store
        self._report = report
        self._waiting: dict[str, list[OneShot]] = {}

    def signalled(self, id: str | None) -> None:
        """Look again at a task, if an ``outcome`` waits for it: a process changed it. ``None`` stands for any task."""
        for key in tuple(self._waiting) if id is None else (id,):
            for each in self._waiting.pop(key, ()):
                each.set(None)

    async def get(self, owner: Owner, id: str) -> Task:
        """Return a task."""
        record, _ = await self._find(owner, id)
        return record.view()

    async def look(self, owner: Owner, id: str) -> TaskLook:
        """Return a task with its open questions and its outcome."""
        record, stored = await self._find(owner, id)
        inputs = {key: question for key, question in record.inputs.items() if key not in stored.answers}
        return TaskLook(record.view(), inputs, self._outcome(record, stored) if record.is_over else None)

    async def answer(self, owner: Owner, id: str, answers: Mapping[str, Any]) -> None:
        """Store answers to a task's questions, for the process that runs it."""
        record, _ = await self._find(owner, id)
        found = {key: json.dumps(answer) for key, answer in answers.items() if key in record.inputs}
        if found:
            await self._asked(self._store.answer, id, found)

    async def tasks_of(self, owner: Owner) -> list[tuple[int, Task]]:
        """Return an owner's tasks, the oldest first, each with a number that it keeps; without unreadable ones."""
        records = []
        for stored in await self._asked(self._store.owned, owner):
            try:
                records.append(load_record(stored.key, stored.record))
            except InvalidMessage as error:
                # Such as one of a later version of the server, while its processes are replaced.
                self._report("a stored task cannot be read", error)
        return sorted(((_number(record), record.view()) for record in records), key=lambda entry: entry[0])

    async def cancel(self, owner: Owner, id: str, moment: float) -> TaskChanged:
        """Cancel a task at ``moment``, in Unix time. Raises RequestError if it has ended (TASK-26)."""
        while True:
            record, stored = await self._find(owner, id)
            record.cancel(moment)
            if await self._asked(self._store.end, id, stored.version, dump_record(record)):
                return TaskChanged("status", record.view(), owner, record.operation)

    async def outcome(self, owner: Owner, id: str, runtime: Runtime) -> TaskOutcome:
        """Return the outcome of a task, once it has ended (TASK-20)."""
        while True:
            changed = runtime.one_shot()
            waiting = self._waiting.setdefault(id, [])
            waiting.append(changed)
            timer = runtime.call_later(LONGEST_WAIT, partial(changed.set, None))
            try:
                record, stored = await self._find(owner, id)
                if record.is_over:
                    return self._outcome(record, stored)
                await changed.wait()
            finally:
                timer.cancel()
                waiting.remove(changed)
                if not waiting and self._waiting.get(id) is waiting:
                    del self._waiting[id]

    async def _find(self, owner: Owner, id: str) -> tuple[TaskRecord, StoredTask]:
        stored = await self._asked(self._store.fetch, id)
        if stored is None:
            raise not_found(id)
        try:
            record = load_record(id, stored.record)
        except InvalidMessage as error:
            self._report("a stored task cannot be read", error)
            raise unreadable() from None
        if record.owner != owner:
            raise not_found(id)
        return record, stored

    async def _asked(self, method: Callable[..., Settled[T]], *arguments: Any) -> T:
        try:
            return await settled(method(*arguments))
        except Exception as error:
            self._report("the store of tasks cannot be reached", error)
            raise unreadable() from error

    def _outcome(self, record: TaskRecord, stored: StoredTask) -> TaskOutcome:
        if record.state is TaskState.CANCELLED:
            return TaskOutcome(error=was_cancelled(record.id))
        if stored.payload is not None:
            try:
                return load_outcome(stored.payload)
            except InvalidMessage as error:
                self._report("the stored result of a task cannot be read", error)
        lost = RequestError(ErrorCode.INTERNAL_ERROR, "The result of the task is lost", {"taskId": record.id})
        return TaskOutcome(error=lost)


def _number(record: TaskRecord) -> int:
    """Return a number for the cursors of lists: by creation, with bits of the id for tasks of one millisecond."""
    return (int(record.created * 1000) << 32) + int(record.id[:8], 16)
