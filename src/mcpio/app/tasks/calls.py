"""The calls of a session about tasks that its peer keeps (2025-11-25)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from mcpio._checks import required
from mcpio.engine.connection import Connection
from mcpio.engine.limits import DEFAULT, Default, Timeout
from mcpio.errors import LocalProtocolError
from mcpio.events import IncomingId
from mcpio.revisions import Era

if TYPE_CHECKING:
    from mcpio.app.contracts import ProgressCallback
    from mcpio.app.pagination import Items
    from mcpio.app.runtime import Driver
    from mcpio.app.tasks.requester import StatusCallback, TaskHandle, TaskWatch
    from mcpio.types.asking import (
        CreateMessageRequest,
        CreateMessageResult,
        ElicitFormRequest,
        ElicitResult,
        ElicitURLRequest,
    )
    from mcpio.types.features import CallToolRequest, CallToolResult
    from mcpio.types.tasks import ListTasksResult, Task

__all__ = ["TaskCalls"]

R = TypeVar("R")


class TaskCalls(ABC):
    """The calls about tasks, the same for both sides: tool calls may be tasks, and so may a server's requests."""

    connection: Connection
    driver: Driver
    _task_watch: TaskWatch | None = None

    @abstractmethod
    def request(
        self,
        request: Any,
        *,
        timeout: Timeout | float | None | Default = DEFAULT,
        on_progress: ProgressCallback | None = None,
        related_to: IncomingId | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Send a request and return its typed result: see ``Session.request``."""

    @abstractmethod
    def _call_back(self, noun: str, callback: Callable[..., Any], *arguments: Any) -> None:
        """Call a program's callback."""

    @overload
    async def start_task(
        self,
        request: CallToolRequest,
        *,
        ttl: float | None = None,
        on_status: StatusCallback | None = None,
        timeout: Timeout | float | None | Default = DEFAULT,
        on_progress: ProgressCallback | None = None,
        related_to: IncomingId | None = None,
    ) -> TaskHandle[CallToolResult]: ...

    @overload
    async def start_task(
        self,
        request: CreateMessageRequest,
        *,
        ttl: float | None = None,
        on_status: StatusCallback | None = None,
        timeout: Timeout | float | None | Default = DEFAULT,
        on_progress: ProgressCallback | None = None,
        related_to: IncomingId | None = None,
    ) -> TaskHandle[CreateMessageResult]: ...

    @overload
    async def start_task(
        self,
        request: ElicitFormRequest | ElicitURLRequest,
        *,
        ttl: float | None = None,
        on_status: StatusCallback | None = None,
        timeout: Timeout | float | None | Default = DEFAULT,
        on_progress: ProgressCallback | None = None,
        related_to: IncomingId | None = None,
    ) -> TaskHandle[ElicitResult]: ...

    async def start_task(
        self,
        request: Any,
        *,
        ttl: float | None = None,
        on_status: StatusCallback | None = None,
        timeout: Timeout | float | None | Default = DEFAULT,
        on_progress: ProgressCallback | None = None,
        related_to: IncomingId | None = None,
    ) -> TaskHandle[Any]:
        """Start a request as a task of the peer, and return a handle as soon as the task exists.

        Cancelling the wait cancels the task.

        Args:
            request: The request.
            ttl: Seconds that the peer is asked to keep the task; it may decide otherwise. A stateless server is not
                asked: it decides how long, and which calls become tasks.
            on_status: Called with each new state that becomes known.
            timeout: How long the peer may take to create the task.
            on_progress: Called with progress until the task is over.
            related_to: The peer's request on whose behalf this one is sent.

        Raises:
            LocalProtocolError: The peer did not declare tasks of such requests (TASK-02), or the tool must not be one
                (TASK-06).
            ValueError: ``ttl`` is not positive.
            Exception: Otherwise as ``Session.request`` does.

        """
        from mcpio.app.tasks.requester import start_task

        watch = self._watch_tasks()
        fault = await self._fault_in_task(request)
        if fault is not None:
            raise LocalProtocolError(fault)
        ask = partial(self._request_task, timeout=timeout, on_progress=on_progress, related_to=related_to)
        return await start_task(watch, request, ttl, ask, on_status, related_to)

    @overload
    def task(self, id: str, *, on_status: StatusCallback | None = None) -> TaskHandle[Any]: ...

    @overload
    def task(self, id: str, result: type[R], *, on_status: StatusCallback | None = None) -> TaskHandle[R]: ...

    def task(
        self, id: str, result: type[Any] | None = None, *, on_status: StatusCallback | None = None
    ) -> TaskHandle[Any]:
        """Return a handle on a task whose id is known, such as one that an earlier connection began.

        ``result`` is the type of its result: by default that of a tool call for a client, and ``GetTaskPayloadResult``
        for a server. Nothing is sent. The handle does not own the task: cancelling a wait does not cancel it.

        Raises TypeError or ValueError for an id that no task can have.
        """
        return self._watch_tasks().handle(_checked_id(id), result, on_status)

    async def get_task(self, id: str) -> Task:
        """Return the state of a task. Raises RequestError (-32602) if the peer does not know it."""
        return await self.task(id).status()

    @overload
    async def task_result(
        self, id: str, result: None = None, *, timeout: Timeout | float | None | Default = DEFAULT
    ) -> Any: ...

    @overload
    async def task_result(
        self, id: str, result: type[R], *, timeout: Timeout | float | None | Default = DEFAULT
    ) -> R: ...

    async def task_result(
        self, id: str, result: type[Any] | None = None, *, timeout: Timeout | float | None | Default = DEFAULT
    ) -> Any:
        """Wait for the result of a task and return it: ``task(id, result).result()``."""
        return await self._watch_tasks().handle(_checked_id(id), result, None).result(timeout=timeout)

    async def cancel_task(self, id: str) -> Task:
        """Cancel a task and return its state. Raises RequestError (-32602) if it has ended (TASK-26)."""
        return await self.task(id).cancel()

    async def list_tasks(
        self, cursor: str | None = None, *, timeout: Timeout | float | None | Default = DEFAULT
    ) -> ListTasksResult:
        """Return one page of the tasks that the peer keeps for this side; without ``cursor`` the first."""
        from mcpio.types.tasks import ListTasksRequest

        result: ListTasksResult = await self.request(ListTasksRequest(cursor), timeout=timeout)
        return result

    def tasks(self, *, timeout: Timeout | float | None | Default = DEFAULT) -> Items[Task]:
        """Iterate over all tasks that the peer keeps for this side; pages are requested as needed."""
        from mcpio.app.pagination import Items, json_size

        return Items(
            "tasks/list",
            partial(self.list_tasks, timeout=timeout),
            lambda page: page.tasks,
            lambda text: self.driver.report(text, None),
            lambda page: json_size(self.connection, page),
        )

    def _request_task(self, request: Any, **options: Any) -> Coroutine[Any, Any, Any]:
        """Send a request that may become a task, and return the peer's immediate answer."""
        return self.request(request, **options)

    def _sender(self, task: bool | float | None) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Return the call that sends a request: a plain one, or one that runs it as a task and waits."""
        if task is None or task is False:
            return self.request
        from mcpio.app.tasks.requester import run_task

        return partial(run_task, self, task)

    async def _fault_in_task(self, request: Any) -> str | None:
        """Return why a request must not be a task, for reasons that the engine does not know, or ``None``."""
        del request
        return None

    def _watch_tasks(self) -> TaskWatch:
        if self._task_watch is None:
            from mcpio.app.tasks.requester import TaskWatch

            self._task_watch = TaskWatch(self, self._call_back, self._task_handle_type)
        return self._task_watch

    def _task_handle_type(self) -> type[TaskHandle[Any]]:
        revision = self.connection.revision
        if revision is not None and revision.era is Era.STATELESS:
            from mcpio.app.tasks.requester import StatelessTaskHandle

            return StatelessTaskHandle
        from mcpio.app.tasks.requester import TaskHandle

        return TaskHandle


def _checked_id(id: str) -> str:
    # Handles without a task have an empty id.
    if not required("id", id, str):
        raise ValueError("id must be the id of a task, not an empty str")
    return id
