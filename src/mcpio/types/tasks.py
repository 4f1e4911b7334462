"""Tasks of 2025-11-25, and of the extension of 2026-07-28."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from attrs import field

from mcpio.revisions import REV_2025_11_25, REV_2026_07_28
from mcpio.types._fields import EMPTY, NOT_ON_THE_WIRE, Description, MalformedItem, Payload, payload, wire, wired
from mcpio.types.base import FinalResult, InputRequest, NotificationPayload, RequestPayload, ResultPayload

__all__ = [
    "CancelTaskRequest",
    "CancelTaskResult",
    "ClientTaskRequestsCapability",
    "ClientTasksCapability",
    "CreateTaskResult",
    "ElicitationTasksCapability",
    "GetTaskPayloadRequest",
    "GetTaskPayloadResult",
    "GetTaskRequest",
    "GetTaskResult",
    "ListTasksRequest",
    "ListTasksResult",
    "RelatedTaskMetadata",
    "SamplingTasksCapability",
    "ServerTaskRequestsCapability",
    "ServerTasksCapability",
    "Task",
    "TaskMetadata",
    "TaskStatus",
    "TaskStatusNotification",
    "ToolTasksCapability",
]


# ---------------------------------------------------------------------------------------------------------------- tasks
# Tasks: requests that outlive their answer (2025-11-25 only).

TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]


# Capabilities (TASK-01)


@payload
class ToolTasksCapability(Description, since=REV_2025_11_25, until=REV_2025_11_25):
    """The tool requests that may be tasks."""

    call: Mapping[str, Any] | None = None


@payload
class ServerTaskRequestsCapability(Description, since=REV_2025_11_25, until=REV_2025_11_25):
    """The requests that a server runs as tasks on demand."""

    tools: ToolTasksCapability | None = None


@payload
class ServerTasksCapability(Description, since=REV_2025_11_25, until=REV_2025_11_25):
    """The server supports tasks."""

    list: Mapping[str, Any] | None = None
    cancel: Mapping[str, Any] | None = None
    requests: ServerTaskRequestsCapability | None = None


@payload
class SamplingTasksCapability(Description, since=REV_2025_11_25, until=REV_2025_11_25):
    """The sampling requests that may be tasks."""

    create_message: Mapping[str, Any] | None = None


@payload
class ElicitationTasksCapability(Description, since=REV_2025_11_25, until=REV_2025_11_25):
    """The elicitation requests that may be tasks."""

    create: Mapping[str, Any] | None = None


@payload
class ClientTaskRequestsCapability(Description, since=REV_2025_11_25, until=REV_2025_11_25):
    """The requests that a client runs as tasks on demand."""

    sampling: SamplingTasksCapability | None = None
    elicitation: ElicitationTasksCapability | None = None


@payload
class ClientTasksCapability(Description, since=REV_2025_11_25, until=REV_2025_11_25):
    """The client supports tasks."""

    list: Mapping[str, Any] | None = None
    cancel: Mapping[str, Any] | None = None
    requests: ClientTaskRequestsCapability | None = None


# Tasks


@payload
class TaskMetadata(Payload, since=REV_2025_11_25, until=REV_2025_11_25):
    """Asks for a request to run as a task (TASK-08)."""

    ttl: float | None = None
    """How long to keep the task after its creation, in milliseconds; ``None`` leaves it to the receiver."""


@payload
class RelatedTaskMetadata(Payload, since=REV_2025_11_25, until=REV_2025_11_25):
    """The value of ``_meta["io.modelcontextprotocol/related-task"]`` (TASK-28)."""

    task_id: str


@payload
class Task(Payload, since=REV_2025_11_25, until=REV_2025_11_25):
    """The state of a task (TASK-12). Times are ISO 8601."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl: float | None
    """How long the task is kept after its creation, in milliseconds; ``None`` means without limit (TASK-32)."""
    status_message: str | None = None
    poll_interval: float | None = None
    """How long to wait between two polls, in milliseconds."""


@payload
class CreateTaskResult(ResultPayload, since=REV_2025_11_25, until=REV_2025_11_25):
    """A request was accepted as a task; its own result comes later (TASK-09)."""

    task: Task


# Requests and notifications about tasks


@payload
class GetTaskRequest(RequestPayload, since=REV_2025_11_25, until=REV_2025_11_25):
    """Ask for the state of a task."""

    task_id: str


@payload
class GetTaskResult(ResultPayload, since=REV_2025_11_25, until=REV_2025_11_25):
    """The state of a task, as members of the result itself (TASK-19). Units are those of ``Task``."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl: float | None
    status_message: str | None = None
    poll_interval: float | None = None


@payload
class CancelTaskRequest(RequestPayload, since=REV_2025_11_25, until=REV_2025_11_25):
    """Cancel a task (TASK-25)."""

    task_id: str


@payload
class CancelTaskResult(GetTaskResult):
    """The state of the task after its cancellation."""


@payload
class GetTaskPayloadRequest(RequestPayload, since=REV_2025_11_25, until=REV_2025_11_25):
    """Ask for the result of a task. The answer follows when the task has ended (TASK-20)."""

    task_id: str


@payload
class GetTaskPayloadResult(ResultPayload, since=REV_2025_11_25, until=REV_2025_11_25):
    """The result of the request that became the task, with all its members in ``extra`` (TASK-21)."""


@payload
class ListTasksRequest(RequestPayload, since=REV_2025_11_25, until=REV_2025_11_25):
    """Ask for a page of the tasks: the first, without ``cursor``."""

    cursor: str | None = None


@payload
class ListTasksResult(ResultPayload, since=REV_2025_11_25, until=REV_2025_11_25, itemwise="tasks"):
    """A page of the tasks. Only ``next_cursor`` of ``None`` ends the list."""

    tasks: tuple[Task, ...]
    next_cursor: str | None = wire(default=None, strict=True)
    malformed: tuple[MalformedItem, ...] = field(default=(), kw_only=True, metadata=NOT_ON_THE_WIRE)
    """Malformed items. The others are in ``tasks``."""


@payload
class TaskStatusNotification(NotificationPayload, since=REV_2025_11_25, until=REV_2025_11_25):
    """The state of a task changed (TASK-30). Units are those of ``Task``."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl: float | None
    status_message: str | None = None
    poll_interval: float | None = None


# ------------------------------------------------------------------------------------------------------- task extension
# Tasks as an extension of 2026-07-28: their members are flat, and they have other names (XTASK-04).


@payload
class _FlatTask(FinalResult, since=REV_2026_07_28):
    task_id: str
    status: TaskStatus
    created_at: str
    """ISO 8601, as the next."""
    last_updated_at: str
    ttl_ms: int | None
    """How long the task is kept after its creation, in milliseconds; ``None`` means without limit."""
    status_message: str | None = None
    poll_interval_ms: int | None = None
    """How long to wait between two polls, in milliseconds."""


@payload
class CreatedTask(_FlatTask):
    """The answer to a call that continues as a task (XTASK-04)."""

    result_type: str = field(default="task", kw_only=True, metadata=wired(always=True, required=True))


@payload
class DetailedTask(_FlatTask):
    """The state of a task, with the members of its status (XTASK-06)."""

    input_requests: Mapping[str, InputRequest] | None = wire(default=None, strict=True)
    """The questions that it waits for, by key, if its status is ``input_required``."""
    result: Mapping[str, Any] | None = wire(default=None, strict=True)
    """The result of the call, if its status is ``completed``."""
    error: Mapping[str, Any] | None = wire(default=None, strict=True)
    """The JSON-RPC error of the call, if its status is ``failed`` (XTASK-07)."""


@payload
class TaskNotification(NotificationPayload, since=REV_2026_07_28):
    """A task changed: the members of its ``DetailedTask``, for a subscription with its id (XTASK-11)."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    status_message: str | None = None
    poll_interval_ms: int | None = None
    input_requests: Mapping[str, InputRequest] | None = wire(default=None, strict=True)
    result: Mapping[str, Any] | None = wire(default=None, strict=True)
    error: Mapping[str, Any] | None = wire(default=None, strict=True)


@payload
class TaskReference(RequestPayload, since=REV_2026_07_28):
    """The params of ``tasks/get`` and ``tasks/cancel``."""

    task_id: str


@payload
class TaskUpdate(RequestPayload, since=REV_2026_07_28):
    """The params of ``tasks/update``: answers to ``input_requests``, under their keys (XTASK-08)."""

    task_id: str
    input_responses: Mapping[str, Any] = EMPTY
