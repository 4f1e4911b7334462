"""How tasks at a peer begin, and which handles hear of what the peer tells of them."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import attrs

from mcpio.app.callbacks import checked_callback
from mcpio.app.failures import named
from mcpio.app.peer_tasks.handle import TaskHandle, as_task
from mcpio.engine.connection import DEFAULT, Default
from mcpio.engine.limits import Timeout
from mcpio.engine.table import Role
from mcpio.errors import LocalProtocolError
from mcpio.methods import Method, method_of
from mcpio.types.meta import META_MODEL_IMMEDIATE_RESPONSE
from mcpio.types.tasks import CreateTaskResult, GetTaskPayloadResult, Task, TaskMetadata, TaskStatusNotification
from mcpio.types.tools import CallToolResult

if TYPE_CHECKING:
    from mcpio.app.callbacks import ProgressCallback
    from mcpio.app.peer_tasks.calls import StatusCallback, TaskCalls
    from mcpio.events import IncomingId

__all__ = ["TaskWatch", "run_task", "start_task"]

_EARLY: Final = 64
"""How many states of tasks without a handle are kept: that of a new task may come before its handle is made."""


class TaskWatch:
    """The handles of one session, which hear of what the peer tells of their tasks."""

    def __init__(self, session: TaskCalls, call_back: Callable[..., None]) -> None:
        self.session = session
        self.call_back = call_back
        self._handles: dict[str, WeakSet[TaskHandle[Any]]] = {}
        self._enough = _EARLY
        # Callbacks are called though nobody else may keep their handles.
        self._kept: set[TaskHandle[Any]] = set()
        self._starting = 0
        self._early: dict[str, Task] = {}

    def handle(self, id: str, result_type: type[Any] | None, on_status: StatusCallback | None) -> TaskHandle[Any]:
        """Return a new handle on a task."""
        if result_type is None:
            is_client = self.session.connection.role is Role.CLIENT
            result_type = CallToolResult if is_client else GetTaskPayloadResult
        handle: TaskHandle[Any] = TaskHandle(self, id, result_type, checked_callback("on_status", on_status))
        if id:
            self._clear()
            self._handles.setdefault(id, WeakSet()).add(handle)
            if on_status is not None:
                self._kept.add(handle)
        return handle

    async def start(self, request: Any, ask: Callable[[Any], Awaitable[Any]]) -> tuple[Any, Task | None]:
        """Send a request; return its answer, and what the peer told of the new task in the meantime."""
        self._starting += 1
        try:
            answer = await ask(request)
            early = self._early.get(answer.task.task_id) if isinstance(answer, CreateTaskResult) else None
        finally:
            self._starting -= 1
            if not self._starting:
                self._early.clear()
        return answer, early

    def tell(self, notification: Any) -> None:
        """Pass on what the peer tells of a task."""
        if not isinstance(notification, TaskStatusNotification):
            return
        state = as_task(notification)
        for handle in tuple(self._handles.get(state.task_id, ())):
            handle.note(state)
        if self._starting:
            self._early[state.task_id] = state
            if len(self._early) > _EARLY:
                del self._early[next(iter(self._early))]

    def release(self, handle: TaskHandle[Any]) -> None:
        """Forget a handle whose task is over."""
        self._kept.discard(handle)

    def _clear(self) -> None:
        """Forget the tasks whose handles are gone, now and then."""
        if len(self._handles) >= self._enough:
            self._handles = {id: handles for id, handles in self._handles.items() if handles}
            self._enough = _EARLY + 2 * len(self._handles)


async def start_task(
    watch: TaskWatch,
    request: Any,
    ttl: float | None,
    ask: Callable[[Any], Awaitable[Any]],
    on_status: StatusCallback | None,
    related_to: IncomingId | None,
) -> TaskHandle[Any]:
    """Send a request that asks for a task, and return the handle on it."""
    checked_callback("on_status", on_status)
    method = _method(request)
    answer, early = await watch.start(_augmented(request, ttl), ask)
    if not isinstance(answer, CreateTaskResult):
        handle = watch.handle("", method.result_type, on_status)
        handle.settle(answer)
        return handle
    handle = watch.handle(answer.task.task_id, method.result_type, on_status)
    handle.operation = named({"method": method.name, "params": {"name": getattr(request, "name", None)}})
    handle.owned, handle.related_to = True, related_to
    said = answer.meta.get(META_MODEL_IMMEDIATE_RESPONSE)
    handle.immediate_response = said if isinstance(said, str) else None
    handle.note(answer.task)
    if early is not None:
        handle.note(early)
    return handle


async def run_task(
    session: TaskCalls,
    task: bool | float,
    request: Any,
    *,
    timeout: Timeout | float | None | Default = DEFAULT,
    on_progress: ProgressCallback | None = None,
    related_to: IncomingId | None = None,
) -> Any:
    """Have the peer run a request as a task, wait for its result and return it. A number is the ``ttl``."""
    ttl = None if task is True else task
    handle = await session.start_task(request, ttl=ttl, timeout=timeout, on_progress=on_progress, related_to=related_to)
    return await handle.result(timeout=timeout)


def _method(request: Any) -> Method:
    try:
        method = method_of(request)
    except KeyError:
        method = None
    if method is None or not method.task_capability:
        raise LocalProtocolError(f"a {type(request).__name__} cannot be a task")
    return method


def _augmented(request: Any, ttl: float | None) -> Any:
    if ttl is None:
        return request if request.task is not None else attrs.evolve(request, task=TaskMetadata())
    if not 0 < ttl < math.inf:
        raise ValueError(f"a ttl is a number of seconds, more than 0, not {ttl!r}")
    return attrs.evolve(request, task=TaskMetadata(math.ceil(ttl * 1000)))  # some readers take integers only
