"""Tasks as records and as a machine."""

from __future__ import annotations

import enum
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from mcpio._checks import is_count
from mcpio.engine.channel import Timers
from mcpio.engine.limits import is_time, parsed_size, without_limit
from mcpio.engine.pending import OutgoingDialogue, OutgoingRequest, outgoing_request, outgoing_state
from mcpio.engine.table import Direction
from mcpio.errors import ErrorCode, InvalidMessage, LocalProtocolError, RequestError
from mcpio.framing import json
from mcpio.types._fields import EMPTY
from mcpio.types.base import META_RELATED_TASK
from mcpio.types.tasks import GetTaskPayloadResult, GetTaskResult, ListTasksResult, Task, TaskStatusNotification

if TYPE_CHECKING:
    from mcpio.engine.snapshot import OutgoingState


# --------------------------------------------------------------------------------------------------------- task records
# Tasks as a receiver keeps them: states, records, events and store effects, and their stored form.

MIB: Final = 1024 * 1024


class TaskState(enum.Enum):
    """The status of a task. The values are those of the protocol."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TaskInput(enum.Enum):
    """An event in the life of a task: ``SEND_…`` by the receiver's side, ``RECV_…`` from elsewhere."""

    SEND_QUESTION = "ask the requestor"
    SEND_RESULT = "finish"
    SEND_ERROR = "fail"
    RECV_ANSWER = "have all answers"
    RECV_CANCEL = "receive tasks/cancel"
    RECV_LOSS = "lose the work"


_INCOMING = Direction.INCOMING
_WORKING, _INPUT_REQUIRED = TaskState.WORKING, TaskState.INPUT_REQUIRED

TASK_TABLE: Final[Mapping[tuple[Direction, TaskState, TaskInput], TaskState]] = {
    (_INCOMING, _WORKING, TaskInput.SEND_QUESTION): _INPUT_REQUIRED,
    (_INCOMING, _WORKING, TaskInput.SEND_RESULT): TaskState.COMPLETED,
    (_INCOMING, _WORKING, TaskInput.SEND_ERROR): TaskState.FAILED,
    (_INCOMING, _WORKING, TaskInput.RECV_CANCEL): TaskState.CANCELLED,
    (_INCOMING, _WORKING, TaskInput.RECV_LOSS): TaskState.FAILED,
    (_INCOMING, _INPUT_REQUIRED, TaskInput.RECV_ANSWER): _WORKING,
    (_INCOMING, _INPUT_REQUIRED, TaskInput.SEND_RESULT): TaskState.COMPLETED,
    (_INCOMING, _INPUT_REQUIRED, TaskInput.SEND_ERROR): TaskState.FAILED,
    (_INCOMING, _INPUT_REQUIRED, TaskInput.RECV_CANCEL): TaskState.CANCELLED,
    (_INCOMING, _INPUT_REQUIRED, TaskInput.RECV_LOSS): TaskState.FAILED,
}
"""(direction, state, input) -> the next state, for tasks that a peer requested (TASK-14). Only this table decides it; a
state without rows is final."""


ENDED: Final = frozenset(state for state in TaskState if not any(row[1] is state for row in TASK_TABLE))
"""The final states."""

MESSAGE_LENGTH: Final = 200
"""The longest ``statusMessage``, in characters: the rest is cut off."""

LONGEST: Final = 1e15
"""The longest time that a requestor can ask for, in milliseconds: some 30,000 years."""

FORMAT: Final = 1
"""The version of the stored form."""

Owner: TypeAlias = str | int | None
"""The owner of a task, in a form that can be stored; ``None`` without authentication."""


_SIZES = ("stored_bytes", "stored_bytes_per_owner", "result_bytes")


@attrs.frozen(kw_only=True)
class TaskLimits:
    """Bounds of a receiver's tasks (TASK-36). Times are in seconds, ``None`` sets no limit; sizes are in bytes."""

    running: int = 1024
    """How many tasks may be unfinished at once. Beyond: the request is refused with -32603, ``too many tasks``."""
    running_per_owner: int = 64
    """How many of them one owner may have; without an owner, one session. Beyond: likewise."""
    running_without_owner: int = 512
    """How many of them may have no owner, so that strangers leave room for others. Beyond: likewise."""
    tasks: int = 4096
    """How many tasks may be kept, finished ones too. Beyond: likewise."""
    stored_bytes: int = 256 * MIB
    """How much memory tasks may take together, results included. Beyond: a request is refused with -32603, ``too much
    stored``, and a task that finishes fails with that error."""
    stored_bytes_per_owner: int = 64 * MIB
    """The same for the tasks of one owner; without an owner, of one session."""
    result_bytes: int = 16 * MIB
    """The longest result. Beyond: the task fails with -32603, ``result too large``."""
    default_ttl: float | None = attrs.field(default=3600.0, converter=without_limit, validator=is_time)
    """For how long to keep a task if its requestor gives no time, from its creation."""
    max_ttl: float | None = attrs.field(default=86400.0, converter=without_limit, validator=is_time)
    """The longest time that a task is kept. Beyond: the requestor is given this time."""
    max_ttl_without_owner: float | None = attrs.field(default=3600.0, converter=without_limit, validator=is_time)
    """The same for tasks without an owner, which the id alone gives access to (TASK-35)."""

    def __attrs_post_init__(self) -> None:
        for name in ("running", "running_per_owner", "running_without_owner", "tasks", *_SIZES):
            value = getattr(self, name)
            if not is_count(value):
                raise ValueError(f"{name} must be an integer of 0 or more, not {value!r}")

    def ttl(self, requested: float | None, owner: Owner) -> float | None:
        """Return for how many milliseconds to keep a task whose requestor asks for this; ``None`` sets no limit."""
        cap = self.max_ttl if owner is not None else _least(self.max_ttl, self.max_ttl_without_owner)
        # Before any arithmetic: the peer's integer may be too large for a float.
        wanted = _milliseconds(self.default_ttl) if requested is None else min(requested, LONGEST)
        granted = _least(_milliseconds(cap), wanted)
        return None if granted is None else math.ceil(granted)  # some readers take integers only


@attrs.frozen
class TaskOutcome:
    """The answer that the request would have had without a task (TASK-21): either a result or an error."""

    result: Mapping[str, Any] | None = None
    """The result, in its wire form."""
    error: RequestError | None = None
    """The JSON-RPC error."""

    @property
    def is_failure(self) -> bool:
        """Whether the task failed: with an error, or with a tool's result that says so (TASK-15)."""
        return self.result is None or self.result.get("isError") is True

    @property
    def text(self) -> str | None:
        """The message of a failure; ``None`` for a success or a failure without a message."""
        if not self.is_failure:
            return None
        if self.error is not None:
            return self.error.message[:MESSAGE_LENGTH]
        content = (self.result or {}).get("content")
        for block in content if isinstance(content, list | tuple) else ():
            text = block.get("text") if isinstance(block, Mapping) else None
            if isinstance(text, str):
                return text[:MESSAGE_LENGTH]
        return None


@attrs.define(eq=False)
class TaskRecord:
    """One task. Times are Unix seconds; ``ttl`` and ``poll_interval`` are milliseconds, as on the wire."""

    id: str
    number: int
    owner: Owner
    operation: str
    request: Mapping[str, Any] | None
    created: float
    updated: float
    ttl: float | None
    poll_interval: float | None
    state: TaskState = TaskState.WORKING
    message: str | None = None
    size: int = 0
    """The memory that it takes with its outcome, in bytes."""
    questions: int = 0
    """How many answers of the requestor it waits for."""
    asked: int = 0
    """How many questions it has asked for ``inputs``, which makes their keys unique for its life (XTASK-09)."""
    inputs: Mapping[str, Any] = EMPTY
    """The questions for a stateless requestor, in their wire form, by key."""
    left: dict[str, tuple[Any, ...]] = attrs.field(factory=dict, kw_only=True)
    """The questions of work that was lost, by key, each with its answer if that came; the next run may ask again."""
    outcome: TaskOutcome | None = None
    """The outcome, until it is stored."""
    waiting: int = 0
    """The token of a waiting state that the next one may replace."""
    shown: Task | None = None
    """The state that was stored last, which the requestor may see; ``None`` before that."""
    shown_inputs: Mapping[str, Any] = EMPTY
    """The questions in that state."""
    account: Hashable = None
    """The owner, or without one the requestor, whose limits it counts towards."""
    leased_until: float = -math.inf
    """When its lease ends, on the machine's clock; ``-inf`` if it has ended, or may have."""

    @property
    def expires(self) -> float | None:
        """When it is forgotten, in Unix time; ``None`` for never."""
        return None if self.ttl is None else self.created + self.ttl / 1000

    @property
    def is_over(self) -> bool:
        """Whether its state is final."""
        return self.state in ENDED

    def cancel(self, moment: float) -> None:
        """Cancel the task at ``moment``, in Unix time. Raises ``RequestError`` if it has ended (TASK-26)."""
        what = (Direction.INCOMING, self.state, TaskInput.RECV_CANCEL)
        if what not in TASK_TABLE:
            data = {"taskId": self.id, "status": self.state.value}
            text = f"Cannot cancel a task that is over: its status is {self.state.value}"
            raise RequestError(ErrorCode.INVALID_PARAMS, text, data)
        self.state = TASK_TABLE[what]
        self.message, self.questions, self.inputs = "The task was cancelled", 0, EMPTY
        self.touch(moment)

    def touch(self, moment: float) -> None:
        """Record a change at ``moment``, in Unix time."""
        # Wall time may have been set back between two processes.
        self.updated = max(self.updated, moment)

    def view(self) -> Task:
        """Return the task as it stands, for the wire (TASK-12)."""
        return Task(
            self.id,
            self.state.value,
            _rfc3339(self.created),
            _rfc3339(self.updated),
            _whole(self.ttl),
            self.message,
            _whole(self.poll_interval),
        )


@attrs.frozen
class TaskLook:
    """A task as a stateless requestor sees it (XTASK-06)."""

    task: Task
    """The task."""
    inputs: Mapping[str, Any]
    """Its questions without an answer, by key."""
    outcome: TaskOutcome | None
    """The outcome, if the task has ended."""


# Effects: what the store is to do


@attrs.frozen
class StorePut:
    """Store a task under its key, replacing an earlier state.

    Answer with ``False`` if the key is neither new nor leased by this machine, otherwise with ``True``.
    """

    token: int
    """The token for ``store_done``."""
    key: str
    """The task's id."""
    record: bytes
    """The record of the task, without its result."""
    payload: bytes | None
    """Its result; ``None`` keeps the stored one."""
    owner: Owner = None
    """Its owner."""
    expires: float | None = None
    """When the store may forget it, in Unix time; ``None`` for never."""
    lease: float | None = None
    """Seconds for which this machine owns the task. At 0 any machine may take it over; ``None``: it has ended."""


@attrs.frozen
class StoreDelete:
    """Delete a task, if it is stored, and either leased by this machine or over."""

    token: int
    """The token for ``store_done``."""
    key: str
    """The task's id."""


@attrs.frozen
class StoreFetch:
    """Read one task. Answer with its ``StoredTask``, ``None`` for none."""

    token: int
    """The token for ``store_done``."""
    key: str
    """The task's id."""


@attrs.frozen
class StoreRenew:
    """Renew the leases of tasks. Answer with the keys of those that this machine does not lease any more."""

    token: int
    """The token for ``store_done``."""
    keys: tuple[str, ...]
    """The ids of the tasks."""
    lease: float
    """For how many seconds from now."""


@attrs.frozen
class StoreAdopt:
    """Lease tasks of machines that are gone. Answer with a ``StoredTask`` for each."""

    token: int
    """The token for ``store_done``."""
    lease: float
    """For how many seconds from now."""


@attrs.frozen
class StoredTask:
    """A task as a store has it."""

    key: str
    """The task's id."""
    record: bytes
    """The record of the task."""
    payload: bytes | None
    """Its result, ``None`` if it has none yet."""
    version: int
    """How often it was written. It changes with every write."""
    answers: Mapping[str, bytes] = EMPTY
    """Answers to its questions, as JSON, by key: any process may bring them. Each key has the first that came."""


StoreEffect: TypeAlias = StorePut | StoreDelete | StoreFetch | StoreRenew | StoreAdopt
"""In the order in which the machine gives them, those of one key must take effect. Answer with the exception if the
store cannot be reached now."""


# Events


@attrs.frozen
class TaskReplied:
    """The answer to ``create`` or ``cancel``. Each cookie gets one."""

    cookie: Any
    """The cookie of the call."""
    value: Task | None
    """The task; ``None`` with an ``error``, and where another machine has taken the task: then ask the store."""
    error: RequestError | None
    """The error, if the call failed."""


@attrs.frozen
class TaskEnded:
    """A task has ended, and that is stored: its outcome, for those who wait for it (TASK-20, TASK-21)."""

    id: str
    """The task."""
    outcome: TaskOutcome
    """The outcome."""


@attrs.frozen
class TaskChanged:
    """A task changed, and the change is stored (TASK-30, TASK-38)."""

    change: Literal["created", "status", "expired"]
    """The kind of change: created, a new status or status message, or deleted, because it expired or its memory was
    needed."""
    task: Task
    """The task after the change."""
    owner: Owner
    """Its owner."""
    operation: str
    """Its operation, as given at its creation."""


@attrs.frozen
class TaskOrphaned:
    """A task lost its work and is resumed by running its request again."""

    id: str
    """The task."""
    owner: Owner
    """Its owner."""
    operation: str
    """Its operation."""
    request: Mapping[str, Any]
    """The request that was given at its creation."""


@attrs.frozen
class TaskStoreFailed:
    """The store failed. What it did not take is kept in memory and stored again; it is lost with the process."""

    key: str | None
    """The task's id, ``None`` for several."""
    error: BaseException
    """The exception, or the fault in the stored value."""


@attrs.frozen
class TaskAnswered:
    """A stateless requestor answered a question (XTASK-08)."""

    id: str
    """The task."""
    key: str
    """The question's key."""
    answer: Any
    """The answer, as it came."""


@attrs.frozen
class TaskTaken:
    """A task is another machine's by now, or was cancelled elsewhere: its work is to stop."""

    id: str
    """The task."""
    operation: str
    """Its operation."""
    reason: str | None
    """What may have happened, if that is worth a report; ``None`` for a task that ended elsewhere, or was deleted."""


@attrs.frozen
class TasksLapsed:
    """The leases of tasks have ended by this machine's clock, since it could not renew them.

    Other machines may take the tasks over. Their work may stop: ``TaskLeased`` or ``TaskTaken`` follows when the store
    can be reached, and ``orphan`` is for what was stopped and is still leased.
    """

    ids: tuple[str, ...]
    """The tasks."""


@attrs.frozen
class TaskLeased:
    """The lease of a task was renewed after ``TasksLapsed``: no other machine has taken it over."""

    id: str
    """The task."""


TaskEvent: TypeAlias = (
    TaskReplied
    | TaskEnded
    | TaskChanged
    | TaskOrphaned
    | TaskAnswered
    | TaskStoreFailed
    | TaskTaken
    | TasksLapsed
    | TaskLeased
)
"""The events of a task machine."""


# Stored form


def dump_outcome(outcome: TaskOutcome) -> bytes:
    """Return an outcome as JSON. Raises ``LocalProtocolError`` if JSON cannot express it."""
    error = outcome.error
    record: dict[str, Any] = {"result": outcome.result}
    if error is not None:
        record = {"error": {"code": error.code, "message": error.message, "data": error.data}}
    try:
        return json.dumps(record)
    except (TypeError, ValueError) as fault:
        raise LocalProtocolError(f"not expressible in JSON: {fault}") from fault


def load_outcome(payload: bytes) -> TaskOutcome:
    """Return the outcome that ``dump_outcome`` wrote. Raises ``InvalidMessage`` for any other value."""
    try:
        record = json.loads(payload)
        if "error" in record:
            error = record["error"]
            return TaskOutcome(error=RequestError(error["code"], error["message"], error["data"]))
        return TaskOutcome(_checked(record, "result", Mapping))
    except (TypeError, ValueError, KeyError) as fault:
        raise InvalidMessage("payload", f"no outcome of a task: {fault!r:.100}") from fault


def dump_record(record: TaskRecord) -> bytes:
    """Return a record as JSON. ``LocalProtocolError`` for a request that JSON cannot say."""
    members = {name: getattr(record, name) for name in _STORED}
    members |= {name: value for name, (_, default) in _ADDED.items() if (value := getattr(record, name)) != default}
    try:
        return json.dumps({"format": FORMAT, **members, "state": record.state.value})
    except (TypeError, ValueError) as fault:
        raise LocalProtocolError(f"not expressible in JSON: {fault}") from fault


def load_record(key: str, text: bytes) -> TaskRecord:
    """Return the record that ``dump_record`` wrote. Raises ``InvalidMessage`` for any other value."""
    try:
        members = _members(text, key)
        record = TaskRecord(**{name: members[name] for name in (*_STORED, *_ADDED) if name != "size"})
        record.state = TaskState(members["state"])
        record.size = members["size"]
        record.shown, record.shown_inputs = record.view(), record.inputs
    except (TypeError, ValueError, KeyError, OverflowError) as fault:
        raise InvalidMessage(key[:100], f"no record of a task: {fault!r:.100}") from fault
    return record


def was_cancelled(id: str) -> RequestError:
    """Return the outcome of a cancelled task: the specification defines no result for it (TASK-23)."""
    return RequestError(ErrorCode.INTERNAL_ERROR, "Task was cancelled", {"taskId": id, "status": "cancelled"})


def unreadable() -> RequestError:
    """Return the answer while the store cannot be read: it says nothing of the task."""
    return RequestError(ErrorCode.INTERNAL_ERROR, "The tasks cannot be read at the moment", {"retryable": True})


def not_found(id: str) -> RequestError:
    """Return the answer for a task that is not there, or not there for this requestor (TASK-33, TASK-34)."""
    return RequestError(ErrorCode.INVALID_PARAMS, "Task not found", {"taskId": id[:MESSAGE_LENGTH]})


_Number = int | float
_STORED: Final[dict[str, Any]] = {
    "id": str,
    "number": int,
    "owner": str | int | None,
    "operation": str,
    "request": Mapping | None,
    "created": _Number,
    "updated": _Number,
    "ttl": _Number | None,
    "poll_interval": _Number | None,
    "message": str | None,
    "size": int,
}
_ADDED: Final[dict[str, tuple[Any, Any]]] = {"asked": (int, 0), "inputs": (Mapping, EMPTY)}
"""Members that records of earlier versions lack, each with its types and its default."""


def _members(text: bytes, key: str) -> Any:
    """Return the values of a record, after checking the type of each member."""
    value = json.loads(text)
    if value["format"] != FORMAT or value["id"] != key:
        raise ValueError("another format, or another key")
    for name, kinds in _STORED.items():
        _checked(value, name, kinds)
    for name, (kinds, default) in _ADDED.items():
        value.setdefault(name, default)
        _checked(value, name, kinds)
    return value


def _checked(members: Mapping[str, Any], name: str, kinds: Any) -> Any:
    value = members[name]
    if not isinstance(value, kinds):
        raise TypeError(f"{name} must be {getattr(kinds, '__name__', kinds)}, not {value!r:.60}")
    return value


def _milliseconds(time: float | None) -> float | None:
    return None if time is None else time * 1000


def _least(first: float | None, second: float | None) -> float | None:
    """Return the shorter of two times, ``None`` being for ever."""
    least = min(math.inf if first is None else first, math.inf if second is None else second)
    return None if least == math.inf else least


def _rfc3339(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _whole(milliseconds: float | None) -> float | None:
    """Return a number that is written without a fraction where it has none: some readers take integers only."""
    if milliseconds is not None and float(milliseconds).is_integer():
        return int(milliseconds)
    return milliseconds


# --------------------------------------------------------------------------------------------------------- task machine
# The tasks that run here: a pure machine, without clock, randomness or storage.
# Time is an argument, ids come from ``entropy``, and storage is reached by effects (``next_effect``), each answered
# with ``store_done``. A state of a task is visible only once it is stored; one that the store did not take is stored
# again until it does. What is over, or runs elsewhere, is in the store alone. The machine knows no connection: an owner
# reaches its tasks through every connection, and either role may be the receiver (TASK-31).
# The obligation after every call: *carry out the effects, drain the events, re-arm the deadline.*

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
class _Look:
    """A task that may have been taken, and is being read."""

    id: str


@attrs.frozen
class _Release:
    """A task that is being left to other machines. They take it even if the store fails, once its lease has ended."""

    id: str


@attrs.frozen
class _Renew:
    """Leases that are being renewed."""

    asked: float
    keys: tuple[str, ...]


@attrs.frozen
class _Adopt:
    """Tasks of other machines that are being taken over."""

    asked: float


_Asked: TypeAlias = _Put | _Look | _Release | _Renew | _Adopt | str
"""The subject of an effect: the key of a deletion."""


class TaskMachine:
    """The tasks of one receiver that run here, for all their owners.

    Several machines, mostly in as many processes, may share a store. Each may write its tasks while its ``lease`` on
    them lasts, and renews that three times as often as needed. A task whose lease has expired lost its work, and goes
    to the first machine that finds it. A machine that cannot renew its leases reports their end by its own clock, with
    ``TasksLapsed``. A peer's limits hold for each machine separately.

    A store that only this machine uses has leases that never expire. Then those tasks also count towards the limits
    that are over, and the machine deletes them when they expire.
    """

    def __init__(
        self,
        *,
        entropy: Callable[[int], bytes],
        epoch: float,
        limits: TaskLimits | None = None,
        poll_interval: float | None = 1.0,
        lease: float = math.inf,
    ) -> None:
        """``entropy(n)`` returns n unpredictable bytes. ``epoch`` is Unix time, in seconds, at ``now == 0``.

        ``poll_interval`` is how often requestors should poll, in seconds; ``None`` leaves it to them. ``lease`` is how
        long a task stays this machine's after its last sign of life, in seconds; infinite, if nothing else uses the
        store.
        """
        self._entropy = entropy
        self._epoch = epoch
        self._limits = limits or TaskLimits()
        self._poll_interval = None if poll_interval is None else poll_interval * 1000
        self._records: dict[str, TaskRecord] = {}
        # Tasks that are over, in a store of this machine alone: what bounds them. They are read from the store.
        self._over: dict[str, TaskRecord] = {}
        self._by_number: dict[int, TaskRecord] = {}
        self._stored: Counter[Hashable] = Counter()
        self._running: Counter[Hashable] = Counter()
        self._next_number = 1
        self._next_token = 1
        self._asked: dict[int, _Asked] = {}
        self._lease = lease
        self._is_shared = lease < math.inf
        self._effects: OrderedDict[int, StoreEffect] = OrderedDict()
        self._events: deque[TaskEvent] = deque()
        self._timers = Timers()
        # Records whose last state the store did not take.
        self._unstored: dict[str, TaskRecord] = {}
        # Tasks that it did not delete.
        self._undeleted: dict[str, None] = {}

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
            raise LocalProtocolError(f"an owner must be a string, an integer or None, not {owner!r:.100}")
        if ttl is not None and not ttl > 0:
            raise RequestError(ErrorCode.INVALID_PARAMS, "Invalid params: task.ttl must be more than 0", {"ttl": ttl})
        account = _account(owner, requestor)
        self._check_room(owner, account)
        id = self._entropy(ID_BYTES).hex()
        if id in self._records or id in self._over:
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
            leased_until=now + self._lease,
        )
        record.size = RECORD_COST + parsed_size(dump_record(record))
        self._next_number += 1
        self._keep(record)
        self._put(record, "created", None, cookie, wants_reply=True)
        return id

    def __contains__(self, id: object) -> bool:
        """Whether a task runs here. All others are in the store."""
        return id in self._records

    def look(self, owner: Owner, id: str) -> TaskLook | None:
        """Return a task as it was stored last, ``None`` if it does not run here.

        Raises ``RequestError`` if it is another owner's (TASK-33, TASK-34).
        """
        record = self._records.get(id)
        if record is None or record.shown is None:
            return None
        if record.owner != owner:
            raise not_found(id)
        return TaskLook(record.shown, record.shown_inputs, None)

    def cancel(self, owner: Owner, id: str, now: float, *, cookie: Any) -> None:
        """Cancel a task; ``TaskReplied`` brings it (TASK-25), with an error if that could not be stored yet.

        Raises ``RequestError`` for a task that does not run here, is another owner's, or is over (TASK-26).
        """
        if self.look(owner, id) is None:
            raise not_found(id)
        record = self._records[id]
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
            for key, earlier in record.left.items():
                if key.rpartition("-")[0] == question[0] and earlier[0] == question[1]:
                    del record.left[key]
                    self._events.extend(TaskAnswered(id, key, answer) for answer in earlier[1:])
                    return key
            record.asked += 1
            key = f"{question[0]}-{record.asked}"
            # The next run asks something else: an answer to the questions before would get lost.
            kept = {other: each for other, each in record.inputs.items() if other not in record.left}
            record.left.clear()
            record.inputs = {**kept, key: question[1]}
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
        expected = {key: answer for key, answer in answers.items() if key in record.inputs}
        if expected:
            record.inputs = {key: question for key, question in record.inputs.items() if key not in expected}
            for key, answer in expected.items():
                if key in record.left:
                    record.left[key] = (*record.left[key], answer)
                else:
                    self._events.append(TaskAnswered(id, key, answer))
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
            raise TypeError(f"a status message must be a str, not {message!r:.100}")
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
        record.questions = 0
        record.left.update((key, (question,)) for key, question in record.inputs.items())
        if record.state is TaskState.INPUT_REQUIRED and not record.inputs:
            self._step(record, TaskInput.RECV_ANSWER)
            self._touch(record, now)
            self._put(record, "status")
        self._events.append(TaskOrphaned(id, record.owner, record.operation, record.request))

    def release(self, id: str, reason: str, now: float) -> None:
        """Treat a task as ``orphan`` does, but leave one that can be resumed to the machines that share the store."""
        record = self._records.get(id)
        if not self._is_shared or record is None or record.is_over or record.request is None:
            self.orphan(id, reason, now)
            return
        # A lease that ends at once lets the next machine that renews take the task, before this one has ended.
        token = self._ask(_Release(id))
        self._effects[token] = self._store_put(token, record, None, 0.0)
        self._leave(record)

    def task_signalled(self, id: str) -> None:
        """Reload a task of this machine from the store, because another machine has changed it."""
        record = self._records.get(id)
        if record is not None and not record.is_over:
            token = self._ask(_Look(id))
            self._effects[token] = StoreFetch(token, id)

    def withdraw(self, id: str) -> None:
        """Delete a task that was never announced to its requestor, if it is known."""
        record = self._records.get(id) or self._over.get(id)
        if record is not None:
            self._leave(record)
        self._delete(id)

    # The store

    def load(self, now: float) -> None:
        """Take over the tasks in the store that lost their work. Call it once, first."""
        self._renew(now)

    def store_again(self) -> None:
        """Repeat what the store failed to do. The machine does so from time to time; call it before an end."""
        unstored, self._unstored = self._unstored, {}
        for record in unstored.values():
            self._put(record, "status", None if record.outcome is None else dump_outcome(record.outcome))
        undeleted, self._undeleted = self._undeleted, {}
        for id in undeleted:
            self._delete(id)

    def next_effect(self) -> StoreEffect | None:
        """Return the next effect for the store, or ``None``. Effects on one key must be applied in this order.

        What is not pulled is still the machine's: a state that waits to be stored gives way to the next one, so pull
        only when the store has time.
        """
        return self._effects.popitem(last=False)[1] if self._effects else None

    def store_done(self, token: int, value: Any, now: float) -> None:
        """Process the store's answer to an effect, or the exception that it raised.

        Raises ``LocalProtocolError`` for a token without a pending effect.
        """
        if token not in self._asked:
            raise LocalProtocolError(f"no effect waits for an answer under {token!r:.100}")
        effect = self._asked.pop(token)
        if isinstance(effect, _Put):
            self._put_done(effect, value, now)
        elif isinstance(effect, _Renew):
            self._renew_done(effect, value, now)
        elif isinstance(effect, _Adopt):
            self._adopt_done(effect, value, now)
        elif isinstance(value, BaseException):
            self._events.append(TaskStoreFailed(effect if isinstance(effect, str) else effect.id, value))
            if isinstance(effect, str):
                self._undeleted[effect] = None
                self._try_again(now)
        elif isinstance(effect, _Look):
            self._look_done(effect.id, value, now)

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
            if number == _RENEWAL:
                self._renew(now)
            elif number == _LAPSE:
                self._lapse(now)
            elif number == _RETRY:
                self.store_again()
            else:
                self._forget(self._by_number[number])

    # Memory

    @property
    def held(self) -> int:
        """Bytes that all tasks take, for a ledger."""
        return self._stored[_ALL]

    def discard_finished(self) -> None:
        """Delete the oldest finished tasks, until half of the memory of finished tasks is free."""
        finished = list(self._over.values())
        excess = sum(record.size for record in finished) / 2
        for record in finished:
            if excess <= 0:
                break
            excess -= record.size
            self._forget(record)

    # Records

    def _check_room(self, owner: Owner, account: Hashable) -> None:
        limits = self._limits
        for count, limit in (
            (self._running[account], limits.running_per_owner),
            *(((self._running[_STRANGERS], limits.running_without_owner),) if owner is None else ()),
            (self._running[_ALL], limits.running),
            (len(self._records) + len(self._over), limits.tasks),
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
        (self._over if record.is_over else self._records)[record.id] = record
        self._by_number[record.number] = record
        self._resize(record, record.size)
        if not record.is_over:
            self._count(record, 1)
        if record.expires is not None:
            self._timers.set(record.number, record.expires - self._epoch)

    def _forget(self, record: TaskRecord) -> None:
        self._drop(record)
        self._events.append(TaskChanged("expired", record.view(), record.owner, record.operation))

    def _drop(self, record: TaskRecord) -> None:
        self._leave(record)
        self._delete(record.id)

    def _delete(self, id: str) -> None:
        token = self._ask(id)
        self._effects[token] = StoreDelete(token, id)

    def _leave(self, record: TaskRecord) -> None:
        """Forget a task here, not in the store."""
        for records in (self._records, self._over):
            records.pop(record.id, None)
        del self._by_number[record.number]
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
        """End a task by an outcome, or by an error if there is no room for it; return whether it was running."""
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

    # Answers of the store

    def _ask(self, effect: _Asked) -> int:
        token = self._next_token
        self._next_token += 1
        self._asked[token] = effect
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
        """Ask the store to write the current state of a task. States that nobody waits for replace each other."""
        put = _Put(record, record.view(), record.inputs, change, cookie, wants_reply)
        is_plain = change == "status" and payload is None and not wants_reply
        if is_plain and record.waiting in self._effects:
            # Not pulled yet: the newer state takes its place in the order. Only states that nobody waits for may go so.
            token = record.waiting
            self._asked[token] = put
        else:
            token = self._ask(put)
        self._effects[token] = self._store_put(token, record, payload, self._lease)
        record.waiting = token if is_plain else 0

    def _store_put(self, token: int, record: TaskRecord, payload: bytes | None, lease: float) -> StorePut:
        left = None if record.is_over else lease
        return StorePut(token, record.id, dump_record(record), payload, record.owner, record.expires, left)

    def _put_done(self, put: _Put, value: Any, now: float) -> None:
        """Take the store's answer to a write: an exception, ``False`` for a task of another machine, or success."""
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
        """Show a state that is stored now. An outcome leaves memory at this point: from here on the store has it."""
        record = put.record
        if is_there:
            record.shown, record.shown_inputs = put.view, put.inputs
            self._unstored.pop(record.id, None)
            self._events.append(TaskChanged(put.change, put.view, record.owner, record.operation))
            if put.change == "created":
                self._watch_lease(record.leased_until)
        if put.wants_reply:
            self._events.append(TaskReplied(put.cookie, put.view, None))
        if is_there and TaskState(put.view.status) in ENDED:
            outcome = record.outcome or TaskOutcome(error=was_cancelled(record.id))
            self._events.append(TaskEnded(record.id, outcome))
            record.outcome = None
            # From here on it is in the store alone.
            if self._is_shared:
                self._leave(record)
            else:
                self._over[record.id] = self._records.pop(record.id)

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

    def _renew(self, now: float) -> None:
        for record in self._records.values():
            if record.inputs:
                self.task_signalled(record.id)
        # Also of tasks that are over, but not stored so: otherwise their work would seem to be lost.
        keys = tuple(record.id for record in self._records.values() if record.shown)
        if keys:
            token = self._ask(_Renew(now, keys))
            self._effects[token] = StoreRenew(token, keys, self._lease)
        token = self._ask(_Adopt(now))
        self._effects[token] = StoreAdopt(token, self._lease)

    def _renew_done(self, effect: _Renew, lost: Collection[str] | BaseException, now: float) -> None:
        """Take the store's answer to a renewal: tasks that others took over are dropped, the rest are leased anew."""
        if isinstance(lost, BaseException):
            self._renew_again(effect.asked, now, lost)
            return
        # By the clock of the store they last longer, as it got the request later.
        until = effect.asked + self._lease
        for id in effect.keys:
            record = self._records.get(id)
            if record is None:
                continue
            if id in lost:
                self._take(record, _LOST)
                continue
            if record.leased_until == _LAPSED and not record.is_over:
                self._events.append(TaskLeased(id))
            record.leased_until = until
            self._watch_lease(until)

    def _adopt_done(self, effect: _Adopt, tasks: Iterable[StoredTask] | BaseException, now: float) -> None:
        """Take over the tasks whose leases ended, the oldest first. An unreadable record is reported and left out."""
        if isinstance(tasks, BaseException):
            self._renew_again(effect.asked, now, tasks)
            return
        if self._is_shared and self._timers.get(_RENEWAL) is None:
            # After the answer, since a slow store is not asked twice at once.
            self._timers.set(_RENEWAL, max(now, effect.asked + self._lease / 3))
        adopted = []
        for stored in tasks:
            try:
                if stored.key not in self._records and stored.key not in self._over:
                    adopted.append(load_record(stored.key, stored.record))
            except InvalidMessage as error:
                self._events.append(TaskStoreFailed(stored.key, error))
        for record in sorted(adopted, key=lambda record: (record.created, record.number)):
            self._adopt(record, effect.asked + self._lease, now)

    def _renew_again(self, asked_at: float, now: float, error: BaseException) -> None:
        """Ask again soon, since the leases run out."""
        self._events.append(TaskStoreFailed(None, error))
        self._timers.set(_RENEWAL, max(now, asked_at + min(self._lease / 10, RETRY)))

    def _watch_lease(self, until: float) -> None:
        first = self._timers.get(_LAPSE)
        if self._is_shared:
            self._timers.set(_LAPSE, until if first is None else min(first, until))

    def _lapse(self, now: float) -> None:
        """Report the leases that have ended by this machine's clock, and watch the others."""
        lapsed = []
        for record in self._records.values():
            if record.leased_until == _LAPSED or record.is_over:
                continue
            if record.leased_until > now:
                self._watch_lease(record.leased_until)
            elif record.shown is not None:
                record.leased_until = _LAPSED
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

    def _adopt(self, record: TaskRecord, until: float, now: float) -> None:
        record.number = self._next_number
        self._next_number += 1
        record.account, record.leased_until = _account(record.owner, None), until
        self._keep(record)
        if record.expires is not None and record.expires <= self._epoch + now:
            self._forget(record)
            return
        self._watch_lease(until)
        # A process without a sign of life may be alive, and cut off from the store.
        self.orphan(record.id, _SILENT if self._is_shared else _RESTARTED, now)
        if record.left and self._is_shared:
            self.task_signalled(record.id)  # an answer may have come before

    def _take(self, record: TaskRecord, reason: str | None = None) -> None:
        """Leave a task to the machine that wrote it to the store."""
        self._leave(record)
        self._events.append(TaskTaken(record.id, record.operation, reason))


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
_LAPSED: Final = -math.inf
_UNSTORED: Final = "The work has ended, but that could not be stored yet"
_SILENT: Final = "No sign of life from the process that ran the task"
_RESTARTED: Final = "The server was restarted before the task was over"
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


# ------------------------------------------------------------------------------------------------------- outgoing tasks
# Outgoing requests that became tasks at the peer: answered, but not over (2025-11-25).

_OVER = ("completed", "failed", "cancelled")


class OutgoingTasks:
    """Tasks by the request that created each, until the peer reports their end.

    Their progress tokens stay valid until then (PROG-07). At most ``limit`` are kept, and beyond that the oldest is
    forgotten: a task that the peer never mentions again would be kept for ever.
    """

    __slots__ = ("_by_request", "_limit", "_requests")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_request: dict[int, OutgoingRequest] = {}
        self._requests: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._by_request)

    def __iter__(self) -> Iterator[OutgoingRequest]:
        return iter(tuple(self._by_request.values()))

    def get(self, id: int) -> OutgoingRequest | None:
        """Return the request of that id, if its task continues."""
        return self._by_request.get(id)

    def add(self, request: OutgoingRequest, task_id: str) -> None:
        """Record that a request became a task. If two requests name the same task, it belongs to the later one."""
        self._forget(task_id)
        if len(self._by_request) >= self._limit:
            oldest = next(iter(self._by_request.values()), None)
            if oldest is None:
                return
            self.pop(oldest.id)
        request.task = task_id
        # It is answered, so no timeout runs, and its route says nothing about the messages still to come.
        request.total = request.total_at = request.idle = None
        request.related = request.via = None
        self._by_request[int(request.id)] = request
        self._requests[task_id] = int(request.id)

    def pop(self, id: int) -> OutgoingRequest | None:
        """Forget the task of a request; return the request, or ``None`` if it has no task."""
        request = self._by_request.pop(id, None)
        if request is not None and request.task is not None:
            self._requests.pop(request.task, None)
        return request

    def observe(self, payload: Any) -> None:
        """Forget the tasks that a result or notification of the peer reports as over."""
        if isinstance(payload, GetTaskResult | TaskStatusNotification):
            if payload.status in _OVER:
                self._forget(payload.task_id)
        elif isinstance(payload, ListTasksResult):
            for task in payload.tasks:
                if task.status in _OVER:
                    self._forget(task.task_id)
        elif isinstance(payload, GetTaskPayloadResult):
            related = payload.meta.get(META_RELATED_TASK)
            task_id = related.get("taskId") if isinstance(related, Mapping) else None
            if isinstance(task_id, str):
                self._forget(task_id)

    def save(self, now: float) -> list[OutgoingState]:
        """Return the tasks that continue."""
        return [outgoing_state(request, now, None) for request in self]

    def load(self, states: list[OutgoingState], dialogue: OutgoingDialogue) -> None:
        """Restore the result of ``save``."""
        for state in states:
            self.add(outgoing_request(state, 0.0, dialogue), state.task or "")

    def _forget(self, task_id: str) -> None:
        id = self._requests.get(task_id)
        if id is not None:
            self.pop(id)
