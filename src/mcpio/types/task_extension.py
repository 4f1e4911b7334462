"""Tasks as an extension of 2026-07-28: their members are flat, and they have other names (XTASK-04)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from attrs import field

from mcpio.revisions import REV_2026_07_28, Revision
from mcpio.types._fields import EMPTY, payload, wire, wired
from mcpio.types.inputs import InputRequest
from mcpio.types.messages import FinalResult, NotificationPayload, RequestPayload
from mcpio.types.tasks import TaskStatus

__all__ = [
    "CreatedTask",
    "DetailedTask",
    "TaskNotification",
    "TaskReference",
    "TaskUpdate",
]


@payload
class _FlatTask(FinalResult):
    SINCE: ClassVar[Revision] = REV_2026_07_28

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
class TaskNotification(NotificationPayload):
    """A task changed: the members of its ``DetailedTask``, for a subscription with its id (XTASK-11)."""

    SINCE: ClassVar[Revision] = REV_2026_07_28

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
class TaskReference(RequestPayload):
    """The params of ``tasks/get`` and ``tasks/cancel``."""

    SINCE: ClassVar[Revision] = REV_2026_07_28

    task_id: str


@payload
class TaskUpdate(RequestPayload):
    """The params of ``tasks/update``: answers to ``input_requests``, under their keys (XTASK-08)."""

    SINCE: ClassVar[Revision] = REV_2026_07_28

    task_id: str
    input_responses: Mapping[str, Any] = EMPTY
