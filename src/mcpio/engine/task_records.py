"""Tasks as a receiver keeps them: states, records, events and store effects, and their stored form."""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import attrs

from mcpio._checks import is_count
from mcpio.engine.limits import seconds
from mcpio.engine.table import Direction
from mcpio.errors import ErrorCode, InvalidMessage, LocalProtocolError, RequestError
from mcpio.framing import json
from mcpio.types._fields import EMPTY
from mcpio.types.tasks import Task

__all__ = [
    "ENDED",
    "TASK_TABLE",
    "Owner",
    "Renewal",
    "StoreDelete",
    "StoreEffect",
    "StoreFetch",
    "StoreLoad",
    "StorePut",
    "StoreRenew",
    "StoredTask",
    "TaskAnswered",
    "TaskChanged",
    "TaskEvent",
    "TaskInput",
    "TaskLeased",
    "TaskLimits",
    "TaskLook",
    "TaskOrphaned",
    "TaskOutcome",
    "TaskRecord",
    "TaskReplied",
    "TaskState",
    "TaskStoreFailed",
    "TaskTaken",
    "TasksLapsed",
    "dump_outcome",
    "dump_record",
    "load_outcome",
    "load_record",
    "not_found",
    "unreadable",
    "was_cancelled",
]

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
    default_ttl: float | None = attrs.field(default=3600.0, converter=seconds)
    """For how long to keep a task if its requestor gives no time, from its creation."""
    max_ttl: float | None = attrs.field(default=86400.0, converter=seconds)
    """The longest time that a task is kept. Beyond: the requestor is given this time."""
    max_ttl_without_owner: float | None = attrs.field(default=3600.0, converter=seconds)
    """The same for tasks without an owner, which the id alone gives access to (TASK-35)."""

    def __attrs_post_init__(self) -> None:
        for name in ("running", "running_per_owner", "running_without_owner", "tasks", *_SIZES):
            value = getattr(self, name)
            if not is_count(value):
                raise ValueError(f"{name} must be an integer of 0 or more, not {value!r}")

    def ttl(self, asked: float | None, owner: Owner) -> float | None:
        """Return how many milliseconds a task is kept if its requestor asks for ``asked``; ``None`` sets no limit."""
        cap = self.max_ttl if owner is not None else _least(self.max_ttl, self.max_ttl_without_owner)
        # Before any arithmetic: the peer's integer may be too large for a float.
        wanted = _milliseconds(self.default_ttl) if asked is None else min(asked, LONGEST)
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
    waiters: list[Any] = attrs.field(factory=list)
    """The cookies of the calls that wait for its outcome."""
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
    leased_until: float | None = None
    """When its lease in a shared store ends, on the machine's clock; ``None`` without one, or if it may have ended."""

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
    """Store a task under its key, replacing an earlier one. Answer with ``store_done(token, None, now)``.

    What follows ``payload`` is for stores that several machines share: there, answer with ``False`` if the key is
    neither new nor leased by this machine.
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
    """When the store is to forget it, in Unix time; ``None`` for never."""
    lease: float | None = None
    """Seconds for which this machine owns the task. At 0 any machine may take it over; ``None``: it has ended."""


@attrs.frozen
class StoreLoad:
    """Read back.

    With a key, answer with the payload under it, ``None`` for none; without, with all records, as (key, record).
    """

    token: int
    """The token for ``store_done``."""
    key: str | None
    """The task's id, ``None`` for all tasks."""


@attrs.frozen
class StoreDelete:
    """Delete a task, if it is stored. Answer with ``store_done(token, None, now)``."""

    token: int
    """The token for ``store_done``."""
    key: str
    """The task's id."""


@attrs.frozen
class StoreFetch:
    """Read one task of a shared store. Answer with its ``StoredTask``, ``None`` for none."""

    token: int
    """The token for ``store_done``."""
    key: str
    """The task's id."""


@attrs.frozen
class StoreRenew:
    """Renew the leases of tasks, and take over those whose lease has expired. Answer with a ``Renewal``."""

    token: int
    """The token for ``store_done``."""
    keys: tuple[str, ...]
    """The ids of the tasks."""
    lease: float
    """For how many seconds from now."""


@attrs.frozen
class StoredTask:
    """A task as a shared store has it."""

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


@attrs.frozen
class Renewal:
    """The answer to ``StoreRenew``."""

    lost: Collection[str]
    """The ids of tasks that another machine owns by now, or that have ended or are deleted."""
    adopted: Sequence[StoredTask]
    """Tasks of machines that are gone. This machine owns them now."""


StoreEffect: TypeAlias = StorePut | StoreLoad | StoreDelete | StoreFetch | StoreRenew
"""In the order in which the machine gives them, those of one key must take effect."""


# Events


@attrs.frozen
class TaskReplied:
    """The answer to a call. Each cookie gets one."""

    cookie: Any
    """The cookie of the call."""
    value: Task | TaskOutcome | None
    """The task that was created or cancelled, or the outcome that was asked for; ``None`` with an ``error``, and where
    another machine has taken the task: then ask the store."""
    error: RequestError | None
    """The error, if the call failed."""


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
    """The task's id, ``None`` where all were asked for."""
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
    TaskReplied | TaskChanged | TaskOrphaned | TaskAnswered | TaskStoreFailed | TaskTaken | TasksLapsed | TaskLeased
)
"""The events of a task machine."""


# Stored form


def dump_outcome(outcome: TaskOutcome) -> bytes:
    """Return an outcome as JSON. Raises ``LocalProtocolError`` if JSON cannot express it."""
    error = outcome.error
    said: dict[str, Any] = {"result": outcome.result}
    if error is not None:
        said = {"error": {"code": error.code, "message": error.message, "data": error.data}}
    try:
        return json.dumps(said)
    except (TypeError, ValueError) as fault:
        raise LocalProtocolError(f"not expressible in JSON: {fault}") from fault


def load_outcome(payload: bytes) -> TaskOutcome:
    """Return the outcome that ``dump_outcome`` wrote. Raises ``InvalidMessage`` for any other value."""
    try:
        said = json.loads(payload)
        if "error" in said:
            error = said["error"]
            return TaskOutcome(error=RequestError(error["code"], error["message"], error["data"]))
        return TaskOutcome(_checked(said["result"], Mapping))
    except (TypeError, ValueError, KeyError) as fault:
        raise InvalidMessage("payload", f"no outcome of a task: {fault!r:.100}") from fault


def dump_record(record: TaskRecord) -> bytes:
    """Return a record as JSON. ``LocalProtocolError`` for a request that JSON cannot say."""
    said = {name: getattr(record, name) for name in _STORED}
    said |= {name: value for name, (_, default) in _ADDED.items() if (value := getattr(record, name)) != default}
    try:
        return json.dumps({"format": FORMAT, **said, "state": record.state.value})
    except (TypeError, ValueError) as fault:
        raise LocalProtocolError(f"not expressible in JSON: {fault}") from fault


def load_record(key: str, text: bytes) -> TaskRecord:
    """Return the record that ``dump_record`` wrote. Raises ``InvalidMessage`` for any other value."""
    try:
        said = _members(text, key)
        record = TaskRecord(**{name: said[name] for name in (*_STORED, *_ADDED) if name != "size"})
        record.state = TaskState(said["state"])
        record.size = said["size"]
        record.shown, record.shown_inputs = record.view(), record.inputs
    except (TypeError, ValueError, KeyError, OverflowError) as fault:
        raise InvalidMessage(key[:100], f"no record of a task: {fault!r:.100}") from fault
    return record


def was_cancelled(id: str) -> RequestError:
    """Return the outcome of a cancelled task: the specification defines no result for it (TASK-23)."""
    return RequestError(ErrorCode.INTERNAL_ERROR, "Task was cancelled", {"taskId": id, "status": "cancelled"})


def unreadable() -> RequestError:
    """Return the answer while the store cannot be read: nothing is known of the task."""
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
    said = json.loads(text)
    if said["format"] != FORMAT or said["id"] != key:
        raise ValueError("another format, or another key")
    for name, kinds in _STORED.items():
        _checked(said[name], kinds)
    for name, (kinds, default) in _ADDED.items():
        _checked(said.setdefault(name, default), kinds)
    return said


def _checked(value: Any, kinds: Any) -> Any:
    if not isinstance(value, kinds):
        raise TypeError(f"found {value!r:.60}")
    return value


def _milliseconds(time: float | None) -> float | None:
    return None if time is None else time * 1000


def _least(first: float | None, second: float | None) -> float | None:
    """Return the shorter of two times, ``None`` being for ever."""
    found = min(math.inf if first is None else first, math.inf if second is None else second)
    return None if found == math.inf else found


def _rfc3339(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _whole(milliseconds: float | None) -> float | None:
    """Return a number that is written without a fraction where it has none: some readers take integers only."""
    if milliseconds is not None and float(milliseconds).is_integer():
        return int(milliseconds)
    return milliseconds
