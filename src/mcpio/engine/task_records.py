"""Tasks as a receiver keeps them: states, records, events and store effects, and their stored form."""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import attrs

from mcpio.engine.limits import seconds
from mcpio.engine.table import Direction
from mcpio.errors import ErrorCode, InvalidMessage, LocalProtocolError, RequestError
from mcpio.framing import json
from mcpio.types.tasks import Task

__all__ = [
    "TASK_TABLE",
    "Owner",
    "StoreDelete",
    "StoreEffect",
    "StoreLoad",
    "StorePut",
    "TaskChanged",
    "TaskEvent",
    "TaskInput",
    "TaskLimits",
    "TaskOrphaned",
    "TaskOutcome",
    "TaskRecord",
    "TaskReplied",
    "TaskState",
    "TaskStoreFailed",
    "dump_outcome",
    "dump_record",
    "load_outcome",
    "load_record",
    "not_found",
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
"""(direction, state, input) -> the next state, for tasks that a peer asked for (TASK-14). Nothing else decides it; a
state without rows is final."""


MESSAGE_LENGTH: Final = 200
"""The longest ``statusMessage``, in characters: the rest is cut off."""

LONGEST: Final = 1e15
"""The longest time that a requestor can ask for, in milliseconds: some 30,000 years."""

FORMAT: Final = 1
"""The version of what is written down."""

Owner: TypeAlias = str | int | None
"""Whoever a task belongs to, in a form that can be written down; ``None`` where nobody was authenticated."""


@attrs.frozen(kw_only=True)
class TaskLimits:
    """Bounds of a receiver's tasks (TASK-36). Times are in seconds, ``None`` is without limit; sizes are bytes."""

    running: int = 1024
    """How many tasks may be unfinished at once. Beyond: the request is refused with -32603, ``too many tasks``."""
    running_per_owner: int = 64
    """How many of them one owner may have; without an owner, one session. Beyond: likewise."""
    running_without_owner: int = 512
    """How many of them may be bound to nobody, so that strangers leave room for others. Beyond: likewise."""
    tasks: int = 4096
    """How many tasks may be kept, finished ones too. Beyond: likewise."""
    stored_bytes: int = 256 * MIB
    """How much may be kept of them, results included. Beyond: a request is refused with -32603, ``too much stored``,
    and a task that finishes fails with that error."""
    result_bytes: int = 16 * MIB
    """The longest result. Beyond: the task fails with -32603, ``result too large``."""
    default_ttl: float | None = attrs.field(default=3600.0, converter=seconds)
    """For how long to keep a task whose requestor does not say, from its creation."""
    max_ttl: float | None = attrs.field(default=86400.0, converter=seconds)
    """The longest that a task is kept. Beyond: this is what the requestor is told."""
    max_ttl_without_owner: float | None = attrs.field(default=3600.0, converter=seconds)
    """The same for tasks that are bound to nobody, where their id is all it takes to get at them (TASK-35)."""

    def __attrs_post_init__(self) -> None:
        for name in ("running", "running_per_owner", "running_without_owner", "tasks", "stored_bytes", "result_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 0:
                raise ValueError(f"{name} must be an integer of 0 or more, not {value!r}")

    def ttl(self, asked: float | None, owner: Owner) -> float | None:
        """Return for how many milliseconds a task is kept when its requestor asks for ``asked``, ``None``: for ever."""
        cap = self.max_ttl if owner is not None else _least(self.max_ttl, self.max_ttl_without_owner)
        # Before any arithmetic: an integer of the peer's may be too large for a float.
        wanted = _milliseconds(self.default_ttl) if asked is None else min(asked, LONGEST)
        granted = _least(_milliseconds(cap), wanted)
        return None if granted is None else math.ceil(granted)  # some readers take integers only


@attrs.frozen
class TaskOutcome:
    """What the request would have been answered with, had it not been a task (TASK-21): one of the two is ``None``."""

    result: Mapping[str, Any] | None = None
    """The result, as it goes on the wire."""
    error: RequestError | None = None
    """The JSON-RPC error."""

    @property
    def is_failure(self) -> bool:
        """Whether the task counts as failed: an error, or a tool's result that says so (TASK-15)."""
        return self.result is None or self.result.get("isError") is True

    @property
    def text(self) -> str | None:
        """What a failure says of itself, ``None`` for a success or a failure without words."""
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
    """How much of it is stored, in bytes."""
    questions: int = 0
    """How many answers of the requestor it waits for."""
    waiters: list[Any] = attrs.field(factory=list)
    """The cookies of those that wait for its outcome."""
    outcome: TaskOutcome | None = None
    """As long as it is not in the store."""
    waiting: int = 0
    """The token of the state that waits to be stored, where the next one may take its place."""
    shown: Task | None = None
    """What the requestor may see: the state that was stored last, ``None`` before the first was."""
    account: Hashable = None
    """What it is counted for while it runs."""

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


# What the machine wants of its store


@attrs.frozen
class StorePut:
    """Keep a task under its key, in place of what is there. Answer with ``store_done(token, None, now)``."""

    token: int
    """What the answer names."""
    key: str
    """The task's id."""
    record: bytes
    """What is known of the task, without its result."""
    payload: bytes | None
    """Its result; ``None`` leaves the one that is there as it is."""


@attrs.frozen
class StoreLoad:
    """Read back.

    With a key, answer with the payload under it, ``None`` for none; without, with all records, as (key, record).
    """

    token: int
    """What the answer names."""
    key: str | None
    """The task's id, ``None`` for all tasks."""


@attrs.frozen
class StoreDelete:
    """Forget a task; one that is not there is no fault. Answer with ``store_done(token, None, now)``."""

    token: int
    """What the answer names."""
    key: str
    """The task's id."""


StoreEffect: TypeAlias = StorePut | StoreLoad | StoreDelete
"""In the order in which the machine gives them, those of one key must take effect."""


# What the machine reports


@attrs.frozen
class TaskReplied:
    """What a caller waits for is there. It comes once for each cookie that was taken."""

    cookie: Any
    """What was given with the call."""
    value: Task | TaskOutcome | None
    """The task that was created or cancelled, or the outcome that was asked for; ``None`` with an ``error``."""
    error: RequestError | None
    """Why there is none."""


@attrs.frozen
class TaskChanged:
    """A task changed, and the change is stored (TASK-30, TASK-38)."""

    change: Literal["created", "status", "expired"]
    """What happened: it began, its status or status message is another, or its time was over and it is gone."""
    task: Task
    """The task, after that."""
    owner: Owner
    """Whose it is."""
    operation: str
    """What it does, in the words given at its creation."""


@attrs.frozen
class TaskOrphaned:
    """Nobody works on this task any more, and its author wants it resumed: do its request again."""

    id: str
    """The task."""
    owner: Owner
    """Whose it is."""
    operation: str
    """What it does."""
    request: Mapping[str, Any]
    """What was given at its creation."""


@attrs.frozen
class TaskStoreFailed:
    """The store failed. What is known of the task is kept in memory, and is lost with the process."""

    key: str | None
    """The task's id, ``None`` where all were asked for."""
    error: BaseException
    """How."""


TaskEvent: TypeAlias = TaskReplied | TaskChanged | TaskOrphaned | TaskStoreFailed
"""Everything that a task machine reports."""


# Writing down


def dump_outcome(outcome: TaskOutcome) -> bytes:
    """Return an outcome as JSON. ``LocalProtocolError`` for one that JSON cannot say."""
    error = outcome.error
    said: dict[str, Any] = {"result": outcome.result}
    if error is not None:
        said = {"error": {"code": error.code, "message": error.message, "data": error.data}}
    try:
        return json.dumps(said)
    except (TypeError, ValueError) as fault:
        raise LocalProtocolError(f"not expressible in JSON: {fault}") from fault


def load_outcome(payload: bytes) -> TaskOutcome:
    """Return what ``dump_outcome`` wrote. ``InvalidMessage`` for anything else."""
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
    try:
        return json.dumps({"format": FORMAT, **said, "state": record.state.value})
    except (TypeError, ValueError) as fault:
        raise LocalProtocolError(f"not expressible in JSON: {fault}") from fault


def load_record(key: str, text: bytes) -> TaskRecord:
    """Return what ``dump_record`` wrote, shown as it stands. ``InvalidMessage`` for anything else."""
    try:
        said = _members(text, key)
        record = TaskRecord(**{name: said[name] for name in _STORED if name != "size"})
        record.state = TaskState(said["state"])
        record.size = said["size"]
        record.shown = record.view()
    except (TypeError, ValueError, KeyError, OverflowError) as fault:
        raise InvalidMessage(key[:100], f"no record of a task: {fault!r:.100}") from fault
    return record


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


def _members(text: bytes, key: str) -> Any:
    """Return what a record says, each member of its type."""
    said = json.loads(text)
    if said["format"] != FORMAT or said["id"] != key:
        raise ValueError("another format, or another key")
    for name, kinds in _STORED.items():
        _checked(said[name], kinds)
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
