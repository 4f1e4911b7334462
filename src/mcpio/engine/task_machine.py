"""Tasks of a receiver: a pure machine, without clock, randomness or storage.

Time is an argument, ids come from ``entropy``, and storage is reached by effects (``next_effect``), each answered with
``store_done``. A state of a task is visible only once it is stored; one that the store did not take is stored again
until it does. The machine knows no connection: an owner reaches its tasks through every connection, and either role may
be the receiver (TASK-31).

The obligation after every call: *carry out the effects, drain the events, re-arm the deadline.*
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from mcpio.engine.ledger import parsed_size
from mcpio.engine.table import Direction
from mcpio.engine.task_records import (
    ENDED,
    TASK_TABLE,
    Owner,
    Renewal,
    StoreDelete,
    StoredTask,
    StoreEffect,
    StoreFetch,
    StoreLoad,
    StorePut,
    StoreRenew,
    TaskAnswered,
    TaskChanged,
    TaskEvent,
    TaskInput,
    TaskLeased,
    TaskLimits,
    TaskOrphaned,
    TaskOutcome,
    TaskRecord,
    TaskReplied,
    TasksLapsed,
    TaskState,
    TaskStoreFailed,
    TaskTaken,
    dump_outcome,
    dump_record,
    load_outcome,
    load_record,
    not_found,
    unreadable,
    was_cancelled,
)
from mcpio.engine.timers import Timers
from mcpio.errors import ErrorCode, InvalidMessage, LocalProtocolError, RequestError
from mcpio.framing import json
from mcpio.types._fields import EMPTY
from mcpio.types.tasks import Task

__all__ = ["TaskMachine"]

ID_BYTES = 16
"""Random bytes in an id: without owners they are all that protects a task (TASK-10)."""


@attrs.frozen
class _Put:
    """A state that is being stored."""

    record: TaskRecord
    view: Task
    inputs: Mapping[str, Any]
    change: Literal["created", "status"]
    cookie: Any
    wants_reply: bool


@attrs.frozen
class _Fetch:
    """An outcome that is being loaded."""

    id: str
    cookie: Any


@attrs.frozen
class _Look:
    """A task that may have been taken, and is being read."""

    id: str


@attrs.frozen
class _Renew:
    """Leases that are being renewed."""

    asked: float
    keys: tuple[str, ...]


_Asked: TypeAlias = _Put | _Fetch | _Look | _Renew | str | None
"""The subject of an effect: the key of a deletion, ``None`` for the loading of everything."""


class TaskMachine:
    """The tasks of one receiver, for all their owners.

    With a ``lease`` several machines, mostly in as many processes, share a store. Each has the tasks whose work is its
    own: it may write them while its lease lasts, and renews that three times as often as needed. A task whose lease has
    expired lost its work, and goes to the first machine that finds it. A machine that cannot renew its leases reports
    their end by its own clock, with ``TasksLapsed``. What runs elsewhere, or is over, is not here but in the store. A
    peer's limits hold for each machine separately.
    """

    loaded: bool
    """Whether ``load`` is done. Before that the machine has no tasks."""
    load_failed: bool
    """Whether the store could not be read when it was to be loaded. It is tried again."""

    def __init__(
        self,
        *,
        entropy: Callable[[int], bytes],
        epoch: float,
        limits: TaskLimits | None = None,
        poll_interval: float | None = 1.0,
        lease: float | None = None,
    ) -> None:
        """``entropy(n)`` returns n unpredictable bytes. ``epoch`` is Unix time, in seconds, at ``now == 0``.

        ``poll_interval`` is how often requestors should poll, in seconds; ``None`` leaves it to them. ``lease`` is how
        long a task stays this machine's after its last sign of life, in seconds; ``None``: nothing else uses the store.
        """
        self.loaded = False
        self.load_failed = False
        self._entropy = entropy
        self._epoch = epoch
        self._limits = limits or TaskLimits()
        self._poll_interval = None if poll_interval is None else poll_interval * 1000
        self._records: dict[str, TaskRecord] = {}
        self._owned: dict[Owner, dict[str, TaskRecord]] = {}
        self._by_number: dict[int, TaskRecord] = {}
        self._stored: Counter[Hashable] = Counter()
        self._running: Counter[Hashable] = Counter()
        self._next_number = 1
        self._next_token = 1
        self._asked: dict[int, _Asked] = {}
        self._lease = lease
        self._effects: OrderedDict[int, StoreEffect] = OrderedDict()
        self._events: deque[TaskEvent] = deque()
        self._timers = Timers()
        # Records whose last state the store did not take.
        self._unstored: dict[str, TaskRecord] = {}

    # For requestors. A ``RequestError`` is the answer to their request.

    def create(
        self,
        owner: Owner,
        operation: str,
        now: float,
        *,
        cookie: Any,
        ttl: float | None = None,
        request: Mapping[str, Any] | None = None,
        requestor: Hashable = None,
    ) -> str:
        """Create a task and return its id. ``TaskReplied`` brings the task, once it may be announced (TASK-09).

        ``operation`` describes it. ``ttl`` is for how long the requestor wants it kept, in milliseconds. With a
        ``request``, any JSON object, ``TaskOrphaned`` asks to resume the task when its work is lost. A task without an
        owner counts for its ``requestor``, such as the session. Raises ``RequestError`` beyond the limits and for an
        invalid ``ttl``.
        """
        if owner is not None and owner.__class__ not in (str, int):
            raise LocalProtocolError(f"an owner is a string, an integer or None, not {owner!r:.100}")
        if ttl is not None and not ttl > 0:
            raise RequestError(ErrorCode.INVALID_PARAMS, "Invalid params: task.ttl is more than 0", {"ttl": ttl})
        account = _account(owner, requestor)
        self._check_room(owner, account)
        id = self._entropy(ID_BYTES).hex()
        if id in self._records:
            raise LocalProtocolError("the entropy gave the same bytes twice")
        moment = self._epoch + now
        granted = self._limits.ttl(ttl, owner)
        record = TaskRecord(
            id,
            self._next_number,
            owner,
            operation,
            request,
            moment,
            moment,
            granted,
            self._poll_interval,
            account=account,
            leased_until=None if self._lease is None else now + self._lease,
        )
        record.size = RECORD_COST + parsed_size(dump_record(record))
        self._next_number += 1
        self._keep(record)
        self._put(record, "created", None, cookie, wants_reply=True)
        return id

    def get(self, owner: Owner, id: str) -> Task:
        """Return a task (TASK-19). Raises ``RequestError`` if the owner has no such task (TASK-33, TASK-34)."""
        return self._find(owner, id)[1]

    def inputs(self, owner: Owner, id: str) -> Mapping[str, Any]:
        """Return the questions of a task that have no answer, by key (XTASK-06). Raises as ``get`` does."""
        return self._find(owner, id)[0].shown_inputs

    def __contains__(self, id: object) -> bool:
        """Whether this machine has the task. A shared store has others too."""
        return id in self._records

    def tasks_of(self, owner: Owner) -> list[tuple[int, Task]]:
        """Return an owner's tasks, the oldest first, each with its permanent number (TASK-24)."""
        owned = self._owned.get(owner, {})
        return [(record.number, record.shown) for record in owned.values() if record.shown is not None]

    def result(self, owner: Owner, id: str, *, cookie: Any) -> None:
        """Request the outcome: ``TaskReplied`` returns it, once the task has ended (TASK-20, TASK-21).

        Any number of calls may wait. If the task expires first, the reply is the error for an unknown task. Raises
        ``RequestError`` as ``get`` does.
        """
        record, shown = self._find(owner, id)
        if TaskState(shown.status) not in ENDED:
            record.waiters.append(cookie)
        elif record.state is TaskState.CANCELLED:
            self._reply(cookie, record)
        else:
            token = self._ask(_Fetch(id, cookie))
            self._effects[token] = StoreLoad(token, id)

    def forget_waiter(self, id: str, cookie: Any) -> None:
        """Drop a call that waits for an outcome, if it still waits."""
        record = self._records.get(id)
        if record is not None:
            record.waiters = [each for each in record.waiters if each is not cookie]

    def cancel(self, owner: Owner, id: str, now: float, *, cookie: Any) -> None:
        """Cancel a task; ``TaskReplied`` brings it (TASK-25), with an error if that could not be stored yet.

        Raises ``RequestError`` as ``get`` does, and for a task that is over (TASK-26).
        """
        record, _ = self._find(owner, id)
        record.cancel(self._epoch + now)
        self._count(record, -1)
        self._put(record, "status", None, cookie, wants_reply=True)

    # For the code that does the work

    def ask(self, id: str, now: float, question: tuple[str, Mapping[str, Any]] | None = None) -> str | None:
        """Record that the work waits for input of the requestor (TASK-16).

        Without a ``question``, it is sent to the requestor in other ways, and needs one call of ``answered``. With one,
        a key and a JSON object, the requestor finds it in the task, under the key that is returned: a new one, so that
        no key is ever used again (XTASK-09). Raises ``LocalProtocolError`` if the task is over, or if JSON cannot
        express the question.
        """
        record = self._records.get(id)
        if record is None or record.is_over:
            raise LocalProtocolError("the task is over: it can ask no more")
        _check_json(question)
        key = None
        if question is None:
            record.questions += 1
        else:
            record.asked += 1
            key = f"{question[0]}-{record.asked}"
            record.inputs = {**record.inputs, key: question[1]}
        is_new = record.state is TaskState.WORKING
        if is_new:
            self._step(record, TaskInput.SEND_QUESTION)
        if is_new or key is not None:
            self._touch(record, now)
            self._put(record, "status")
        return key

    def answered(self, id: str, now: float) -> None:
        """Record that the input arrived. Does nothing if the task has ended.

        Raises ``LocalProtocolError`` if the task waits for no input.
        """
        record = self._records.get(id)
        if record is None or record.is_over:
            return
        if not record.questions:
            raise LocalProtocolError("the task asked nothing")
        record.questions -= 1
        self._have_answer(record, now)

    def answer(self, id: str, answers: Mapping[str, Any], now: float) -> None:
        """Process answers to questions, by key: ``TaskAnswered`` passes each on (XTASK-08).

        Unknown keys are ignored, as are those that were answered.
        """
        record = self._records.get(id)
        if record is None or record.is_over:
            return
        found = {key: answer for key, answer in answers.items() if key in record.inputs}
        if found:
            record.inputs = {key: question for key, question in record.inputs.items() if key not in found}
            self._events.extend(TaskAnswered(id, key, answer) for key, answer in found.items())
            if not self._have_answer(record, now):
                self._put(record, "status")

    def withdraw_question(self, id: str, key: str, now: float) -> None:
        """Drop a question whose answer is no longer awaited."""
        record = self._records.get(id)
        if record is not None and not record.is_over and key in record.inputs:
            record.inputs = {other: question for other, question in record.inputs.items() if other != key}
            if not self._have_answer(record, now):
                self._put(record, "status")

    def _have_answer(self, record: TaskRecord, now: float) -> bool:
        """Return to ``WORKING`` if no question is open any more; return whether that is so."""
        self._touch(record, now)
        if record.questions or record.inputs:
            return False
        self._step(record, TaskInput.RECV_ANSWER)
        self._put(record, "status")
        return True

    def say(self, id: str, message: str, now: float) -> bool:
        """Set the status message of a task, shortened if it is long; return whether the task still runs.

        Raises ``TypeError`` if it is not a str, and ``LocalProtocolError`` if JSON cannot express it.
        """
        if not isinstance(message, str):
            raise TypeError(f"a status message is a str, not {message!r:.100}")
        record = self._records.get(id)
        if record is None or record.is_over:
            return False
        message = message if len(message) <= SAID_LENGTH else message[: SAID_LENGTH - 1] + "…"
        _check_json(message)
        record.message = message
        self._touch(record, now)
        self._put(record, "status")
        return True

    def finish(self, id: str, outcome: TaskOutcome, now: float) -> bool:
        """End a task with its outcome; return False if it had ended, since a final state never changes (TASK-25).

        Raises ``LocalProtocolError``, and changes nothing, for an outcome that JSON cannot express. An outcome beyond
        the limits is replaced by an error.
        """
        return self._end(id, outcome, TaskInput.SEND_ERROR if outcome.is_failure else TaskInput.SEND_RESULT, now)

    def lose(self, id: str, reason: str, now: float) -> bool:
        """Fail a task whose work was lost, with ``reason`` as its message; return whether it still ran."""
        return self._end(id, _lost(id, reason), TaskInput.RECV_LOSS, now)

    def orphan(self, id: str, reason: str, now: float) -> None:
        """Record that a task lost its work: it fails, or ``TaskOrphaned`` asks to resume it."""
        record = self._records.get(id)
        if record is None or record.is_over:
            return
        if record.request is None:
            self.lose(id, reason, now=now)
            return
        if record.state is TaskState.INPUT_REQUIRED:
            record.questions, record.inputs = 0, EMPTY
            self._step(record, TaskInput.RECV_ANSWER)
            self._touch(record, now)
            self._put(record, "status")
        self._events.append(TaskOrphaned(id, record.owner, record.operation, record.request))

    def release(self, id: str, reason: str, now: float) -> None:
        """Treat a task as ``orphan`` does, but leave one that can be resumed to the machines that share the store."""
        record = self._records.get(id)
        if self._lease is None or record is None or record.is_over or record.request is None:
            self.orphan(id, reason, now)
            return
        # A lease that ends at once lets the next machine that renews take the task, before this one has ended.
        token = self._ask(id)
        self._effects[token] = self._store_put(token, record, None, lease=0.0)
        self._leave(record)

    def task_signalled(self, id: str) -> None:
        """Reload a task of this machine from the shared store, because another machine has changed it."""
        record = self._records.get(id)
        if record is not None and not record.is_over:
            token = self._ask(_Look(id))
            self._effects[token] = StoreFetch(token, id)

    def withdraw(self, id: str) -> None:
        """Forget a task that was never announced to its requestor, if it is known."""
        record = self._records.get(id)
        if record is not None:
            self._drop(record)
        elif self._lease is not None:
            # One that has ended left this machine when it was stored.
            self._delete(id)

    # The store

    def load(self, now: float) -> None:
        """Load all tasks from the store, or from a shared one those that lost their work. Call it once, first."""
        if self._lease is not None:
            self.loaded = True
            self._renew(self._lease, now)
            return
        token = self._ask(None)
        self._effects[token] = StoreLoad(token, None)

    def store_again(self) -> None:
        """Store anew what the store did not take. The machine does so from time to time; call it before an end."""
        unstored, self._unstored = self._unstored, {}
        for record in unstored.values():
            self._put(record, "status", None if record.outcome is None else dump_outcome(record.outcome))

    def next_effect(self) -> StoreEffect | None:
        """Return the next effect for the store, or ``None``. Effects on one key must be applied in this order.

        What is not pulled is still the machine's: a state that waits to be stored gives way to the next one, so pull
        only when the store has time.
        """
        return self._effects.popitem(last=False)[1] if self._effects else None

    def store_done(self, token: int, value: Any, now: float) -> None:
        """Process the store's answer: the value that it loaded, ``None``, or the exception that it raised.

        Raises ``LocalProtocolError`` for a token without a pending effect.
        """
        if token not in self._asked:
            raise LocalProtocolError(f"no effect waits for an answer under {token!r:.100}")
        asked = self._asked.pop(token)
        if isinstance(asked, _Put):
            self._put_done(asked, value, now)
        elif isinstance(asked, _Fetch):
            self._fetch_done(asked, value)
        elif isinstance(asked, _Renew):
            self._renew_done(asked, value, now)
        elif isinstance(value, BaseException):
            self._events.append(TaskStoreFailed(asked.id if isinstance(asked, _Look) else asked, value))
            if asked is None:
                self.load_failed = True
                self._try_again(now)
        elif isinstance(asked, _Look):
            self._look_done(asked.id, value, now)
        elif asked is None:
            self.loaded, self.load_failed = True, False
            self._load_done(value, now)

    # Pull, and time

    def next_event(self) -> TaskEvent | None:
        """Return the next event, or ``None``."""
        return self._events.popleft() if self._events else None

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` is due, or ``None``."""
        return self._timers.next()

    def handle_timeout(self, now: float) -> None:
        """Delete expired tasks, in every status (TASK-32), renew leases, and store again what could not be stored.

        Early or repeated calls do nothing.
        """
        for number in self._timers.pop_expired(now):
            if number == _RENEWAL and self._lease is not None:
                self._renew(self._lease, now)
            elif number == _LAPSE:
                self._lapse(now)
            elif number == _RETRY and self.load_failed:
                self.load(now)
            elif number == _RETRY:
                self.store_again()
            else:
                self._forget(self._by_number[number])

    # Memory

    @property
    def held(self) -> int:
        """Bytes of memory that all tasks take, for a ledger."""
        return self._stored[_ALL]

    def discard_finished(self) -> None:
        """Delete the oldest finished tasks, until half of the memory of finished tasks is free."""
        finished = [record for record in self._records.values() if record.is_over]
        excess = sum(record.size for record in finished) / 2
        for record in finished:
            if excess <= 0:
                break
            excess -= record.size
            self._forget(record)

    # Records

    def _find(self, owner: Owner, id: str) -> tuple[TaskRecord, Task]:
        record = self._owned.get(owner, {}).get(id)
        if record is None or record.shown is None:
            raise not_found(id)
        return record, record.shown

    def _check_room(self, owner: Owner, account: Hashable) -> None:
        limits = self._limits
        for count, limit in (
            (self._running[account], limits.running_per_owner),
            (self._running[_STRANGERS] if owner is None else 0, limits.running_without_owner),
            (self._running[_ALL], limits.running),
            (len(self._records), limits.tasks),
        ):
            if count >= limit:
                raise _refused("Too many tasks", "too many tasks", limit)
        full = self._full(account, 1)
        if full is not None:
            raise _refused("No room for another task", "too much stored", full)

    def _full(self, account: Hashable, size: int) -> int | None:
        """Return the limit that ``size`` more bytes would exceed, if any."""
        limits = self._limits
        for counted, limit in ((account, limits.stored_bytes_per_owner), (_ALL, limits.stored_bytes)):
            if self._stored[counted] + size > limit:
                return limit
        return None

    def _resize(self, record: TaskRecord, change: int) -> None:
        for account in (_ALL, record.account):
            self._stored[account] += change
            if not self._stored[account]:
                del self._stored[account]

    def _keep(self, record: TaskRecord) -> None:
        self._records[record.id] = record
        self._by_number[record.number] = record
        self._owned.setdefault(record.owner, {})[record.id] = record
        self._resize(record, record.size)
        if not record.is_over:
            self._count(record, 1)
        if record.expires is not None:
            self._timers.set(record.number, record.expires - self._epoch)

    def _forget(self, record: TaskRecord) -> None:
        self._drop(record)
        for cookie in record.waiters:
            self._events.append(TaskReplied(cookie, None, not_found(record.id)))
        self._events.append(TaskChanged("expired", record.view(), record.owner, record.operation))

    def _drop(self, record: TaskRecord) -> None:
        self._leave(record)
        self._delete(record.id)

    def _delete(self, id: str) -> None:
        token = self._ask(id)
        self._effects[token] = StoreDelete(token, id)

    def _leave(self, record: TaskRecord) -> None:
        """Forget a task here, not in the store."""
        del self._records[record.id], self._by_number[record.number]
        owned = self._owned[record.owner]
        del owned[record.id]
        if not owned:
            del self._owned[record.owner]
        self._resize(record, -record.size)
        if not record.is_over:
            self._count(record, -1)
        self._timers.clear(record.number)
        self._unstored.pop(record.id, None)

    def _step(self, record: TaskRecord, what: TaskInput) -> None:
        record.state = TASK_TABLE[Direction.INCOMING, record.state, what]
        if record.is_over:
            self._count(record, -1)

    def _count(self, record: TaskRecord, change: int) -> None:
        """Add a task to the count of running ones, or remove it."""
        for account in (_ALL, record.account, *((_STRANGERS,) if record.owner is None else ())):
            self._running[account] += change
            if not self._running[account]:
                del self._running[account]

    def _touch(self, record: TaskRecord, now: float) -> None:
        record.touch(self._epoch + now)

    def _end(self, id: str, outcome: TaskOutcome, what: TaskInput, now: float) -> bool:
        record = self._records.get(id)
        if record is None or record.is_over:
            return False
        payload = dump_outcome(outcome)
        size = parsed_size(payload)
        excess = self._excess(record, len(payload), size)
        if excess is not None:
            outcome, what = TaskOutcome(error=excess), TaskInput.SEND_ERROR
            payload = dump_outcome(outcome)
            size = parsed_size(payload)
        # The memory is counted before the store has it: until then the machine holds the outcome for those who wait.
        self._step(record, what)
        record.message, record.outcome, record.questions, record.inputs = outcome.text, outcome, 0, EMPTY
        record.size += size
        self._resize(record, size)
        self._touch(record, now)
        self._put(record, "status", payload)
        return True

    def _excess(self, record: TaskRecord, length: int, size: int) -> RequestError | None:
        if length > self._limits.result_bytes:
            return _refused("The result of the task is too large", "result too large", self._limits.result_bytes)
        full = self._full(record.account, size)
        return None if full is None else _refused("No room for the result of the task", "too much stored", full)

    def _reply(self, cookie: Any, record: TaskRecord) -> None:
        outcome = record.outcome or TaskOutcome(error=was_cancelled(record.id))
        self._events.append(TaskReplied(cookie, outcome, None))

    # Answers of the store

    def _ask(self, asked: _Asked) -> int:
        token = self._next_token
        self._next_token += 1
        self._asked[token] = asked
        return token

    def _put(
        self,
        record: TaskRecord,
        change: Literal["created", "status"],
        payload: bytes | None = None,
        cookie: Any = None,
        *,
        wants_reply: bool = False,
    ) -> None:
        put = _Put(record, record.view(), record.inputs, change, cookie, wants_reply)
        is_plain = change == "status" and payload is None and not wants_reply
        if is_plain and record.waiting in self._effects:
            # Not pulled yet: the newer state takes its place in the order. Only states that nobody waits for may go so.
            token = record.waiting
            self._asked[token] = put
        else:
            token = self._ask(put)
        self._effects[token] = self._store_put(token, record, payload, lease=self._lease)
        record.waiting = token if is_plain else 0

    def _store_put(self, token: int, record: TaskRecord, payload: bytes | None, *, lease: float | None) -> StorePut:
        lease = None if record.is_over else lease
        return StorePut(token, record.id, dump_record(record), payload, record.owner, record.expires, lease)

    def _put_done(self, put: _Put, value: Any, now: float) -> None:
        record, failed = put.record, isinstance(value, BaseException)
        if failed:
            self._events.append(TaskStoreFailed(record.id, value))
        is_there = self._records.get(record.id) is record
        if put.change == "created" and (failed or value is False or not is_there):
            # Its requestor does not know its id yet, so a task that cannot be stored is not created.
            if is_there:
                self._drop(record)
            error = RequestError(ErrorCode.INTERNAL_ERROR, "The task could not be stored")
            self._events.append(TaskReplied(put.cookie, None, error))
            return
        if value is False:
            self._put_refused(put, is_there=is_there)
        elif failed:
            self._put_failed(put, now, is_there=is_there)
        else:
            self._put_stored(put, is_there=is_there)

    def _put_stored(self, put: _Put, *, is_there: bool) -> None:
        record = put.record
        if is_there:
            record.shown, record.shown_inputs = put.view, put.inputs
            self._unstored.pop(record.id, None)
            self._events.append(TaskChanged(put.change, put.view, record.owner, record.operation))
            if put.change == "created" and record.leased_until is not None:
                self._watch_lease(record.leased_until)
        if put.wants_reply:
            self._events.append(TaskReplied(put.cookie, put.view, None))
        if is_there and TaskState(put.view.status) in ENDED:
            waiters, record.waiters = record.waiters, []
            for cookie in waiters:
                self._reply(cookie, record)
            # From here on the store has the outcome.
            record.outcome = None
            if self._lease is not None:
                self._leave(record)

    def _put_failed(self, put: _Put, now: float, *, is_there: bool) -> None:
        """Handle a state that could not be stored: it is stored again, and not shown before that."""
        record = put.record
        if put.wants_reply:
            text = "The task is cancelled, but that could not be stored yet"
            error = RequestError(ErrorCode.INTERNAL_ERROR, text, {"taskId": record.id})
            self._events.append(TaskReplied(put.cookie, None, error))
        if not is_there:
            return
        self._unstored[record.id] = record
        self._try_again(now)
        if record.is_over and record.shown is not None:
            # A final state that is lost with the process would not be final, so the task still counts as running.
            record.shown = attrs.evolve(record.shown, status=TaskState.WORKING.value, status_message=_UNSTORED)
            record.shown_inputs = EMPTY

    def _put_refused(self, put: _Put, *, is_there: bool) -> None:
        """Handle a state that the store refused, because the task belongs to another machine now."""
        if is_there:
            self._take(put.record, _LOST)
        if put.wants_reply:
            self._events.append(TaskReplied(put.cookie, None, None))

    def _try_again(self, now: float) -> None:
        if self._timers.get(_RETRY) is None:
            self._timers.set(_RETRY, now + RETRY)

    # Sharing a store

    def _renew(self, lease: float, now: float) -> None:
        for record in self._records.values():
            if record.inputs:
                self.task_signalled(record.id)
        # Also of tasks that are over, but not stored so: otherwise their work would seem to be lost.
        keys = tuple(record.id for record in self._records.values() if record.shown)
        token = self._ask(_Renew(now, keys))
        self._effects[token] = StoreRenew(token, keys, lease)

    def _renew_done(self, asked: _Renew, renewal: Renewal | BaseException, now: float) -> None:
        lease = self._lease or 0.0
        # After the answer, since a slow store is not asked twice at once; sooner after a failure: the leases run out.
        pause = lease / 10 if isinstance(renewal, BaseException) else lease / 3
        self._timers.set(_RENEWAL, max(now, asked.asked + pause))
        if isinstance(renewal, BaseException):
            self._events.append(TaskStoreFailed(None, renewal))
            return
        # By the clock of the store they last longer, as it got the request later.
        until = asked.asked + lease
        for id in asked.keys:
            record = self._records.get(id)
            if record is None:
                continue
            if id in renewal.lost:
                self._take(record, _LOST)
                continue
            if record.leased_until is None and not record.is_over:
                self._events.append(TaskLeased(id))
            record.leased_until = until
            self._watch_lease(until)
        for stored in renewal.adopted:
            self._adopt(stored, until, now)

    def _watch_lease(self, until: float) -> None:
        first = self._timers.get(_LAPSE)
        self._timers.set(_LAPSE, until if first is None else min(first, until))

    def _lapse(self, now: float) -> None:
        """Report the leases that have ended by this machine's clock, and watch the others."""
        lapsed = []
        for record in self._records.values():
            if record.leased_until is None or record.is_over:
                continue
            if record.leased_until > now:
                self._watch_lease(record.leased_until)
            elif record.shown is not None:
                record.leased_until = None
                lapsed.append(record.id)
        if lapsed:
            self._events.append(TasksLapsed(tuple(lapsed)))

    def _look_done(self, id: str, stored: StoredTask | None, now: float) -> None:
        record = self._records.get(id)
        if record is None or record.is_over:
            return
        try:
            is_over = stored is None or load_record(id, stored.record).state in ENDED
            answers = {} if stored is None else {key: json.loads(answer) for key, answer in stored.answers.items()}
        except (InvalidMessage, ValueError) as error:
            self._events.append(TaskStoreFailed(id, error))
        else:
            if is_over:
                self._take(record)  # most often cancelled, which needs no report
            else:
                self.answer(id, answers, now)

    def _adopt(self, stored: StoredTask, until: float, now: float) -> None:
        if stored.key in self._records:  # its lease expired while this machine could not renew it
            return
        try:
            record = load_record(stored.key, stored.record)
        except InvalidMessage as error:
            self._events.append(TaskStoreFailed(stored.key, error))
            return
        record.number = self._next_number
        self._next_number += 1
        record.account, record.leased_until = _account(record.owner, None), until
        self._keep(record)
        self._watch_lease(until)
        # It may be alive, and cut off from the store.
        self.orphan(record.id, "No sign of life from the process that ran the task", now=now)

    def _take(self, record: TaskRecord, reason: str | None = None) -> None:
        """Leave a task to the machine that wrote it to the store."""
        self._leave(record)
        self._events.append(TaskTaken(record.id, record.operation, reason))
        for cookie in record.waiters:
            self._events.append(TaskReplied(cookie, None, None))

    def _fetch_done(self, fetch: _Fetch, value: Any) -> None:
        outcome: TaskOutcome | None = None
        error = RequestError(ErrorCode.INTERNAL_ERROR, "The result of the task is lost", {"taskId": fetch.id})
        if isinstance(value, BaseException):
            error = unreadable()
        elif isinstance(value, bytes):
            try:
                outcome = load_outcome(value)
            except InvalidMessage as fault:
                value = fault
        elif value is not None:
            value = InvalidMessage("payload", f"expected bytes, got {type(value).__name__}")
        if isinstance(value, BaseException):
            self._events.append(TaskStoreFailed(fetch.id, value))
        if fetch.id not in self._records:
            error = not_found(fetch.id)
        self._events.append(TaskReplied(fetch.cookie, outcome, None if outcome is not None else error))

    def _load_done(self, records: Iterable[tuple[str, bytes]], now: float) -> None:
        found: dict[int, TaskRecord] = {}
        for key, text in records:
            try:
                record = load_record(key, text)
            except InvalidMessage as error:
                self._events.append(TaskStoreFailed(key, error))
            else:
                found[record.number] = record
        for number, record in sorted(found.items()):
            self._next_number = number + 1
            record.account = _account(record.owner, None)
            self._keep(record)
        self.handle_timeout(now)  # what has expired in the meantime is not resumed
        for id in tuple(self._records):
            self.orphan(id, "The server was restarted before the task was over", now=now)


RECORD_COST: Final = 1024
"""Bytes that a task takes in addition to its record and outcome: objects, timers, and table entries."""
SAID_LENGTH: Final = 1000
"""The longest status message of a task that runs, in characters: no limit counts its memory."""
RETRY: Final = 5.0
"""Seconds until the store is tried again, after it failed."""
_RENEWAL: Final = 0
"""The timer of the next renewal. The timers of tasks are their numbers, from 1."""
_RETRY: Final = -1
"""The timer of what is to be tried again."""
_LAPSE: Final = -2
"""The timer of the first lease that ends."""
_UNSTORED: Final = "The work has ended, but that could not be stored yet"
_LOST: Final = "another process has taken it over, or it was cancelled or deleted"
_ALL: Final = "all"
_STRANGERS: Final = "without an owner"


def _check_json(value: Any) -> None:
    """Raise ``LocalProtocolError`` if JSON cannot express a value.

    Before it is in a record: otherwise no later state of the task could be stored either.
    """
    try:
        json.dumps(value)
    except (TypeError, ValueError) as fault:
        raise LocalProtocolError(f"not expressible in JSON: {fault}") from fault


def _account(owner: Owner, requestor: Hashable) -> Hashable:
    """Return the account that a task counts for: its owner, or else its requestor."""
    return ("owner", owner) if owner is not None else ("requestor", requestor)


def _refused(text: str, reason: str, limit: int) -> RequestError:
    return RequestError(ErrorCode.INTERNAL_ERROR, text, {"reason": reason, "limit": limit})


def _lost(id: str, reason: str) -> TaskOutcome:
    return TaskOutcome(error=RequestError(ErrorCode.INTERNAL_ERROR, reason, {"taskId": id, "status": "failed"}))
