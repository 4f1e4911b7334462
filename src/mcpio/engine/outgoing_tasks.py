"""Outgoing requests that became tasks at the peer: answered, but not over (2025-11-25)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mcpio.engine.pending import OutgoingDialogue, OutgoingRequest, outgoing_request, outgoing_state
from mcpio.types.meta import META_RELATED_TASK
from mcpio.types.tasks import GetTaskPayloadResult, GetTaskResult, ListTasksResult, TaskStatusNotification

if TYPE_CHECKING:
    from mcpio.engine.snapshot import OutgoingState

__all__ = ["OutgoingTasks"]

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
