"""Running tasks and the stores that keep them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, assert_never

import attrs

from mcpio.app.contracts import HandlerScope, PeerSession
from mcpio.app.runtime import settled
from mcpio.app.session_store import apply_effects
from mcpio.engine.table import Phase
from mcpio.engine.tasks import (
    Renewal,
    StoreDelete,
    StoredTask,
    StoreEffect,
    StoreFetch,
    StoreLoad,
    StorePut,
    StoreRenew,
    TaskChanged,
    TaskEvent,
    TaskLook,
    TaskMachine,
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
from mcpio.errors import ConnectionLost, ErrorCode, InvalidMessage, NoBackChannel, RequestError
from mcpio.framing import json
from mcpio.types.base import META_RELATED_TASK
from mcpio.types.features import ProgressNotification

if TYPE_CHECKING:
    from mcpio.app.reporting import FaultReports
    from mcpio.app.runtime import OneShot, Runtime, Spawned, ThreadPool
    from mcpio.engine.tasks import Owner, TaskLimits
    from mcpio.types.tasks import Task


# -------------------------------------------------------------------------------------------------------------- running
# The work of one task: it outlives the request that began it, and perhaps the session.

T = TypeVar("T")


def related(id: str) -> dict[str, Any]:
    """Return the ``_meta`` of messages that belong to a task (TASK-28)."""
    return {META_RELATED_TASK: {"taskId": id}}


class TaskHost(Protocol):
    """Where tasks run: the driver of a session, or a host that outlives all sessions."""

    @property
    def runtime(self) -> Runtime:
        """The event loop."""

    def now(self) -> float:
        """Return the time in seconds, on a clock that all hosts of one server share."""

    def report(self, message: str, error: BaseException | None) -> None:
        """Report a failure to the operator, with its exception."""


class TaskKeeper(Protocol):
    """The receiver of tasks, as a running one needs it."""

    @property
    def fault_reports(self) -> FaultReports:
        """Reports the failures of tasks to the operator."""

    @property
    def thread_pool(self) -> ThreadPool:
        """The threads of blocking handlers."""

    def say(self, run: TaskRun, message: str) -> None:
        """Set the status message of a task."""

    def note_question(self, run: TaskRun) -> None:
        """Record that the work waits for its requestor."""

    def note_answer(self, run: TaskRun) -> None:
        """Record that the work no longer waits."""

    def open_question(self, run: TaskRun, key: str, question: dict[str, Any]) -> str:
        """Record a question for a stateless requestor, and return its key in the task."""

    def close_question(self, run: TaskRun, key: str) -> None:
        """Record that the work no longer waits for an answer."""


class DisconnectedSession:
    """The session of a task that was resumed while its requestor was not connected. Using it raises NoBackChannel."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NoBackChannel("the task was resumed, and its requestor is not connected")


class TaskRun:
    """A running task. Handlers see it as ``Context.task``."""

    __slots__ = (
        "_open",
        "_progress",
        "_receiver",
        "_wanting",
        "account",
        "handle",
        "host",
        "id",
        "is_asking",
        "is_leased",
        "is_over",
        "is_resumed",
        "owner",
        "scope",
        "session",
        "state",
        "token",
        "waiting",
    )

    id: str
    """The task's id. A peer that knows it may be able to read the result (TASK-10)."""
    owner: Owner
    """The owner of the task; ``None`` for an unauthenticated one."""
    is_resumed: bool
    """Whether the work was interrupted before, by the end of its process or host, and runs again."""
    is_over: bool
    """Whether the task has reached its final status or expired; its work no longer matters."""
    is_leased: bool
    """Whether no other process can have taken the task over. False only while a shared store cannot be reached, with
    ``TaskOptions(on_lapse="continue")``."""

    def __init__(
        self,
        receiver: TaskKeeper,
        id: str,
        owner: Owner,
        host: TaskHost,
        session: PeerSession | None,
        token: int | str | None,
        state: Any,
        *,
        account: Hashable,
        is_resumed: bool = False,
    ) -> None:
        self.id = id
        self.owner = owner
        self.is_resumed = is_resumed
        self.is_over = False
        self.is_leased = True
        self.account: Hashable = account
        self.host: TaskHost = host
        self.session: PeerSession | None = session
        self.state: Any = state
        self.token: int | str | None = token
        self.handle: Spawned | None = None
        self.scope: HandlerScope | None = None
        self.waiting: list[HandlerScope] = []
        """The ``tasks/result`` requests that wait for this task."""
        self._receiver = receiver
        self._progress: float | None = None
        self._wanting: list[OneShot] = []
        self._open: dict[str, OneShot] = {}
        self.is_asking: Callable[[], None] = lambda: None
        """Called when the work asks a stateless requestor."""

    @property
    def related(self) -> dict[str, Any]:
        """The ``_meta`` of messages that belong to the task."""
        return related(self.id)

    def say(self, message: str) -> None:
        """Set the status message, which clients may show to people. Call it in the loop's thread.

        One of more than 1000 characters is shortened. Does nothing once the task is over. Raises TypeError if it is not
        a str, and LocalProtocolError if it has a surrogate, which no message can carry.
        """
        self._receiver.say(self, message)

    # For the scope of its handler

    def report(self, message: str, error: BaseException | None, *, kind: Hashable | None = None) -> None:
        """Report a failure to the operator. See ``FaultReports``."""
        self._receiver.fault_reports.report(self.host, message, error, kind)

    async def run_in_thread(self, function: Callable[[], T]) -> T:
        """Run a blocking function in a thread, which counts for the requestor."""
        return await self._receiver.thread_pool.run(self.host.runtime, self.account, function)

    def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Report progress under the token of the request that became the task (PROG-07).

        Dropped without a token, if it does not increase, and when the task or the session is over.
        """
        session = self.session
        if self.is_over or self.token is None or session is None or _is_ending(session):
            return
        notification = ProgressNotification(self.token, progress, total, message, meta=related(self.id))
        if self._progress is not None and not progress > self._progress:
            return
        # The request that became the task is answered, so its stream is gone; a ``tasks/result`` that waits has one.
        here = [scope.id for scope in self.waiting if scope.session is session and not scope.cancelled]
        session.notify(notification, related_to=here[-1] if here else None)
        self._progress = progress

    async def ask(self, way: Callable[[PeerSession], Callable[..., Any]], request: Any, **call: Any) -> Any:
        """Send a request to the requestor, once it waits for the result: earlier it cannot be reached (TASK-16).

        ``way`` returns the call that sends the request in a session. If the connection ends before the answer, the
        request is sent again to the next one that waits (TASK-17).
        """
        request = attrs.evolve(request, meta={**request.meta, **related(self.id)})
        self._receiver.note_question(self)
        try:
            while True:
                scope = await self._route()
                try:
                    return await way(scope.session)(request, related_to=scope.id, **call)
                except (ConnectionLost, NoBackChannel):
                    if not _is_ending(scope.session):
                        raise
                    self.leave(scope)
        finally:
            self._receiver.note_answer(self)

    async def put_question(self, key: str, question: dict[str, Any]) -> Any:
        """Keep a question in the task until its stateless requestor answers, and return the raw answer."""
        key = self._receiver.open_question(self, key, question)
        answered = self._open[key] = self.host.runtime.one_shot()
        self.is_asking()
        try:
            return await answered.wait()
        finally:
            del self._open[key]
            self._receiver.close_question(self, key)

    # For the receiver

    def have_answer(self, key: str, answer: Any) -> None:
        """Pass on the answer to an open question."""
        self._open[key].set(answer)

    def join(self, scope: HandlerScope) -> None:
        """Record that a ``tasks/result`` request waits: requests of the work may go to its session."""
        self.waiting.append(scope)
        # All of them: one waiting request carries any number of the task's own.
        wanting, self._wanting = self._wanting, []
        for each in wanting:
            each.set(None)

    def leave(self, scope: HandlerScope) -> None:
        """Record that the work no longer waits. Further calls do nothing."""
        self.waiting = [each for each in self.waiting if each is not scope]

    def stop(self) -> None:
        """Cancel the work at its next wait."""
        self.is_over = True
        if self.scope is not None:
            self.scope.driving.abandon()
        if self.handle is not None:
            self.handle.cancel()

    async def _route(self) -> HandlerScope:
        while True:
            for scope in reversed(self.waiting):
                if not scope.cancelled and not _is_ending(scope.session):
                    return scope
            wanted = self.host.runtime.one_shot()
            self._wanting.append(wanted)
            try:
                await wanted.wait()
            finally:
                self._wanting = [each for each in self._wanting if each is not wanted]


def _is_ending(session: PeerSession) -> bool:
    return session.connection.phase in (Phase.CLOSING, Phase.CLOSED)


# ---------------------------------------------------------------------------------------------------------------- store
# Storage of tasks: runs the task machine's effects against a store, and its timers on an event loop.

Settled: TypeAlias = T | Awaitable[T]

Settle: TypeAlias = "Callable[[int, Callable[[Any], None]], None]"
"""Takes how many bytes are held, and a function that frees some: see ``Ledger.settle``."""

BATCH: Final = 256
"""How many changes are written at once."""

LONGEST_SLEEP: Final = 3600.0
"""Seconds after which the timer looks again: event loops limit how long a timer may run."""


class TaskStore(Protocol):
    """A store of tasks: plain functions. Blocking ones are called in a thread, mostly one at a time.

    A call whose caller was cancelled may still run when the next one begins.
    """

    @property
    def blocking(self) -> bool:
        """Whether calls wait for a disk or a network, and so must run in a thread."""

    def records(self) -> Iterable[tuple[str, bytes]]:
        """Return all records, as (key, record)."""

    def payload(self, key: str) -> bytes | None:
        """Return the payload under a key, or ``None``."""

    def write(self, changes: Sequence[StorePut | StoreDelete]) -> None:
        """Make the changes in order, atomically: all of them, or none if it raises. On return they are durable."""


class SharedTaskStore(Protocol):
    """A store of tasks that several processes use at once, each through its own object. Methods are plain or async.

    Each task that still runs is *leased* by the object through which it was stored last, until the lease expires by
    the store's clock. Methods that change a task do so atomically. An exception means that the store cannot be reached
    now: what was to be stored is stored again later.
    """

    @property
    def lease(self) -> float:
        """For how long a process keeps a task without a sign of life, in seconds."""

    @property
    def clock_offset(self) -> float:
        """By how many seconds the store's clock is ahead of this process's. The times of tasks are the store's."""

    def put(self, change: StorePut) -> Settled[bool]:
        """Store a task if its key is new or leased by this object, and return whether it was.

        The lease lasts ``change.lease`` seconds from now; with 0 any process may take the task over at once, and
        ``None`` ends the lease. Without an error the change is durable.
        """

    def delete(self, key: str) -> Settled[None]:
        """Delete a task, if it is leased by this object or has ended."""

    def fetch(self, key: str) -> Settled[StoredTask | None]:
        """Return a task, or ``None``."""

    def end(self, key: str, version: int, record: bytes) -> Settled[bool]:
        """Replace the record of a task and end its lease, if the task still has that version; return whether it had."""

    def answer(self, key: str, answers: Mapping[str, bytes]) -> Settled[None]:
        """Keep answers to a task's questions, by key, until the task is deleted. The first answer for a key is kept."""

    def renew(self, keys: Sequence[str], lease: float) -> Settled[Collection[str]]:
        """Renew the leases of this object's tasks, for seconds from now; return the keys that it no longer leases."""

    def adopt(self, lease: float) -> Settled[Sequence[StoredTask]]:
        """Lease tasks with expired leases, for a number of seconds, and return them; only some, if there are many.

        If no process renewed anything for more than half of that time, none of them could: then for that time only
        tasks are returned that were given up, with a lease of 0.
        """

    def owned(self, owner: Owner) -> Settled[Sequence[StoredTask]]:
        """Return the tasks of an owner, in any order; none for ``None``, which identifies no owner."""

    def subscribe(self, callback: Callable[[str | None], None]) -> Callable[[], object]:
        """Call back, in the event loop's thread, with the key of each task that any process changed.

        A plain method. Calls may be missing while the store cannot be reached; a call with ``None`` afterwards says
        that any task may have changed. Returns what ends them.
        """


def shared_store(store: TaskStore | SharedTaskStore) -> SharedTaskStore | None:
    """Return a store that several processes use, ``None`` for one that belongs to this process."""
    found: Any = store
    return found if hasattr(store, "lease") else None


class MemoryTaskStore:
    """Keeps tasks while the process lives. ``TaskLimits`` bounds their number and size."""

    blocking = False

    def __init__(self) -> None:
        self._records: dict[str, bytes] = {}
        self._payloads: dict[str, bytes] = {}

    def records(self) -> Iterable[tuple[str, bytes]]:
        """Return all records, as (key, record)."""
        return tuple(self._records.items())

    def payload(self, key: str) -> bytes | None:
        """Return the payload under a key."""
        return self._payloads.get(key)

    def write(self, changes: Sequence[StorePut | StoreDelete]) -> None:
        """Make the changes, in order."""
        for change in changes:
            if isinstance(change, StoreDelete):
                self._records.pop(change.key, None)
                self._payloads.pop(change.key, None)
                continue
            # orjson leaves a buffer of some KiB behind a short text. A copy takes no more than the text.
            self._records[change.key] = bytes(memoryview(change.record))
            if change.payload is not None:
                self._payloads[change.key] = bytes(memoryview(change.payload))


class TaskStorage:
    """One task machine and its store, while hosts exist whose event loops can run the tasks."""

    def __init__(
        self,
        store: TaskStore | SharedTaskStore,
        act: Callable[[TaskEvent], None],
        *,
        limits: TaskLimits,
        poll_interval: float | None,
        settle: Settle | None = None,
        on_signal: Callable[[str | None], None] = lambda id: None,
    ) -> None:
        """``act`` is called with each event of the machine. ``settle`` enters the memory of tasks into a ledger.

        ``on_signal`` is called with the id of each task that a process changed in a shared store, and with ``None``
        where any may have changed.
        """
        self.shared: SharedTaskStore | None = shared_store(store)
        """The store, if other processes use it too."""
        self._store: Any = store
        # A shared store waits for a network, in its own way.
        self._in_task: bool = getattr(store, "blocking", True)
        self._act = act
        self._machine: TaskMachine | None = None
        lease = None if self.shared is None else self.shared.lease
        self._make = partial(TaskMachine, limits=limits, poll_interval=poll_interval, lease=lease)
        self._unsubscribe: Callable[[], object] | None = None
        self._on_signal = on_signal
        self._hosts: list[TaskHost] = []
        self._epoch = 0.0
        self._offset = 0.0
        self._now = 0.0
        self._loading: list[OneShot] = []
        self._unwritten: list[StoreEffect] = []
        self._writer: _Writer | None = None
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
        """Add a host. The first one loads the store."""
        if not self._hosts:
            # Another event loop may have another clock, but the machine's time must never go back.
            wall = host.runtime.wall_clock() + (0.0 if self.shared is None else self.shared.clock_offset)
            if self._machine is None:
                self._epoch = wall - host.now()
                self._machine = self._make(entropy=self._entropy, epoch=self._epoch)
                self._machine.load(host.now())
            self._offset = wall - host.now() - self._epoch
            if self.shared is not None:
                self._unsubscribe = self.shared.subscribe(self._signalled)
        self._hosts.append(host)
        self.pump()

    def detach(self, host: TaskHost) -> None:
        """Remove a host. A write that it was doing is repeated at the next host.

        A second time does nothing.
        """
        if host not in self._hosts:
            return
        self._hosts.remove(host)
        if self._writer is not None and self._writer.host is host:
            self._writer.cancel()
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

    def wall_time(self) -> float:
        """Return the time on the machine's clock as Unix time, by the clock of a shared store."""
        return self._epoch + self.now()

    async def ready(self, host: TaskHost) -> None:
        """Wait until the store was loaded, and let due deadlines expire. Raises RequestError if it cannot be read."""
        if not (self.machine.loaded or self.machine.load_failed):
            loaded = host.runtime.one_shot()
            self._loading.append(loaded)
            await loaded.wait()
        if not self.machine.loaded:
            raise unreadable()
        self.machine.handle_timeout(self.now())
        self.pump()

    async def flush(self, host: TaskHost) -> None:
        """Store everything before a host ends, unless another host can do that.

        Runs in the calling task, since tasks spawned at the host may be cancelled by now.
        """
        if self._hosts in ([], [host]):
            if self._writer is not None:
                self._writer.cancel()
            self._writer = _Writer(host)
            self.machine.store_again()
            await self._write(self._writer)

    def pump(self) -> None:
        """Perform the machine's effects and handle its events. Call it after every call of the machine."""
        if self._is_pumping:
            return
        self._is_pumping = True
        try:
            while self._hand_on() or self._carry_on():
                pass
        finally:
            self._is_pumping = False
        self._keep_time()
        self._account()

    def _account(self) -> None:
        held = self.machine.held
        if self._settle is not None and held != self._settled:
            self._settled = held
            self._settle(held, self._give_up)

    def _give_up(self, _: Any) -> None:
        """Free memory for the ledger. Running tasks keep theirs, and stay out of the ledger until a change."""
        self.machine.discard_finished()
        self.pump()

    def _hand_on(self) -> bool:
        event = self.machine.next_event()
        if event is not None:
            self._act(event)
        elif self._loading and (self.machine.loaded or self.machine.load_failed):
            self._loading = _set(self._loading)
        return event is not None

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
        self.machine.handle_timeout(self.now())
        self.pump()

    def _entropy(self, size: int) -> bytes:
        if not self._hosts:
            raise NoBackChannel("nothing can run: no task can begin")
        return self._hosts[0].runtime.entropy(size)

    # The store

    def _signalled(self, id: str | None) -> None:
        """Act on a task that a process changed in the shared store."""
        if id is not None:  # renewing the leases finds the others
            self.machine.task_signalled(id)
        self._on_signal(id)
        self.pump()

    def _carry_on(self) -> bool:
        """Perform the store's effects now, and return whether that was possible; an async store works in a task."""
        if self._writer is not None:
            return False
        batch = self._take()
        if batch and not self._in_task:
            self._note(batch, self._carry_out(batch))
            return True
        self._unwritten = batch
        host = self.host
        if batch and host is not None:
            self._writer = _Writer(host)
            self._writer.task = host.runtime.spawn(self._write(self._writer))
        return False

    async def _write(self, writer: _Writer) -> None:
        """Perform the store's effects, in a thread or by awaiting it, until none are left."""
        try:
            while batch := self._take():
                self._unwritten = batch
                if self.shared is not None:
                    effects: list[Any] = batch  # a machine with a lease has no StoreLoad
                    values = [await _carried_out(self.shared, effect) for effect in effects]
                else:
                    values = await writer.host.runtime.to_thread(partial(self._carry_out, batch))
                if self._writer is not writer:
                    return  # replaced in the meantime: the next writer repeats the batch, and takes the answer
                self._unwritten = []
                self._note(batch, values)
                self.pump()
        finally:
            # Cut off with its host, it leaves the batch to the next writer; writing twice does no harm.
            if self._writer is writer:
                self._writer = None
                if self._unwritten and writer.host not in self._hosts:
                    self.pump()

    def _take(self) -> list[StoreEffect]:
        """Return the next effects, first those that may not have been carried out."""
        batch, self._unwritten = self._unwritten, []
        while len(batch) < BATCH and (effect := self.machine.next_effect()) is not None:
            batch.append(effect)
        return batch

    def _carry_out(self, batch: Sequence[StoreEffect]) -> list[Any]:
        return apply_effects(batch, self._read, self._store.write)

    def _read(self, effect: StoreEffect) -> Callable[[], Any] | None:
        if not isinstance(effect, StoreLoad):
            return None
        if effect.key is not None:
            return partial(self._store.payload, effect.key)
        # Read to the end here, where a store may block and fail: it may be a generator.
        return lambda: [(key, record) for key, record in self._store.records()]

    def _note(self, batch: Sequence[StoreEffect], values: Sequence[Any]) -> None:
        for effect, value in zip(batch, values, strict=True):
            self.machine.store_done(effect.token, value, self.now())


async def _carried_out(store: SharedTaskStore, effect: StorePut | StoreDelete | StoreFetch | StoreRenew) -> Any:
    """Return the answer of a shared store to an effect: a value, or the exception that it raised."""
    try:
        match effect:
            case StorePut():
                return await settled(store.put(effect))
            case StoreDelete():
                return await settled(store.delete(effect.key))
            case StoreFetch():
                return await settled(store.fetch(effect.key))
            case StoreRenew():
                lost = await settled(store.renew(effect.keys, effect.lease)) if effect.keys else ()
                return Renewal(lost, await settled(store.adopt(effect.lease)))
            case _:
                assert_never(effect)
    except Exception as error:
        return error


class _Writer:
    """The task that writes at a host."""

    def __init__(self, host: TaskHost) -> None:
        self.host = host
        self.task: Spawned | None = None

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


def _set(waiting: list[OneShot]) -> list[OneShot]:
    """Wake the waiting tasks, and return an empty list."""
    for each in waiting:
        each.set(None)
    return []


# -------------------------------------------------------------------------------------------------------------- sharing
# Tasks that run in another process, or are over: read and cancelled in the store that the processes share.

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
