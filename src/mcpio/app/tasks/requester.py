# ruff: noqa: SLF001 - the library uses clients from inside
"""Tasks of the side that asked for them: handles, waiting and listening."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar
from weakref import WeakSet

import attrs

from mcpio._checks import is_amount
from mcpio.app.client_inputs import answers_to
from mcpio.app.contracts import ProgressCallback
from mcpio.app.reporting import describe_request
from mcpio.app.runtime import BroadcastEvent, checked_callback
from mcpio.backoff import Backoff
from mcpio.codec import codec
from mcpio.engine.gates import check_question, why_no_task
from mcpio.engine.limits import DEFAULT, Default, Timeout, checked_timeout
from mcpio.engine.table import Phase, Role
from mcpio.engine.tasks import LONGEST
from mcpio.errors import (
    ConnectFailed,
    ConnectionLost,
    ErrorCode,
    InvalidMessage,
    LocalProtocolError,
    McpError,
    NoBackChannel,
    RequestCancelled,
    RequestError,
    RequestTimeout,
    TooManyRounds,
    UnexpectedResponse,
)
from mcpio.methods import METHODS, Method, method_of
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28, Era
from mcpio.types.base import META_MODEL_IMMEDIATE_RESPONSE, CustomRequest
from mcpio.types.features import CallToolRequest, CallToolResult, TaskSupport, Tool
from mcpio.types.tasks import (
    CancelTaskRequest,
    CreatedTask,
    CreateTaskResult,
    DetailedTask,
    GetTaskPayloadRequest,
    GetTaskPayloadResult,
    GetTaskRequest,
    GetTaskResult,
    Task,
    TaskMetadata,
    TaskNotification,
    TaskStatusNotification,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcpio.app.client import Client
    from mcpio.app.listening import ManagedListening
    from mcpio.app.tasks.calls import TaskCalls
    from mcpio.events import IncomingId
    from mcpio.types.base import InputRequest


# ------------------------------------------------------------------------------------------------------------ requester
# The requestor of tasks: starting them at the peer, following their states, fetching their results (2025-11-25).
# A task is polled as often as the peer asks for, and at once when the peer reports a change; nothing relies on such
# reports (TASK-30). The result is requested when the task is over or waits for input (TASK-17).

R = TypeVar("R")

StatusCallback: TypeAlias = Callable[[Task], None]
"""Takes a task in its new state. A plain function: its result is not awaited."""


LONGEST_WAIT: Final = 86400.0
"""The longest wait for the result of a task in seconds, unless the caller sets a timeout (TASK-37)."""
_AFTERWARDS: Final = 10.0
"""Seconds added to the lifetime that the peer states: its clock began before this side heard of the task."""
_INTERVAL: Final = 1.0
"""Seconds between two polls if the peer does not state them."""
_SHORTEST: Final = 0.05
"""The least time between two polls, in seconds, even if the peer asks for less."""
_OVER: Final = ("completed", "failed", "cancelled")
_REPEATING: Final = Backoff(
    base=0.5, tries=6, cap=8.0, also=(ConnectionLost, ConnectFailed, RequestTimeout, UnexpectedResponse)
)
"""For how long failures that may pass are waited out: 23.5 seconds."""


class TaskHandle(Generic[R]):
    """One task at the peer. Iterate over it (``async for``) for its state now and each later one, to the last.

    Sessions make handles: ``start_task`` for a new task, ``task`` for one whose id is known.
    """

    id: str
    """The peer's id of the task; empty if the peer answered at once, without a task (TASK-03)."""
    last: Task | None
    """The last known state; ``None`` before the first poll."""
    owned: bool
    """Whether cancelling the wait for its result cancels the task. True for the handle that began it."""
    operation: str
    """A description for the operator: the method and the name that it is called with."""
    immediate_response: str | None
    """A text for the model while the task runs, if the peer sent one (TASK-13). Untrusted."""

    def __init__(self, watch: TaskWatch, id: str, result_type: type[Any], on_status: StatusCallback | None) -> None:
        self.id = id
        self.last = None
        self.owned = False
        self.operation = "tasks/result"
        self.immediate_response = None
        self.on_status = on_status
        self.related_to: IncomingId | None = None
        self._watch = watch
        self._result_type = result_type
        self._changed = BroadcastEvent(watch.session.driver.runtime)
        self._payload: GetTaskPayloadResult | None = None
        self._plain: Any = None
        self._is_fetching = False

    def __repr__(self) -> str:
        status = "unseen" if self.last is None else self.last.status
        return f"<TaskHandle {self.id!r} {self.operation}: {status}>"

    def __aiter__(self) -> AsyncIterator[Task]:
        return _States(self)

    @property
    def done(self) -> bool:
        """Whether the task is known to be over."""
        return not self.id or self._payload is not None or is_over(self.last)

    async def status(self, *, timeout: Timeout | float | None | Default = DEFAULT) -> Task:
        """Request the state of the task and return it (TASK-19). Raises as ``Session.request`` does.

        Raises RequestError (-32602) if the peer no longer knows the task, and LocalProtocolError if there never was
        one.
        """
        return self._note(await self._ask(GetTaskRequest(self.id), timeout))

    async def result(self, *, timeout: Timeout | float | None | Default = DEFAULT, poll: bool = True) -> R:
        """Wait until the task ends and return the result that a plain request would have returned (TASK-21).

        The task is polled until it is over or waits for input; then ``tasks/result`` is requested, whose answer comes
        at the end. With ``poll=False`` it is requested at once (TASK-20). May be called again, and by several tasks.

        ``timeout`` is in seconds, or the total of a ``Timeout``; ``None`` waits without limit. By default it is the
        time that the peer keeps the task, and at most ``LONGEST_WAIT`` (TASK-37). When it passes, or the wait is
        cancelled, a handle that owns the task cancels it.

        Raises the error of the task as a RequestError, RequestCancelled if the task was cancelled, and otherwise as
        ``Session.request`` does.
        """
        if not self.id:
            answered: R = self._plain
            return answered
        if self._payload is None:
            try:
                await self._wait(Clock(self, self._watch.session, timeout), poll=poll)
            except Exception as error:
                if isinstance(error, RequestTimeout):
                    self._give_up()
                raise
            except BaseException:
                # The wait was cancelled. Event loops have different exceptions for that, so all are caught.
                self._give_up()
                raise
        return self._decoded()

    async def cancel(self, *, timeout: Timeout | float | None | Default = DEFAULT) -> Task:
        """Cancel the task and return its state (TASK-25). Raises as ``Session.request`` does.

        Raises RequestError (-32602) if the task is over (TASK-26), and LocalProtocolError if the peer did not declare
        that it cancels tasks.
        """
        return self._note(await self._ask(CancelTaskRequest(self.id), timeout))

    # For this package

    def note(self, state: Task) -> None:
        """Record a state that the peer reported. The final state of a task never changes (TASK-14)."""
        before = self.last
        if is_over(before):
            return
        self.last = state
        if looks(before) != looks(state):
            if self.on_status is not None:
                self._watch.call_back("a callback for the status of a task", self.on_status, state)
            self._changed.notify_all()
        if is_over(state):
            self._watch.release(self)

    def take(self, notification: TaskNotification) -> None:
        """Record a state that a stateless server reported."""

    def doubt(self) -> None:
        """Record that changes may have been missed."""

    def wake(self) -> None:
        """Wake all waiters for a change, which read the state again."""
        self._changed.notify_all()

    def settle(self, plain: Any) -> None:
        """Record the answer of a peer that made no task of the request."""
        self._plain = plain

    async def next_state(self, seen: Task | None) -> Task:
        """Wait for a state that differs from ``seen``, and return it."""
        state = await self._next_state(seen, None)
        waits = state.status == "input_required" and not self._is_fetching and self._payload is None
        if waits and not self._watch.has_ended:
            # The peer may send its requests on the stream that this opens (TASK-17).
            self._is_fetching = True
            self._watch.session.driver.runtime.spawn(self._fetch_alone())
        return state

    # Inside

    async def _wait(self, clock: Clock, *, poll: bool) -> None:
        """Wait for the result."""
        while poll and not is_over(self.last) and not _wants_input(self.last):
            await self._next_state(self.last, clock)
        try:
            await self._fetch(clock)
        except RequestError as error:
            if not is_over(self.last):
                # The end was not reported. Only the state says whether the task failed or was cancelled (TASK-23).
                with suppress(McpError):
                    await self.status(timeout=clock.for_a_look())
            if self.last is not None and self.last.status == "cancelled":
                raise RequestCancelled(self.operation, self.last.status_message) from error
            raise

    async def _next_state(self, seen: Task | None, clock: Clock | None) -> Task:
        while self.last is None or looks(self.last) == looks(seen):
            # After the end a poll raises at once, while the pause before it can be as long as the peer likes.
            pauses = not self._watch.has_ended
            if pauses and self.last is not None and await self._changed.wait(poll_interval(self.last, clock)):
                continue
            await self._repeatedly(self.status, clock)
        return self.last

    async def _repeatedly(self, ask: Callable[..., Awaitable[Any]], clock: Clock | None) -> Any:
        """Call ``ask(timeout=…)``, and again after a failure that may pass: use it for requests that change nothing.

        The task goes on meanwhile, and one bad answer of a balancer must not end the wait for it.
        """
        attempt = 0
        while True:
            timeout = DEFAULT if clock is None else clock.for_a_look()
            try:
                return await ask(timeout=timeout)
            except McpError as error:
                delay = _REPEATING.next_delay(attempt, error)
                is_ending = self._watch.session.connection.phase in (Phase.CLOSING, Phase.CLOSED)
                if is_ending or delay is None or not _may_pass(error):
                    raise
            remaining = None if clock is None else clock.left()
            await self._watch.session.driver.runtime.sleep(delay if remaining is None else min(delay, remaining))
            attempt += 1

    async def _fetch(self, clock: Clock) -> None:
        async def ask(timeout: object) -> GetTaskPayloadResult:
            del timeout  # of one poll: the answer comes at the end of the task
            result: GetTaskPayloadResult = await self._ask(GetTaskPayloadRequest(self.id), clock.left())
            return result

        self._payload = await self._repeatedly(ask, clock)
        self._changed.notify_all()

    async def _fetch_alone(self) -> None:
        """Keep the request for the result open during an iteration. Its outcome shows in the state."""
        try:
            with suppress(Exception):
                await self._fetch(Clock(self, self._watch.session, DEFAULT))
                await self.status()
        finally:
            self._is_fetching = False

    async def _ask(self, request: Any, timeout: Timeout | float | None | Default) -> Any:
        if not self.id:
            raise LocalProtocolError(f"{self.operation}: the peer made no task of it, and has answered already")
        session = self._watch.session
        related_to = self.related_to if self.related_to in session.connection.pending.incoming else None
        return await session.request(request, timeout=timeout, related_to=related_to)

    def _note(self, state: GetTaskResult) -> Task:
        task = as_task(state)
        self.note(task)
        return task

    def _give_up(self) -> None:
        """Cancel the task without waiting for the answer, if this handle owns it and the peer takes that."""
        if self.owned and not self.done:
            session = self._watch.session
            with suppress(LocalProtocolError, NoBackChannel):
                session.connection.send_request(CancelTaskRequest(self.id), now=session.driver.now())
                session.driver.wake()

    def _decoded(self) -> R:
        revision = codec(REV_2025_11_25)
        result: R = revision.decode(revision.encode(self._payload), self._result_type)
        return result


def as_task(state: GetTaskResult | TaskStatusNotification) -> Task:
    """Return a ``Task`` from a message that has its members."""
    return Task(
        state.task_id,
        state.status,
        state.created_at,
        state.last_updated_at,
        state.ttl,
        state.status_message,
        state.poll_interval,
        extra=state.extra,
    )


class _States(AsyncIterator[Task]):
    """The successive states of a task. Not a generator, which would have to be closed if left early."""

    def __init__(self, handle: TaskHandle[Any]) -> None:
        self._handle = handle
        self._seen: Task | None = None

    async def __anext__(self) -> Task:
        if not self._handle.id or is_over(self._seen):
            raise StopAsyncIteration
        self._seen = await self._handle.next_state(self._seen)
        return self._seen


class Clock:
    """The time left to wait for a result."""

    def __init__(self, handle: TaskHandle[Any], session: TaskCalls, timeout: Timeout | float | None | Default) -> None:
        self._operation = handle.operation
        self._session = session
        self._limit: float | None
        if isinstance(timeout, Default):
            ttl = None if handle.last is None else handle.last.ttl
            self._limit = LONGEST_WAIT if ttl is None else min(_in_seconds(ttl) + _AFTERWARDS, LONGEST_WAIT)
        else:
            self._limit = checked_timeout(timeout).total
        self._began = session.driver.now()

    def left(self) -> float | None:
        """Return the seconds left, ``None`` without a limit. Raises RequestTimeout if none are left."""
        if self._limit is None:
            return None
        remaining = self._began + self._limit - self._session.driver.now()
        if remaining <= 0:
            raise RequestTimeout(self._operation, self._limit)
        return remaining

    def for_a_look(self) -> float | Default:
        """Return the timeout of one poll: that of any request, or the remaining time."""
        remaining, usual = self.left(), self._session.connection.options.request_timeout.total
        return DEFAULT if remaining is None or (usual is not None and usual <= remaining) else remaining


def _may_pass(error: McpError) -> bool:
    """Whether the same request may have another answer: all failures but those that the peer or a proxy means."""
    if isinstance(error, UnexpectedResponse):
        return error.status >= 500 or error.status == 429
    return not isinstance(error, RequestError) or error.is_retryable()


def poll_interval(state: Task, clock: Clock | None, least: float = _SHORTEST) -> float:
    """Return the time to wait before the next poll, in seconds."""
    interval = max(_INTERVAL if state.poll_interval is None else _in_seconds(state.poll_interval), least)
    remaining = None if clock is None else clock.left()
    return interval if remaining is None else min(interval, remaining)


def _in_seconds(milliseconds: float) -> float:
    """Convert milliseconds of the peer: an integer may be too large to divide, so it is bounded first."""
    return min(milliseconds, LONGEST) / 1000


def looks(state: Task | None) -> tuple[str, str | None] | None:
    """Return what distinguishes a state from the one before, for a watcher."""
    return None if state is None else (state.status, state.status_message)


def is_over(state: Task | None) -> bool:
    """Return whether a task is known to be over."""
    return state is not None and state.status in _OVER


def _wants_input(state: Task | None) -> bool:
    return state is not None and state.status == "input_required"


_EARLY: Final = 64
"""How many states of tasks without a handle are kept: a new task may report before its handle is made."""


class TaskWatch:
    """The handles of one session, and the states that the peer reports for their tasks."""

    has_ended: bool
    """Whether the connection has ended."""

    def __init__(
        self,
        session: TaskCalls,
        call_back: Callable[..., None],
        handle_type: Callable[[], type[TaskHandle[Any]]] = lambda: TaskHandle,
    ) -> None:
        """``handle_type`` returns the class of handles for the era of the session."""
        self.session = session
        self.call_back = call_back
        self._handle_type = handle_type
        self._handles: dict[str, WeakSet[TaskHandle[Any]]] = {}
        self._enough = _EARLY
        # Handles with callbacks are kept alive here, since the program may not keep them.
        self._kept: set[TaskHandle[Any]] = set()
        self._starting = 0
        self._early: dict[str, Task] = {}
        self.has_ended = False

    def handle(self, id: str, result_type: type[Any] | None, on_status: StatusCallback | None) -> TaskHandle[Any]:
        """Return a new handle on a task."""
        if result_type is None:
            is_client = self.session.connection.role is Role.CLIENT
            result_type = CallToolResult if is_client else GetTaskPayloadResult
        handle = self._handle_type()(self, id, result_type, checked_callback("on_status", on_status, "(task)"))
        if id:
            self._clear()
            self._handles.setdefault(id, WeakSet()).add(handle)
            if on_status is not None:
                self._kept.add(handle)
        return handle

    async def start(self, request: Any, ask: Callable[[Any], Awaitable[Any]]) -> tuple[Any, Task | None]:
        """Send a request; return its answer, and the state that the peer reported of the new task in the meantime."""
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
        """Record a state that the peer reported."""
        if isinstance(notification, TaskNotification):
            for following in tuple(self._handles.get(notification.task_id, ())):
                following.take(notification)
        if not isinstance(notification, TaskStatusNotification):
            return
        state = as_task(notification)
        for handle in tuple(self._handles.get(state.task_id, ())):
            handle.note(state)
        if self._starting:
            self._early[state.task_id] = state
            if len(self._early) > _EARLY:
                del self._early[next(iter(self._early))]

    def has_handles(self, id: str) -> bool:
        """Whether there are handles on a task."""
        return bool(self._handles.get(id))

    def doubt(self) -> None:
        """Have the states of all tasks asked for anew where they are waited for."""
        for handles in self._handles.values():
            for handle in tuple(handles):
                handle.doubt()

    def end(self) -> None:
        """Record that the connection has ended: waits for tasks fail now, not with their next poll."""
        self.has_ended = True
        self._kept.clear()
        for handles in self._handles.values():
            for handle in tuple(handles):
                handle.wake()

    def release(self, handle: TaskHandle[Any]) -> None:
        """Drop a handle whose task has ended."""
        self._kept.discard(handle)

    def _clear(self) -> None:
        """Drop tasks whose handles are garbage, from time to time."""
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
    """Send a request that asks for a task, and return its handle."""
    checked_callback("on_status", on_status, "(task)")
    method = _method(request)
    # A stateless server decides alone.
    answer, early = await watch.start(request if _is_stateless(watch.session) else _augmented(request, ttl), ask)
    if isinstance(answer, method.result_type):
        handle = watch.handle("", method.result_type, on_status)
        handle.settle(answer)
        return handle
    handle = follow(watch, request, answer, on_status, related_to)
    if early is not None:
        handle.note(early)
    return handle


def follow(
    watch: TaskWatch,
    request: Any,
    created: CreateTaskResult | CreatedTask,
    on_status: StatusCallback | None,
    related_to: IncomingId | None,
) -> TaskHandle[Any]:
    """Return the handle of a task that was just made of a request. It owns the task.

    Raises InvalidMessage for a task without an id.
    """
    method = _method(request)
    state = created.task if isinstance(created, CreateTaskResult) else flat_task(created)
    if not state.task_id:  # which would stand for an answer without a task
        raise InvalidMessage("taskId", "a task needs an id, and this one is empty")
    handle = watch.handle(state.task_id, method.result_type, on_status)
    handle.operation = describe_request({"method": method.name, "params": {"name": getattr(request, "name", None)}})
    handle.owned, handle.related_to = True, related_to
    response = created.meta.get(META_MODEL_IMMEDIATE_RESPONSE)
    handle.immediate_response = response if isinstance(response, str) else None
    handle.note(state)
    return handle


def flat_task(state: CreatedTask | DetailedTask | TaskNotification) -> Task:
    """Return a ``Task`` from a message of a stateless server."""
    return Task(
        state.task_id,
        state.status,
        state.created_at,
        state.last_updated_at,
        state.ttl_ms,
        state.status_message,
        state.poll_interval_ms,
    )


async def run_task(
    session: Any,
    task: bool | float,
    request: Any,
    *,
    timeout: Timeout | float | None | Default = DEFAULT,
    on_progress: ProgressCallback | None = None,
    related_to: IncomingId | None = None,
) -> Any:
    """Run a request as a task of the peer, and return its result. A number as ``task`` is the ``ttl``."""
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
    if not is_amount(ttl) or ttl == 0:
        raise ValueError(f"a ttl must be a number of seconds, more than 0, not {ttl!r:.100}")
    return attrs.evolve(
        request, task=TaskMetadata(math.ceil(min(ttl * 1000, LONGEST)))
    )  # some peers take integers only


async def call_as_task(
    client: Client,
    request: CallToolRequest,
    task: bool | float | None,
    call: Any,
    refusal: RequestError | CallToolResult | None,
) -> CallToolResult:
    """Call a tool as a task and return its result. With ``task=None`` only if the tool must be one.

    ``refusal`` is the answer to a plain call. If the tool need not be a task, it is raised or returned.
    """
    options: Any = {**call}
    meta = options.pop("meta", None)
    if meta is not None:
        request = attrs.evolve(request, meta=meta)
    retry = options.pop("retry", None)
    if task is None and not await _must_be_task(client, request):
        if isinstance(refusal, RequestError):
            raise refusal
        plain: CallToolResult = refusal or await client.request(request, retry=retry, **options)
        return plain
    result: CallToolResult = await run_task(client, True if task is None else task, request, **options)
    return result


async def fault_in_task(client: Client, request: Any) -> str | None:
    """Return why a request must not be a task, or ``None``."""
    if not isinstance(request, CallToolRequest) or _unsupported(client):
        return None  # the engine reports what is wrong
    tool = await client.tool(request.name)
    if tool is None:
        return f"tool {request.name!r:.100} must not be a task: the server does not list it"
    if _support(tool) == "forbidden":
        return f"tool {request.name!r:.100} must not be a task, says the server"
    return None


async def _must_be_task(client: Client, request: CallToolRequest) -> bool:
    if _unsupported(client):
        return False
    tool = await client.tool(request.name)
    return tool is not None and _support(tool) == "required"


def _is_stateless(session: TaskCalls) -> bool:
    revision = session.connection.revision
    return revision is not None and revision.era is Era.STATELESS


def _unsupported(client: Client) -> bool:
    connection = client.connection
    revision = connection.revision
    return revision is None or why_no_task(METHODS["tools/call"], revision, client.server.capabilities) is not None


def _support(tool: Tool) -> TaskSupport:
    support = None if tool.execution is None else tool.execution.task_support
    return support or "forbidden"


# ------------------------------------------------------------------------------------------------------------ following
# Tasks of a stateless server, followed by its client: the extension ``io.modelcontextprotocol/tasks`` of 2026-07-28.
# The server decides which calls become tasks. The state of a task has all there is to know: the questions that it waits
# for, which the client's callbacks answer, and its outcome. Where the server reports the states of tasks on a
# subscription, the client listens (XTASK-11); otherwise it polls, as often as the server asks for (XTASK-14).

_CODEC: Final = codec(REV_2026_07_28)

MOST_QUESTIONS: Final = 1000
"""How many questions of one task are answered."""
RARELY: Final = 60.0
"""Seconds between two polls of a task whose changes are reported: a report may get lost."""


async def to_the_end(
    watch: Callable[[], TaskWatch],
    request: CallToolRequest,
    answer: object,
    *,
    timeout: Timeout | float | None | Default,
    related_to: IncomingId | None,
) -> Any:
    """Return the answer to a call, or the result of the task by which the server answered (XTASK-03, XTASK-17).

    Raises as ``TaskHandle.result``.
    """
    if not isinstance(answer, CreatedTask):
        return answer
    return await follow(watch(), request, answer, None, related_to).result(timeout=timeout)


class StatelessTaskHandle(TaskHandle[R]):
    """One task of a stateless server. Waiting for its result, or iterating over it, answers its questions."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._detail: DetailedTask | TaskNotification | None = None
        # The keys of questions that were answered, which a later poll may still show (XTASK-09).
        self._answered: set[str] = set()
        self._is_answering = False
        self._is_followed = False
        # Whether a change may have been missed, so that the next state is asked for.
        self._is_doubted = False

    async def status(self, *, timeout: Timeout | float | None | Default = DEFAULT) -> Task:
        """Request the state of the task and return it (XTASK-06). Raises as ``Session.request`` does.

        Raises RequestError (-32602) if the server no longer knows the task.
        """
        result = await self._send("tasks/get", timeout)
        detail = _CODEC.decode(result, DetailedTask)
        if detail.task_id != self.id:
            raise InvalidMessage("taskId", f"expected {self.id!r:.100}, got {detail.task_id!r:.100}")
        return self._record(detail)

    async def cancel(self, *, timeout: Timeout | float | None | Default = DEFAULT) -> Task:
        """Ask the server to cancel the task, and return its state, which may be another yet (XTASK-10)."""
        await self._send("tasks/cancel", timeout)
        return await self.status(timeout=timeout)

    async def next_state(self, seen: Task | None) -> Task:
        """Wait for a state that differs from ``seen``, and return it. Meanwhile questions are answered."""
        while self.last is None or looks(self.last) == looks(seen):
            await self._advance(None)
        return self.last

    # For this package

    def take(self, notification: TaskNotification) -> None:
        """Record a state that the server reported (XTASK-11)."""
        self._record(notification)
        self._changed.notify_all()  # the questions may be others

    def doubt(self) -> None:
        """Record that changes may have been missed, or are not reported any more."""
        self._is_doubted = True
        self._changed.notify_all()

    # Inside

    def _record(self, detail: DetailedTask | TaskNotification) -> Task:
        state = flat_task(detail)
        if self._detail is None or not is_over(self.last):
            self._detail = detail
            self.note(state)
            if is_over(state):
                self._leave()
        return state

    async def _wait(self, clock: Clock, *, poll: bool) -> None:
        del poll  # a request for the result alone does not exist
        while self._detail is None or not is_over(self.last):
            await self._advance(clock)

    async def _advance(self, clock: Clock | None) -> None:
        """Answer the questions, or else wait until a state is reported or the next poll is due; then poll."""
        questions = self._questions()
        if questions and not self._is_answering:
            await self._answer(questions, clock)
            if self._is_reported or is_over(self.last):
                return
        elif self.last is not None and not self._is_doubted and not self._watch.has_ended:
            self._follow()
            pause = poll_interval(self.last, clock, RARELY) if self._is_reported else poll_interval(self.last, clock)
            if await self._changed.wait(pause):
                return
        self._is_doubted = False
        await self._repeatedly(self.status, clock)

    # The subscription

    @property
    def _listening(self) -> ManagedListening:
        client: Any = self._watch.session
        listening: ManagedListening = client._managed()
        return listening

    @property
    def _is_reported(self) -> bool:
        return self._is_followed and self._listening.reports_task(self.id)

    def _follow(self) -> None:
        """Begin to listen, beside the polls."""
        if not self._is_followed:
            self._is_followed = True
            self._watch.session.driver.runtime.spawn(self._begin_to_follow())

    async def _begin_to_follow(self) -> None:
        if await self._listening.follow_task(self.id):
            self.doubt()  # what happened before is not reported by every server

    def _leave(self) -> None:
        """Listen no longer."""
        if self._is_followed:
            self._listening.leave_task(self.id)

    def _questions(self) -> Mapping[str, InputRequest]:
        """Return the questions that were not answered yet, by their keys."""
        detail = self._detail
        if detail is None or detail.status != "input_required":
            return {}
        questions = detail.input_requests or {}
        return {key: question for key, question in questions.items() if key not in self._answered}

    async def _answer(self, questions: Mapping[str, InputRequest], clock: Clock | None) -> None:
        """Answer questions by the client's callbacks. If one of these fails, the task is given up.

        So it is, with TooManyRounds, beyond ``MOST_QUESTIONS``: a server must not ask for ever.
        """
        client: Any = self._watch.session
        self._is_answering = True
        try:
            self._check_questions(len(questions))
            for question in questions.values():
                check_question(question, client.connection.capabilities, _CODEC)
            answers = {key: _CODEC.encode(answer) for key, answer in (await answers_to(client, questions)).items()}
            self._answered |= answers.keys()
            # The first answer to a question counts, so this is safe to repeat too.
            await self._repeatedly(partial(self._send, "tasks/update", inputResponses=answers), clock)
        except Exception:
            self._give_up()
            raise
        finally:
            self._is_answering = False

    def _check_questions(self, count: int) -> None:
        if len(self._answered) + count > MOST_QUESTIONS:
            raise TooManyRounds(self.operation, len(self._answered))

    async def _send(self, method: str, timeout: Timeout | float | None | Default, **more: Any) -> Any:
        if not self.id:
            raise LocalProtocolError(f"{self.operation}: the peer made no task of it, and has answered already")
        request = CustomRequest(method, {"taskId": self.id, **more})
        return await self._watch.session.request(request, timeout=timeout)

    def _give_up(self) -> None:
        if self.owned and not self.done:
            self._leave()
            session = self._watch.session
            with suppress(LocalProtocolError, NoBackChannel):
                request = CustomRequest("tasks/cancel", {"taskId": self.id})
                session.connection.send_request(request, now=session.driver.now())
                session.driver.wake()

    def _decoded(self) -> R:
        detail: Any = self._detail
        if detail.status == "cancelled":
            raise RequestCancelled(self.operation, detail.status_message)
        if detail.status == "failed":
            raise _failure(detail)
        if detail.result is None:
            raise InvalidMessage("result", "a completed task needs its result")
        result: R = _CODEC.decode(detail.result, self._result_type)
        return result


def _failure(detail: DetailedTask) -> RequestError:
    """Return the error of a failed task (XTASK-07)."""
    error: Any = detail.error or {}
    code, message = error.get("code"), error.get("message")
    if type(code) is not int or not isinstance(message, str):
        return RequestError(ErrorCode.INTERNAL_ERROR, detail.status_message or "The task failed, and does not say why")
    return RequestError(code, message, error.get("data"))
