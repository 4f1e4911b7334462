"""Where tasks live: in a store.

Those that run here have a machine too, whose effects and timers are carried out here.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import attrs

from mcpio.app.store_writer import StoreWriter
from mcpio.engine.tasks import (
    StoreAdopt,
    StoreDelete,
    StoredTask,
    StoreEffect,
    StoreFetch,
    StorePut,
    StoreRenew,
    TaskChanged,
    TaskEnded,
    TaskEvent,
    TaskLook,
    TaskMachine,
    TaskOutcome,
    TaskRecord,
    TaskState,
    TaskTaken,
    dump_record,
    load_outcome,
    load_record,
    not_found,
    unreadable,
    was_cancelled,
)
from mcpio.errors import ErrorCode, InvalidMessage, NoBackChannel, RequestError
from mcpio.framing import json

if TYPE_CHECKING:
    from mcpio.app.runtime import OneShot, Runtime, Spawned
    from mcpio.engine.tasks import Owner, TaskLimits, TaskReplied
    from mcpio.types.tasks import Task


T = TypeVar("T")


class TaskHost(Protocol):
    """Where tasks run: the driver of a session, or a host that outlives all sessions."""

    @property
    def runtime(self) -> Runtime:
        """The event loop."""

    def now(self) -> float:
        """Return the time in seconds, on a clock that all hosts of one server share."""

    def report(self, message: str, error: BaseException | None) -> None:
        """Report a failure to the operator, with its exception."""


Settled: TypeAlias = T | Awaitable[T]

Settle: TypeAlias = "Callable[[int, Callable[[Any], None]], None]"
"""Takes how many bytes are held, and a function that frees some: see ``Ledger.settle``."""

LONGEST_SLEEP: Final = 3600.0
"""Seconds after which the timer looks again: event loops limit how long a timer may run."""

LONGEST_WAIT: Final = 5.0
"""Seconds after which a task is read again even if no process said that it changed: such calls may get lost."""


class TaskStore(Protocol):
    """A store of tasks. Its methods are either all plain or all ``async def``, except ``subscribe``.

    Several processes may use one store at once, each through its own object. Each task that runs is *leased* by the
    object through which it was stored last, until the lease expires by the store's clock. A store of one process has
    leases that never expire.

    An exception means that the store cannot be reached now: what was to be stored is stored again later. A call whose
    caller was cancelled may still run when the next one begins, and is then made a second time.

    A store may also have ``summary(key)``, which returns the same as ``fetch`` without the result. It is then called
    where only the state of a task is needed: clients ask for that often, and results may be large.
    """

    @property
    def blocking(self) -> bool:
        """Whether calls wait for a disk or a network, and so must run in a thread; then one at a time."""

    @property
    def lease(self) -> float:
        """For how long a process keeps a task without a sign of life, in seconds; ``math.inf`` if nothing else uses it.

        Where it is infinite, ``answer`` and ``renew`` are not called, and need not do anything.
        """

    @property
    def clock_offset(self) -> float:
        """By how many seconds the store's clock is ahead of this process's. The times of tasks are the store's."""

    def write(self, changes: Sequence[StorePut | StoreDelete]) -> Settled[Sequence[bool]]:
        """Make the changes in order; return for each whether it was made. Without an error they are durable.

        A task is put if its key is new or leased by this object, or if it has ended with the same record. The lease
        lasts ``StorePut.lease`` seconds from now; with 0 any process may take the task over at once, and ``None`` ends
        the lease. A task is deleted if it is leased by this object or has ended.
        """

    def fetch(self, key: str) -> Settled[StoredTask | None]:
        """Return a task, or ``None``."""

    def owned(self, owner: Owner) -> Settled[Sequence[StoredTask]]:
        """Return the tasks of an owner in any order, without their results if that is cheaper.

        ``None`` stands for no owner. A store of several processes returns no tasks for it.
        """

    def end(self, key: str, version: int, record: bytes) -> Settled[bool]:
        """Replace the record of a task and end its lease, if the task still has that version; return whether it had."""

    def answer(self, key: str, answers: Mapping[str, bytes]) -> Settled[object]:
        """Keep answers to a task's questions, by key, until the task is deleted. The first answer for a key is kept."""

    def renew(self, keys: Sequence[str], lease: float) -> Settled[Collection[str]]:
        """Renew the leases of this object's tasks, for seconds from now; return the keys that it no longer leases."""

    def adopt(self, lease: float) -> Settled[Sequence[StoredTask]]:
        """Lease tasks with expired leases, for a number of seconds, and return them; only some, if there are many.

        If no process renewed anything for more than half of that time, none of them could: then for that time only
        tasks are returned that were given up, with a lease of 0.

        A store whose leases never expire is asked once, first. It returns all tasks: those of an earlier process that
        ran, and those that are over, which count towards the limits.
        """

    def subscribe(self, callback: Callable[[str | None], None]) -> Callable[[], object]:
        """Call back, in the event loop's thread, with the key of each task that another process changed.

        A plain method. Calls may be missing while the store cannot be reached; a call with ``None`` afterwards says
        that any task may have changed. Returns what ends them.
        """


@attrs.define(eq=False)
class _Row:
    owner: Owner
    record: bytes = b""
    payload: bytes | None = None
    version: int = 0
    runs: bool = True


class MemoryTaskStore:
    """Keeps tasks while the process lives. ``TaskLimits`` bounds their number and size."""

    blocking = False
    lease: float = math.inf
    clock_offset: float = 0.0

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}

    def write(self, changes: Sequence[StorePut | StoreDelete]) -> list[bool]:
        """Make the changes in order, and return which were made."""
        return [self._put(each) if isinstance(each, StorePut) else self._delete(each.key) for each in changes]

    def _put(self, change: StorePut) -> bool:
        row = self._rows.setdefault(change.key, _Row(change.owner))
        # orjson leaves a buffer of some KiB behind a short text. A copy takes no more than the text.
        record = bytes(memoryview(change.record))
        if not row.runs and row.record != record:
            return False
        row.record, row.runs, row.version = record, change.lease is not None, row.version + 1
        if change.payload is not None:
            row.payload = bytes(memoryview(change.payload))
        return True

    def _delete(self, key: str) -> bool:
        return self._rows.pop(key, None) is not None

    def fetch(self, key: str) -> StoredTask | None:
        """Return a task, or ``None``."""
        row = self._rows.get(key)
        return None if row is None else StoredTask(key, row.record, row.payload, row.version)

    def owned(self, owner: Owner) -> list[StoredTask]:
        """Return the tasks of an owner."""
        rows = self._rows.items()
        return [StoredTask(key, row.record, None, row.version) for key, row in rows if row.owner == owner]

    def end(self, key: str, version: int, record: bytes) -> bool:
        """Replace the record of a task and end its lease, if it still has that version."""
        row = self._rows.get(key)
        if row is None or row.version != version:
            return False
        row.record, row.runs, row.version = record, False, version + 1
        return True

    def adopt(self, lease: float) -> list[StoredTask]:
        """Return all tasks."""
        return [StoredTask(key, row.record, None, row.version) for key, row in self._rows.items()]

    def renew(self, keys: Sequence[str], lease: float) -> list[str]:
        """Return the keys of tasks that do not run: leases do not expire."""
        return [key for key in keys if key not in self._rows or not self._rows[key].runs]

    def answer(self, key: str, answers: Mapping[str, bytes]) -> None:
        """Do nothing: what asks is in this process."""

    def subscribe(self, callback: Callable[[str | None], None]) -> Callable[[], object]:
        """Do nothing: no other process changes a task."""
        return lambda: None


class TaskStorage:
    """The tasks of a receiver: those that run here in their machine, and all of them in their store.

    It carries out the machine's effects and timers while hosts exist whose event loops can run the tasks. Reading is
    one path, whichever process runs a task: from the machine what that has, at once, and all else from the store.
    Reading raises RequestError: -32602 for a task that its owner does not have, and -32603 while the store cannot be
    reached.
    """

    def __init__(
        self,
        store: TaskStore,
        act: Callable[[TaskEvent], None],
        *,
        limits: TaskLimits,
        poll_interval: float | None,
        settle: Settle | None = None,
        on_signal: Callable[[str | None], None] = lambda id: None,
        report: Callable[[str, BaseException], None] = lambda message, error: None,
    ) -> None:
        """``act`` is called with each event of the machine. ``settle`` enters the memory of tasks into a ledger.

        ``on_signal`` is called with the id of each task that another process changed, and with ``None`` where any may
        have changed. ``report`` tells the operator of what cannot be read.
        """
        self._store = store
        self._summary: Callable[[str], Any] = getattr(store, "summary", store.fetch)
        self._act = act
        self._machine: TaskMachine | None = None
        self._make = partial(TaskMachine, limits=limits, poll_interval=poll_interval, lease=store.lease)
        self._unsubscribe: Callable[[], object] | None = None
        self._on_signal = on_signal
        self._report = report
        self._hosts: list[TaskHost] = []
        self._epoch = 0.0
        self._offset = 0.0
        self._now = 0.0
        self._writer: StoreWriter[StoreEffect] = StoreWriter(
            store, read=self._call, next_effect=self._next_effect, done=self._done, process=self.pump
        )
        self._waiting: dict[str, list[OneShot]] = {}
        self._sleeper: tuple[TaskHost, float, Spawned] | None = None
        self._is_pumping = False
        self._settle = settle
        self._settled = 0

    @property
    def machine(self) -> TaskMachine:
        """The task machine. Raises NoBackChannel before the first host."""
        if self._machine is None:
            raise NoBackChannel("tasks begin where something can run")
        return self._machine

    @property
    def host(self) -> TaskHost | None:
        """The host that does the work now."""
        return self._hosts[0] if self._hosts else None

    def attach(self, host: TaskHost) -> None:
        """Add a host. The first one takes over the tasks in the store that lost their work."""
        if not self._hosts:
            # Another event loop may have another clock, but the machine's time must never go back.
            wall = host.runtime.wall_clock() + self._store.clock_offset
            if self._machine is None:
                self._epoch = wall - host.now()
                self._machine = self._make(entropy=self._entropy, epoch=self._epoch)
                self._machine.load(host.now())
            self._offset = wall - host.now() - self._epoch
            self._unsubscribe = self._store.subscribe(self._hear_store)
        self._hosts.append(host)
        self.pump()

    def detach(self, host: TaskHost) -> None:
        """Remove a host. A write that it was doing is repeated at the next host.

        A second time does nothing.
        """
        if host not in self._hosts:
            return
        self._hosts.remove(host)
        if all(each.runtime is not host.runtime for each in self._hosts):
            # The sessions of an HTTP server share its runtime: if each that ends cut the write off, none would end.
            self._writer.stop(host.runtime)
        if self._sleeper is not None and self._sleeper[0] is host:
            self._sleeper[2].cancel()
            self._sleeper = None
        if not self._hosts and self._unsubscribe is not None:
            self._unsubscribe()
        self.pump()

    def now(self) -> float:
        """Return the time on the machine's clock. It stands still without a host."""
        if self._hosts:
            self._now = self._hosts[0].now() + self._offset
        return self._now

    async def flush(self, host: TaskHost) -> None:
        """Store everything before a host ends, unless another host can do that.

        Runs in the calling task, since tasks spawned at the host may be cancelled by now.
        """
        if self._hosts in ([], [host]):
            self.machine.store_again()
            await self._writer.finish(host.runtime)

    def refresh(self) -> None:
        """Let due deadlines expire, whose timer may be late."""
        self.machine.handle_timeout(self.now())
        self.pump()

    def pump(self) -> None:
        """Perform the machine's effects and handle its events. Call it after every call of the machine."""
        if self._is_pumping:
            return
        self._is_pumping = True
        try:
            while self._hand_on() or self._writer.carry_on(None if self.host is None else self.host.runtime):
                pass
        finally:
            self._is_pumping = False
        self._keep_time()
        self._account()

    def _account(self) -> None:
        held_bytes = self.machine.held
        if self._settle is not None and held_bytes != self._settled:
            self._settled = held_bytes
            self._settle(held_bytes, self._give_up)

    def _give_up(self, _: Any) -> None:
        """Free memory for the ledger. Running tasks keep theirs, and stay out of the ledger until a change."""
        self.machine.discard_finished()
        self.pump()

    def _hand_on(self) -> bool:
        event = self.machine.next_event()
        if event is None:
            return False
        if isinstance(event, TaskEnded):
            self._tell(event.id, event.outcome)
        elif isinstance(event, TaskTaken):
            self._tell(event.id)
        elif isinstance(event, TaskChanged) and event.change == "expired":
            self._tell(event.task.task_id)
        self._act(event)
        return True

    def _keep_time(self) -> None:
        """Set the timer for the next deadline. A timer that fires early does no harm."""
        host, deadline = self.host, self.machine.next_deadline()
        if host is None or deadline is None:
            return
        if self._sleeper is not None:
            if self._sleeper[1] <= deadline:
                return
            self._sleeper[2].cancel()
        alarm = host.runtime.call_later(min(deadline - self.now(), LONGEST_SLEEP), self._keep_deadlines)
        self._sleeper = (host, deadline, alarm)

    def _keep_deadlines(self) -> None:
        self._sleeper = None
        self.refresh()

    def _entropy(self, size: int) -> bytes:
        if not self._hosts:
            raise NoBackChannel("nothing can run: no task can begin")
        return self._hosts[0].runtime.entropy(size)

    # The store

    def _next_effect(self) -> StoreEffect | None:
        return self.machine.next_effect()

    def _call(self, effect: StoreEffect) -> Callable[[], Any] | None:
        store = self._store
        match effect:
            case StoreFetch():
                return partial(store.fetch, effect.key)
            case StoreRenew():
                return partial(store.renew, effect.keys, effect.lease)
            case StoreAdopt():
                return partial(store.adopt, effect.lease)
        return None

    def _done(self, effect: StoreEffect, answer: Any) -> None:
        self.machine.store_done(effect.token, answer, self.now())

    def _hear_store(self, id: str | None) -> None:
        """Act on a task that a process changed in the store; ``None`` where any may have changed."""
        if id is not None:  # renewing the leases finds the others
            self.machine.task_signalled(id)
        for each in tuple(self._waiting) if id is None else (id,):
            if each not in self.machine:
                self._tell(each)
        self._on_signal(id)
        self.pump()

    # Reading, cancelling and answering, in whatever process a task runs

    async def look(self, runtime: Runtime, owner: Owner, id: str, *, is_whole: bool = True) -> TaskLook:
        """Return a task with its open questions and, unless ``is_whole`` is false, its outcome."""
        self.refresh()
        here = self.machine.look(owner, id)
        if here is not None:
            return here
        record, stored = await self._find(runtime, owner, id, self._store.fetch if is_whole else self._summary)
        inputs = {key: question for key, question in record.inputs.items() if key not in stored.answers}
        outcome = self._outcome(record, stored) if record.is_over and is_whole else None
        return TaskLook(record.shown or record.view(), inputs, outcome)

    async def tasks_of(self, runtime: Runtime, owner: Owner) -> list[tuple[int, Task]]:
        """Return an owner's tasks, the oldest first, each with a number that it keeps; without unreadable ones."""
        self.refresh()
        tasks = []
        for stored in await self._read(runtime, partial(self._store.owned, owner)):
            try:
                record = load_record(stored.key, stored.record)
            except InvalidMessage as error:
                # Such as one of a later version of the server, while its processes are replaced.
                self._report(_UNREADABLE, error)
                continue
            if not self._is_expired(record):
                here = self.machine.look(owner, record.id)
                tasks.append((_number(record), record.shown or record.view() if here is None else here.task))
        return sorted(tasks, key=lambda entry: entry[0])

    async def outcome(self, runtime: Runtime, owner: Owner, id: str) -> TaskOutcome:
        """Return the outcome of a task, once it has ended (TASK-20)."""
        while True:
            ended = self.expect(runtime, id)
            # Another process may fail to say that its task has ended.
            timer = None if id in self.machine else runtime.call_later(LONGEST_WAIT, partial(ended.set, None))
            try:
                outcome = (await self.look(runtime, owner, id)).outcome or await ended.wait()
            finally:
                self.forget(id, ended)
                if timer is not None:
                    timer.cancel()
            if isinstance(outcome, TaskOutcome):
                return outcome

    def expect(self, runtime: Runtime, id: str) -> OneShot:
        """Return the one-shot that is set to the outcome of a task, or to ``None`` when the task must be read again."""
        ended = runtime.one_shot()
        self._waiting.setdefault(id, []).append(ended)
        return ended

    def forget(self, id: str, ended: OneShot) -> None:
        """Wait no more for an outcome. Does nothing for what is set."""
        waiting = self._waiting.get(id, [])
        if ended in waiting:
            waiting.remove(ended)
            if not waiting:
                del self._waiting[id]

    def _tell(self, id: str, outcome: TaskOutcome | None = None) -> None:
        for each in self._waiting.pop(id, ()):
            each.set(outcome)

    async def cancel(self, runtime: Runtime, owner: Owner, id: str) -> Task:
        """Cancel a task. Raises RequestError if it has ended (TASK-26)."""
        self.refresh()
        while self.machine.look(owner, id) is not None:
            reply = runtime.one_shot()
            self.machine.cancel(owner, id, self.now(), cookie=reply)
            self.pump()
            replied: TaskReplied = await reply.wait()
            if replied.error is not None:
                raise replied.error
            if replied.value is not None:
                return replied.value
        while True:
            record, stored = await self._find(runtime, owner, id, self._summary)
            record.cancel(self._epoch + self.now())
            if await self._read(runtime, partial(self._store.end, id, stored.version, dump_record(record))):
                change = TaskChanged("status", record.view(), owner, record.operation)
                self._tell(id)
                self._act(change)
                return change.task

    async def answer(self, runtime: Runtime, owner: Owner, id: str, answers: Mapping[str, Any]) -> None:
        """Pass answers to a task's questions to the work that waits for them."""
        if self.machine.look(owner, id) is not None:
            self.machine.answer(id, answers, self.now())
            self.pump()
            return
        record, _ = await self._find(runtime, owner, id, self._summary)
        stored_answers = {key: json.dumps(answer) for key, answer in answers.items() if key in record.inputs}
        if stored_answers:
            await self._read(runtime, partial(self._store.answer, id, stored_answers))

    async def _find(
        self, runtime: Runtime, owner: Owner, id: str, fetch: Callable[[str], Any]
    ) -> tuple[TaskRecord, StoredTask]:
        stored: StoredTask | None = await self._read(runtime, partial(fetch, id))
        if stored is None:
            raise not_found(id)
        try:
            record = load_record(id, stored.record)
        except InvalidMessage as error:
            self._report(_UNREADABLE, error)
            raise unreadable() from None
        if record.owner != owner or self._is_expired(record):
            raise not_found(id)
        return record, stored

    def _is_expired(self, record: TaskRecord) -> bool:
        """Whether the time of a task is over: the store may not have deleted it yet."""
        return record.expires is not None and record.expires <= self._epoch + self.now()

    async def _read(self, runtime: Runtime, call: Callable[[], Any]) -> Any:
        try:
            return await self._writer.read(runtime, call)
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


_UNREADABLE: Final = "a stored task cannot be read"


def _number(record: TaskRecord) -> int:
    """Return a number for the cursors of lists: by creation, and different for tasks of one moment."""
    return (int(record.created * 1000) << 64) + (record.number << 32) + int(record.id[:8], 16)
