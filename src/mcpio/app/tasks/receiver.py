# ruff: noqa: SLF001 - the library uses scopes from inside
"""Tasks of the side that runs them, in both eras."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import attrs

from mcpio._checks import is_amount, of_kind
from mcpio.app.contracts import own_state
from mcpio.app.pagination import page_of
from mcpio.app.reporting import (
    SLOW_STEP,
    STUBBORN,
    FaultReports,
    describe_request,
    intended_answer,
    internal_error,
    unwrap_group,
)
from mcpio.app.rounds import Leave, without_leaving
from mcpio.app.runtime import SLOW, OneShot, checked_callback, failure_of, in_steps, is_awaitable, is_fault, is_stopping
from mcpio.app.tasks.store import (
    MemoryTaskStore,
    Settle,
    TaskHost,
    TaskStorage,
    TaskStore,
)
from mcpio.auth.grant import Grant
from mcpio.codec import codec
from mcpio.engine.payloads import encode
from mcpio.engine.table import Phase
from mcpio.engine.tasks import (
    Owner,
    TaskAnswered,
    TaskChanged,
    TaskEvent,
    TaskLeased,
    TaskLimits,
    TaskLook,
    TaskMachine,
    TaskOrphaned,
    TaskOutcome,
    TaskReplied,
    TasksLapsed,
    TaskStoreFailed,
    TaskTaken,
)
from mcpio.errors import (
    CapabilityMissing,
    ConnectionLost,
    ErrorCode,
    InvalidMessage,
    LocalProtocolError,
    NoBackChannel,
    RequestError,
)
from mcpio.events import IncomingId, RequestContext, RequestReceived
from mcpio.methods import METHODS, declares
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28, Era, Revision
from mcpio.types.base import META_MODEL_IMMEDIATE_RESPONSE, META_PROGRESS_TOKEN, META_RELATED_TASK, TASKS_EXTENSION
from mcpio.types.features import (
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    Implementation,
    ProgressNotification,
)
from mcpio.types.tasks import (
    CancelTaskRequest,
    CancelTaskResult,
    ClientTaskRequestsCapability,
    ClientTasksCapability,
    CreatedTask,
    CreateTaskResult,
    DetailedTask,
    ElicitationTasksCapability,
    GetTaskPayloadRequest,
    GetTaskPayloadResult,
    GetTaskRequest,
    GetTaskResult,
    ListTasksRequest,
    ListTasksResult,
    SamplingTasksCapability,
    ServerTaskRequestsCapability,
    ServerTasksCapability,
    Task,
    TaskNotification,
    TaskReference,
    TaskStatusNotification,
    TaskUpdate,
    ToolTasksCapability,
)

if TYPE_CHECKING:
    from mcpio.app.context import RequestScope
    from mcpio.app.contracts import Handler
    from mcpio.app.registry.tools import FunctionTool, Tools
    from mcpio.app.runtime import Spawned, ThreadPool
    from mcpio.app.session import Session
    from mcpio.types.base import CustomRequest


# ------------------------------------------------------------------------------------------------------------ extension
# Tasks for stateless clients: the extension ``io.modelcontextprotocol/tasks`` of 2026-07-28.
# The tasks are those of the handshake era, seen in another way. The server decides which calls become tasks, and a task
# keeps its questions until ``tasks/update`` brings the answers.

_CAPABILITY: Final = ("extensions", TASKS_EXTENSION)
_STATELESS_CODEC: Final = codec(REV_2026_07_28)


def check_takes_tasks(client: ClientCapabilities | Any) -> None:
    """Raise CapabilityMissing, which is answered by -32021, unless a client declared the extension (XTASK-01)."""
    if not declares(client, _CAPABILITY):
        raise CapabilityMissing(f"the client did not declare the extension {TASKS_EXTENSION}", _CAPABILITY)


def created_task(task: Task) -> CreatedTask:
    """Return the answer to a call that continues as a task."""
    return CreatedTask(**_members(task))


def result_of(outcome: TaskOutcome) -> dict[str, Any]:
    """Return the result of a call that was over soon. Raises its error."""
    if outcome.error is not None:
        raise RequestError(outcome.error.code, outcome.error.message, outcome.error.data)
    return {"resultType": "complete", **(outcome.result or {})}


def task_notification(look: TaskLook) -> TaskNotification:
    """Return the notification of a task's state: what ``tasks/get`` would return (XTASK-11)."""
    return TaskNotification(**_members_by_status(look))


def _members_by_status(look: TaskLook) -> dict[str, Any]:
    """Return the members of a task, with those of its status. One whose tool failed is ``completed`` (XTASK-07)."""
    members, outcome = _members(look.task), look.outcome
    if look.task.status == "input_required":
        questions = {
            key: _STATELESS_CODEC.decode(question["params"], METHODS[question["method"]].params_type)
            for key, question in look.inputs.items()
        }
        # All of them may just have been answered, and the work not gone on yet.
        members |= {"input_requests": questions} if questions else {"status": "working"}
    elif outcome is not None and look.task.status != "cancelled":
        if outcome.error is None:
            members |= {"status": "completed", "result": result_of(outcome)}
        else:
            error = {"code": outcome.error.code, "message": outcome.error.message}
            data = {} if outcome.error.data is None else {"data": outcome.error.data}
            members |= {"status": "failed", "error": {**error, **data}}
    return members


def _members(task: Task) -> dict[str, Any]:
    return {
        "task_id": task.task_id,
        "status": task.status,
        "created_at": task.created_at,
        "last_updated_at": task.last_updated_at,
        "ttl_ms": None if task.ttl is None else int(task.ttl),
        "status_message": task.status_message,
        "poll_interval_ms": None if task.poll_interval is None else max(int(task.poll_interval), 1),
    }


def _extension_params(scope: RequestScope, request: Any, kind: type[Any]) -> Any:
    """Return the params of a request. Raises RequestError for malformed ones, and CapabilityMissing (XTASK-12)."""
    check_takes_tasks(scope.peer.capabilities)
    try:
        return _STATELESS_CODEC.decode(request.params, kind)
    except InvalidMessage as error:
        path = f"params.{error.path}" if error.path else "params"
        text = f"Invalid params: {path}: {error.reason}"
        raise RequestError(ErrorCode.INVALID_PARAMS, text, {"path": path}) from None


def _check_answer(key: str, question: Mapping[str, Any], answer: Any) -> None:
    """Raise RequestError if an answer does not fit its question."""
    try:
        _STATELESS_CODEC.decode(answer, METHODS[question["method"]].result_type)
    except InvalidMessage as error:
        path = f"params.inputResponses.{key}"
        text = f"Invalid params: {path}: {error}"
        raise RequestError(ErrorCode.INVALID_PARAMS, text, {"path": path}) from None


# -------------------------------------------------------------------------------------------------------------- running
# The work of one task: it outlives the request that began it, and perhaps the session.

T = TypeVar("T")


def related(id: str) -> dict[str, Any]:
    """Return the ``_meta`` of messages that belong to a task (TASK-28)."""
    return {META_RELATED_TASK: {"taskId": id}}


class DisconnectedSession:
    """The session of a task that was resumed while its requestor was not connected. Using it raises NoBackChannel."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NoBackChannel("the task was resumed, and its requestor is not connected")


class TaskRun:
    """A running task. Handlers see it as ``Context.task``."""

    __slots__ = (
        "_open",
        "_progress",
        "_receiver",
        "_wanting",
        "account",
        "handle",
        "host",
        "id",
        "is_asking",
        "is_leased",
        "is_over",
        "is_resumed",
        "owner",
        "scope",
        "session",
        "state",
        "token",
        "waiting",
    )

    id: str
    """The task's id. A peer that knows it may be able to read the result (TASK-10)."""
    owner: Owner
    """The owner of the task; ``None`` for an unauthenticated one."""
    is_resumed: bool
    """Whether the work was interrupted before, by the end of its process or host, and runs again."""
    is_over: bool
    """Whether the task has reached its final status or expired; its work no longer matters."""
    is_leased: bool
    """Whether no other process can have taken the task over. False only while a shared store cannot be reached, with
    ``TaskOptions(on_lapse="continue")``."""

    def __init__(
        self,
        receiver: TaskReceiver,
        id: str,
        owner: Owner,
        host: TaskHost,
        session: Session | None,
        token: int | str | None,
        state: Any,
        *,
        account: Hashable,
        is_resumed: bool = False,
    ) -> None:
        self.id = id
        self.owner = owner
        self.is_resumed = is_resumed
        self.is_over = False
        self.is_leased = True
        self.account: Hashable = account
        self.host: TaskHost = host
        self.session: Session | None = session
        self.state: Any = state
        self.token: int | str | None = token
        self.handle: Spawned | None = None
        self.scope: RequestScope | None = None
        self.waiting: list[RequestScope] = []
        """The ``tasks/result`` requests that wait for this task."""
        self._receiver = receiver
        self._progress: float | None = None
        self._wanting: list[OneShot] = []
        self._open: dict[str, OneShot] = {}
        self.is_asking: Callable[[], None] = lambda: None
        """Called when the work asks a stateless requestor."""

    @property
    def related(self) -> dict[str, Any]:
        """The ``_meta`` of messages that belong to the task."""
        return related(self.id)

    def say(self, message: str) -> None:
        """Set the status message, which clients may show to people. Call it in the loop's thread.

        One of more than 1000 characters is shortened. Does nothing once the task is over. Raises TypeError if it is not
        a str, and LocalProtocolError if it has a surrogate, which no message can carry.
        """
        if not self.is_over:  # another run may go on with the task
            keeping = self._receiver._keeping
            keeping.machine.say(self.id, message, now=keeping.now())
            keeping.pump()

    # For the scope of its handler

    def report(self, message: str, error: BaseException | None, *, kind: Hashable | None = None) -> None:
        """Report a failure to the operator. See ``FaultReports``."""
        self._receiver.fault_reports.report(self.host, message, error, kind)

    async def run_in_thread(self, function: Callable[[], T]) -> T:
        """Run a blocking function in a thread, which counts for the requestor."""
        return await self._receiver.thread_pool.run(self.host.runtime, self.account, function)

    def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Report progress under the token of the request that became the task (PROG-07).

        Dropped without a token, if it does not increase, and when the task or the session is over.
        """
        session = self.session
        if self.is_over or self.token is None or session is None or _is_ending(session):
            return
        notification = ProgressNotification(self.token, progress, total, message, meta=related(self.id))
        if self._progress is not None and not progress > self._progress:
            return
        # The request that became the task is answered, so its stream is gone; a ``tasks/result`` that waits has one.
        here = [scope.id for scope in self.waiting if scope.session is session and not scope.cancelled]
        session.notify(notification, related_to=here[-1] if here else None)
        self._progress = progress

    async def ask(self, way: Callable[[Session], Callable[..., Any]], request: Any, **call: Any) -> Any:
        """Send a request to the requestor, once it waits for the result: earlier it cannot be reached (TASK-16).

        ``way`` returns the call that sends the request in a session. If the connection ends before the answer, the
        request is sent again to the next one that waits (TASK-17).
        """
        request = attrs.evolve(request, meta={**request.meta, **related(self.id)})
        self._check_runs()
        keeping = self._receiver._keeping
        keeping.machine.ask(self.id, now=keeping.now())
        keeping.pump()
        try:
            while True:
                scope = await self._route()
                try:
                    return await way(scope.session)(request, related_to=scope.id, **call)
                except (ConnectionLost, NoBackChannel):
                    if not _is_ending(scope.session):
                        raise
                    self.leave(scope)
        finally:
            if not self.is_over:
                keeping.machine.answered(self.id, now=keeping.now())
                keeping.pump()

    async def put_question(self, key: str, question: dict[str, Any]) -> Any:
        """Keep a question in the task until its stateless requestor answers, and return the raw answer.

        One that an interrupted run has asked keeps its key, and the answer that came. Raises LocalProtocolError if the
        task is over.
        """
        self._check_runs()
        keeping = self._receiver._keeping
        key = keeping.machine.ask(self.id, keeping.now(), (key, question)) or key
        self._open[key] = answered = self.host.runtime.one_shot()
        keeping.pump()
        self.is_asking()
        try:
            return await answered.wait()
        finally:
            del self._open[key]
            if not self.is_over:  # another run may ask for it again
                keeping.machine.withdraw_question(self.id, key, keeping.now())
                keeping.pump()

    def _check_runs(self) -> None:
        # The task itself may go on in another run, at another host, and its questions are not those of this one.
        if self.is_over:
            raise LocalProtocolError("the task is over: it can ask no more")

    # For the receiver

    def have_answer(self, key: str, answer: Any) -> None:
        """Pass on the answer to an open question."""
        self._open[key].set(answer)

    def join(self, scope: RequestScope) -> None:
        """Record that a ``tasks/result`` request waits: requests of the work may go to its session."""
        self.waiting.append(scope)
        # All of them: one waiting request carries any number of the task's own.
        wanting, self._wanting = self._wanting, []
        for each in wanting:
            each.set(None)

    def leave(self, scope: RequestScope) -> None:
        """Record that the work no longer waits. Further calls do nothing."""
        self.waiting = [each for each in self.waiting if each is not scope]

    def stop(self) -> None:
        """Cancel the work at its next wait."""
        self.is_over = True
        if self.scope is not None:
            self.scope._abandon()
        if self.handle is not None:
            self.handle.cancel()

    async def _route(self) -> RequestScope:
        while True:
            for scope in reversed(self.waiting):
                if not scope.cancelled and not _is_ending(scope.session):
                    return scope
            wanted = self.host.runtime.one_shot()
            self._wanting.append(wanted)
            try:
                await wanted.wait()
            finally:
                self._wanting = [each for each in self._wanting if each is not wanted]


def _is_ending(session: Session) -> bool:
    return session.connection.phase in (Phase.CLOSING, Phase.CLOSED)


# ------------------------------------------------------------------------------------------------------------- receiver
# The receiver of tasks: answers requests at once, and continues their work (2025-11-25).
# The rules are in ``mcpio.engine.tasks``. This module carries out its effects and events: it writes to a store,
# runs and cancels the work, and serves the requests about tasks. Both sides use it: a server whose tools run as tasks,
# and a client that is asked for messages and forms (TASK-31).

Work: TypeAlias = Callable[[TaskRun], Any]
"""Runs a task: returns the typed result of its request, or an awaitable of it."""
Resume: TypeAlias = Callable[[TaskOrphaned, TaskRun], tuple[Work, str] | None]
"""Takes an interrupted task, and returns its work and the method of its request; ``None`` if it cannot be resumed."""

FINAL: Final = ("completed", "failed", "cancelled")
"""The statuses that never change (TASK-14)."""

_CODEC: Final = codec(REV_2025_11_25)


@attrs.frozen(kw_only=True)
class TaskOptions:
    """How tasks are kept. The defaults keep them in memory, and suit a server with one user."""

    store: TaskStore | None = attrs.field(default=None)
    """The store: memory, ``mcpio.stores.SqliteStore`` to outlive the process, or ``mcpio.stores.redis.RedisStore`` to
    share tasks with other processes. A store object belongs to one server at a time."""
    limits: TaskLimits = attrs.field(factory=TaskLimits, validator=of_kind(TaskLimits))
    """Bounds for the number, size and lifetime of tasks, in each process."""
    poll_interval: float | None = attrs.field(default=1.0)
    """How often requestors are asked to poll, in seconds; ``None`` leaves it to them."""
    task_after: float = attrs.field(default=2.0)
    """Seconds after which a call of a tool with ``task_support="optional"`` continues as a task, for stateless clients
    that support tasks. Clients of 2025-11-25 choose themselves."""
    list: bool | None = attrs.field(default=None, validator=of_kind(bool, optional=True))
    """Whether to serve ``tasks/list``. By default if requestors can be distinguished, by a principal or because only
    one exists (TASK-35)."""
    notify: bool = attrs.field(default=True, validator=of_kind(bool))
    """Whether the session that began a task is notified of its changes (TASK-30)."""
    owner: Callable[[Any], Owner] | None = attrs.field(default=None)
    """Turns a principal into the owner of a task: a str or an int, ``None`` for no owner. By default the principal
    itself is the owner, and of a grant its ``key``."""
    on_lapse: Literal["cancel", "continue"] = attrs.field(default="cancel")
    """What happens to the work of tasks whose leases have ended because a shared store cannot be reached. By default it
    is cancelled; tasks that no other process has taken over restart afterwards, or fail if they cannot. With
    ``"continue"`` it runs on, and can ask ``ctx.task.is_leased``."""
    on_change: Callable[[TaskChanged], None] | None = attrs.field(default=None)
    """Called with every change of a task, for an audit log (TASK-38). A plain function, called without waiting."""

    @store.validator
    def _check_store(self, attribute: object, value: Any) -> None:
        methods = ("write", "fetch", "adopt")
        if value is not None and not all(callable(getattr(value, method, None)) for method in methods):
            raise TypeError(f"store must be a TaskStore, not {value!r:.100}")

    @poll_interval.validator
    @task_after.validator
    def _check_seconds(self, attribute: attrs.Attribute[Any], value: Any) -> None:
        # Infinity is a way to let only a question turn a call into a task; as an interval JSON cannot say it.
        other = None if attribute.name == "poll_interval" else math.inf
        if not is_amount(value) and value != other:
            raise ValueError(f"{attribute.name} must be a number of seconds, 0 or more, or {other}, not {value!r:.100}")

    @on_lapse.validator
    def _check_lapse(self, attribute: object, value: Any) -> None:
        if value not in ("cancel", "continue"):
            raise ValueError(f'on_lapse must be "cancel" or "continue", not {value!r:.100}')

    @owner.validator
    @on_change.validator
    def _check_callback(self, attribute: attrs.Attribute[Any], value: Any) -> None:
        checked_callback(attribute.name, value, "(principal)" if attribute.name == "owner" else "(change)")


class TaskReceiver:
    """Keeps the tasks of this side's peers."""

    handlers: dict[str, Handler]
    """The handlers of the requests about tasks, by method."""
    fault_reports: FaultReports
    """Reports the failures of tasks to the operator."""

    def __init__(
        self,
        options: TaskOptions,
        thread_pool: ThreadPool,
        *,
        page_size: int | None = None,
        resume: Resume | None = None,
        settle: Settle | None = None,
    ) -> None:
        """``resume`` returns the work of an interrupted task; without it, interrupted tasks are lost.

        ``settle`` enters the memory that tasks take into a ledger.
        """
        self.options: TaskOptions = options
        self.thread_pool: ThreadPool = thread_pool
        self.fault_reports = FaultReports()
        self._page_size = page_size
        self.handlers = {
            "tasks/get": self._get,
            "tasks/result": self._result,
            "tasks/list": self._list,
            "tasks/cancel": self._cancel,
        }
        self._resume = resume
        self._keeping = TaskStorage(
            options.store or MemoryTaskStore(),
            self._act,
            limits=options.limits,
            poll_interval=options.poll_interval,
            settle=settle,
            on_signal=self._hear_store,
            report=self._report,
        )
        self._watchers: dict[str, list[Callable[[str], None]]] = {}
        self._hosts: dict[TaskHost, tuple[Any, Session | None]] = {}
        self._host: TaskHost | None = None
        self._runs: dict[str, TaskRun] = {}
        self._orphans: dict[str, TaskOrphaned] = {}
        # The methods of all whose work goes on, also after they were stopped.
        self._working: dict[TaskRun, str] = {}
        self._work_ended: dict[TaskHost, OneShot] = {}

    # Where tasks run

    def attach(self, host: TaskHost, state: Any = None, session: Session | None = None) -> None:
        """Run tasks at a host: those of one session at its driver, or without ``session`` those of all.

        ``state`` is the value that the lifespan around the host yielded.
        """
        self._hosts[host] = (own_state(state), session)
        if session is None:
            self._host = host
        self._keeping.attach(host)
        orphans, self._orphans = self._orphans, {}
        for event in orphans.values():
            self._act(event)
        self._keeping.pump()

    def detach(self, host: TaskHost) -> None:
        """Remove a host. Its tasks are lost, or resumed at another host. Further calls do nothing."""
        self.stop(host)
        self._keeping.detach(host)

    def stop(self, host: TaskHost) -> None:
        """Stop the tasks at a host, and start none there. The host may still write to the store until detached."""
        if self._hosts.pop(host, None) is None:
            return
        if self._host is host:
            hosts = [other for other, (_, session) in self._hosts.items() if session is None]
            self._host = hosts[-1] if hosts else None
        for run in [run for run in self._runs.values() if run.host is host and not run.is_over]:
            del self._runs[run.id]
            run.stop()
            self._machine.release(run.id, "What the task ran in has ended", now=self._keeping.now())
        self._keeping.pump()

    async def flush(self, host: TaskHost) -> None:
        """Wait until everything known is stored, or failed to be."""
        await self._keeping.flush(host)

    async def wait_for_work(self, host: TaskHost) -> None:
        """Wait until the work of the tasks that were stopped at a host has ended. For the one that ends the host."""
        if any(run.host is host for run in self._working):
            self._work_ended[host] = host.runtime.one_shot()
            try:
                await self._work_ended[host].wait()
            finally:
                del self._work_ended[host]

    def report_work(self, host: TaskHost) -> None:
        """Tell the operator which tasks still run although their host has ended, which cancelled them."""
        for run, method in self._working.items():
            if run.host is host:
                run.report(f"the task of {method} {STUBBORN}", None, kind=("stubborn", method))

    def abandon(self, was_cut_off: Callable[[Any], bool]) -> None:
        """Fail the tasks whose work was cut off although their host still exists.

        ``was_cut_off`` is called with each ``TaskRun.handle``.
        """
        for run in [run for run in self._runs.values() if not run.is_over and was_cut_off(run.handle)]:
            self._finish(run, TaskOutcome(error=internal_error()))

    # Beginning

    def wants_task(self, scope: RequestScope, request: Any) -> bool:
        """Whether a request becomes a task: it asks for one, and this side declared that it takes them (TASK-03)."""
        if getattr(request, "task", None) is None:
            return False
        return declares(scope.session.connection.capabilities, METHODS[scope.method].task_capability)

    async def begin(
        self, scope: RequestScope, request: Any, work: Work, *, saved: Any = None, immediate: str | None = None
    ) -> CreateTaskResult:
        """Turn a request into a task, and return the answer once the task is stored (TASK-09).

        ``work`` then runs as a task of the event loop. With ``saved``, a JSON object, it can be resumed. ``immediate``
        is a text for the model in the meantime (TASK-13). Raises RequestError beyond the limits.
        """
        run, task = await self._create(scope, request, request.task.ttl, saved)
        run.token = _token(scope)
        self._start(run, work, scope.method)
        # The specification's list of messages that need no mark does not name this answer (TASK-28, TASK-29).
        meta = run.related if immediate is None else {**run.related, META_MODEL_IMMEDIATE_RESPONSE: immediate}
        return CreateTaskResult(task, meta=meta)

    async def _create(
        self, scope: RequestScope, request: Any, ttl: float | None, saved: Mapping[str, Any] | None
    ) -> tuple[TaskRun, Task]:
        """Turn a request into a task, once it is stored. Raises RequestError beyond the limits."""
        host, state, session = self._host_for(scope)
        self._keeping.refresh()
        owner = self._owner(scope)
        reply = host.runtime.one_shot()
        operation = describe_request({"method": scope.method, "params": {"name": getattr(request, "name", None)}})
        id = self._machine.create(
            owner,
            operation,
            now=self._keeping.now(),
            cookie=reply,
            ttl=ttl,
            request=saved,
            requestor=scope.account,
        )
        self._keeping.pump()
        try:
            replied: TaskReplied = await reply.wait()
        except BaseException:
            # The requestor will never learn its id.
            self._machine.withdraw(id)
            self._keeping.pump()
            raise
        task: Task = _value(replied)
        run = TaskRun(self, id, owner, host, session, None, state, account=scope.thread_account)
        # Once it was stored, others could see the task, and the host could end, before this waiter's turn came.
        run.is_over = id not in self._machine
        if host not in self._hosts:
            self._machine.release(id, "What the task was to run in has ended", now=self._keeping.now())
            self._keeping.pump()
            raise NoBackChannel("the session is over: no task can begin in it")
        return run, task

    # For subscriptions

    def watch(self, ids: Iterable[str], callback: Callable[[str], None]) -> None:
        """Call back with the id of each of these tasks when its state has changed, in whatever process."""
        for id in ids:
            self._watchers.setdefault(id, []).append(callback)

    def unwatch(self, ids: Iterable[str], callback: Callable[[str], None]) -> None:
        """Call back no more. Does nothing for tasks that were not watched."""
        for id in ids:
            callbacks = self._watchers.get(id, [])
            if callback in callbacks:
                callbacks.remove(callback)
                if not callbacks:
                    del self._watchers[id]

    def _tell_watchers(self, id: str) -> None:
        for callback in tuple(self._watchers.get(id, ())):
            callback(id)

    def _hear_store(self, id: str | None) -> None:
        """Act on a change of a task in the store; ``None`` where any may have changed."""
        for each in tuple(self._watchers) if id is None else (id,):
            # The signal of a change made here may precede the store's answer. Until then the machine shows the state
            # before, so its own event tells of the change.
            if each not in self._machine:
                self._tell_watchers(each)

    # Requests about tasks. Related-task metadata on them is ignored: their parameter names the task (TASK-29).

    async def _get(self, scope: RequestScope, request: GetTaskRequest) -> GetTaskResult:
        return _flat(GetTaskResult, (await self.look(scope, request.task_id, is_whole=False)).task)

    async def _list(self, scope: RequestScope, request: ListTasksRequest) -> ListTasksResult:
        tasks = await self._keeping.tasks_of(scope.session.driver.runtime, self._owner(scope))
        page = page_of("task", tasks, request.cursor, self._page_size)
        return ListTasksResult(tuple(page.items), page.next_cursor)

    async def _cancel(self, scope: RequestScope, request: CancelTaskRequest) -> CancelTaskResult:
        return _flat(CancelTaskResult, await self.cancel(scope, request.task_id))

    async def cancel(self, scope: RequestScope, id: str) -> Task:
        """Cancel a task of the request's owner. Raises RequestError if it is unknown or has ended."""
        return await self._keeping.cancel(scope.session.driver.runtime, self._owner(scope), id)

    async def look(self, scope: RequestScope, id: str, *, is_whole: bool = True) -> TaskLook:
        """Return a task of the request's owner with its questions and its outcome. Raises RequestError without one.

        The outcome, which may be large, is left out where ``is_whole`` is false.
        """
        return await self._keeping.look(scope.session.driver.runtime, self._owner(scope), id, is_whole=is_whole)

    async def _result(self, scope: RequestScope, request: GetTaskPayloadRequest) -> GetTaskPayloadResult:
        id, owner = request.task_id, self._owner(scope)
        candidate = self._runs.get(id)
        run = None if candidate is None or candidate.owner != owner else candidate
        if run is not None:
            run.join(scope)  # so the work may ask the session of this request
        try:
            outcome = await self._keeping.outcome(scope.session.driver.runtime, owner, id)
        finally:
            if run is not None:
                run.leave(scope)
        if outcome.error is not None:
            raise RequestError(outcome.error.code, outcome.error.message, outcome.error.data)
        result = outcome.result or {}
        return _CODEC.decode({**result, "_meta": {**(result.get("_meta") or {}), **related(id)}}, GetTaskPayloadResult)

    # Running

    @property
    def _machine(self) -> TaskMachine:
        return self._keeping.machine

    def _start(self, run: TaskRun, work: Work, method: str) -> None:
        """Run the work of a task, unless the task was cancelled before."""
        if run.is_over:
            return
        self._runs[run.id] = run
        self._working[run] = method
        run.handle = run.host.runtime.spawn(self._run(run, work, method))

    async def _run(self, run: TaskRun, work: Work, method: str) -> None:
        """Run the work of a task, and finish the task with its outcome."""
        try:
            outcome = await self._outcome(run, work, method)
        except BaseException as error:
            runtime = run.host.runtime
            if run.is_over or not isinstance(error, runtime.cancellation) or await is_stopping(runtime):
                raise
            run.report(f"the task of {method} was cancelled from inside", error)
            outcome = TaskOutcome(error=internal_error())
        finally:
            del self._working[run]
            ended = self._work_ended.get(run.host)
            if ended is not None and not any(other.host is run.host for other in self._working):
                ended.set(None)
        self._finish(run, outcome)

    async def _outcome(self, run: TaskRun, work: Work, method: str) -> TaskOutcome:
        def report_slow(advice: str, blocked: float) -> None:
            slow = f"the task of {method} held up everything else for {blocked * 1000:.0f} ms"
            run.report(f"{slow}: {advice}", None, kind=("slow", method))

        stalls = run.host.runtime.stalls
        began = stalls.clock()
        stalls.look(began)
        try:
            result = work(run)
            took = stalls.clock() - began
            if took > SLOW and (blocked := stalls.held(took)) > SLOW:
                report_slow("make its function async, or register it with blocking=True", blocked)
            if is_awaitable(result):
                result = await in_steps(result, stalls, partial(report_slow, SLOW_STEP))
            return TaskOutcome(_encoded_result(result, method))
        except BaseException as error:
            if not is_fault(error, run.host.runtime):
                raise
            return self._failure(run, method, unwrap_group(error))

    def _failure(self, run: TaskRun, method: str, error: BaseException) -> TaskOutcome:
        from_peer = run.scope is not None and run.scope._is_from_peer(error)
        answer = None if from_peer else intended_answer(error)
        if answer is None and not run.is_over:
            run.report(f"the task of {method} failed", error)
        return TaskOutcome(error=answer or internal_error())

    def _finish(self, run: TaskRun, outcome: TaskOutcome) -> None:
        """Finish a task. Does nothing if it has ended: a late outcome is ignored (TASK-25)."""
        if run.is_over:
            return
        now = self._keeping.now()
        try:
            self._machine.finish(run.id, outcome, now=now)
        except LocalProtocolError as error:
            run.report("the outcome of a task cannot be sent", error)
            self._machine.finish(run.id, TaskOutcome(error=internal_error()), now=now)
        self._keeping.pump()

    # Events of the machine

    def _act(self, event: TaskEvent) -> None:
        if isinstance(event, TaskReplied):
            event.cookie.set(event)
        elif isinstance(event, TaskChanged):
            self._on_change(event)
        elif isinstance(event, TaskOrphaned):
            self._adopt(event)
        elif isinstance(event, TaskTaken):
            self._stop(event.id)
            self._tell_watchers(event.id)
            if event.reason is not None:
                message = f"the task of {event.operation} was stopped here"
                self._report(f"{message}: {event.reason} ({event.id})", None, kind=message)
        elif isinstance(event, TasksLapsed):
            self._on_lapse(event.ids)
        elif isinstance(event, TaskLeased):
            self._on_lease(event.id)
        elif isinstance(event, TaskAnswered):
            self._runs[event.id].have_answer(event.key, event.answer)
        elif isinstance(event, TaskStoreFailed):
            self._report("tasks cannot be stored", event.error)

    def _on_change(self, event: TaskChanged) -> None:
        task = event.task
        run = self._runs.get(task.task_id)
        if event.change == "expired" or task.status in FINAL:
            self._stop(task.task_id)
        self._tell_watchers(task.task_id)
        if self.options.notify and event.change == "status" and run is not None and run.session is not None:
            with suppress(LocalProtocolError, NoBackChannel):
                run.session.notify(_flat(TaskStatusNotification, task))
        if self.options.on_change is not None:
            try:
                self.options.on_change(event)
            except BaseException as error:
                self._report("the callback for changes of tasks failed", failure_of(error))

    def _stop(self, id: str) -> None:
        """Stop the work of a task, if it runs here."""
        self._orphans.pop(id, None)
        run = self._runs.pop(id, None)
        if run is not None:
            run.stop()

    def _on_lapse(self, ids: tuple[str, ...]) -> None:
        """Act on leases that may have ended: other processes may take over what runs here."""
        stops = self.options.on_lapse == "cancel"
        for id in self._runs.keys() & set(ids):
            if stops:
                self._stop(id)
            else:
                self._runs[id].is_leased = False
        fate = "are stopped" if stops else "run on"
        cause = "the store cannot be reached, and other processes may take them over"
        self._report(f"tasks whose leases have ended {fate}: {len(ids)}; {cause}", None, kind="lapsed")

    def _on_lease(self, id: str) -> None:
        """Go on with a task whose lease had ended, and that no other process has taken over."""
        if id in self._runs:
            self._runs[id].is_leased = True
        else:
            self._machine.orphan(id, "Stopped while the store of tasks could not be reached", self._keeping.now())

    def _report(self, message: str, error: BaseException | None, kind: str | None = None) -> None:
        host = self._keeping.host
        if host is not None:
            # A store that is away fails for each effect, and each renewal.
            self.fault_reports.report(host, message, error, kind)

    # Places

    def _adopt(self, event: TaskOrphaned) -> None:
        """Resume an interrupted task now, or when the next host is attached."""
        host = self._host or next(iter(self._hosts), None)
        if host is None:
            self._orphans[event.id] = event
            return
        state, session = self._hosts[host]
        if session is not None and self._owner_of(session) != event.owner:
            session = None
        account = ("principal", event.owner)
        run = TaskRun(self, event.id, event.owner, host, session, None, state, account=account, is_resumed=True)
        resumed = None if self._resume is None else self._resume(event, run)
        if resumed is None:
            self._machine.lose(event.id, "The server does not know how to go on with it", now=self._keeping.now())
        else:
            self._start(run, *resumed)

    def _host_for(self, scope: RequestScope) -> tuple[TaskHost, Any, Session]:
        """Return the host for the task of a request, the state there, and the session of the request."""
        session = scope.session
        host = self._host or session.driver
        if host not in self._hosts:
            raise NoBackChannel("the session is over: no task can begin in it")
        return host, self._hosts[host][0], session

    def _owner(self, scope: RequestScope) -> Owner:
        return self._bound(scope.peer.principal)

    def _owner_of(self, session: Session) -> Owner:
        return self._bound(getattr(session.connection, "principal", None))

    def _bound(self, principal: Any) -> Owner:
        if self.options.owner is not None:
            return self.options.owner(principal)
        # Of a grant only the identity counts: its scopes and claims change with each token.
        owner: Owner = principal.key if isinstance(principal, Grant) else principal
        return owner


def _encoded_result(result: Any, method: str) -> dict[str, Any]:
    """Return a result as it would have been sent. Raises TypeError or LocalProtocolError if it is invalid."""
    wanted = METHODS[method].result_type
    if not isinstance(result, wanted):
        raise TypeError(f"the result of {method} must be a {wanted.__name__}, not a {type(result).__name__}")
    return encode(_CODEC, result)


def _value(reply: TaskReplied) -> Any:
    """Return the value of a reply, or raise its error."""
    if reply.error is not None:
        raise reply.error
    return reply.value


def _flat(kind: Callable[..., T], task: Task) -> T:
    """Return a task as the members of a message (TASK-19)."""
    return kind(
        task.task_id,
        task.status,
        task.created_at,
        task.last_updated_at,
        task.ttl,
        task.status_message,
        task.poll_interval,
    )


def _token(scope: RequestScope) -> int | str | None:
    """Return the progress token of a request, ``None`` if it has none."""
    token: int | str | None = scope.meta.get(META_PROGRESS_TOKEN)
    return token


_CALL = "tools/call"


class ToolTasks(TaskReceiver):
    """The tasks of a server: ``Server.tasks``."""

    def __init__(
        self,
        tools: Tools,
        call: Handler,
        work: Handler,
        options: TaskOptions,
        *,
        page_size: int | None,
        thread_pool: ThreadPool,
        new_context: Callable[[TaskRun, Any, RequestReceived], RequestScope],
        settle: Settle,
    ) -> None:
        """``call`` serves a plain tools/call; ``work`` runs one that was started as a task.

        ``new_context`` makes the context of a task. ``settle`` enters the memory that tasks take into a ledger.
        """
        super().__init__(options, thread_pool, page_size=page_size, resume=self._work_again, settle=settle)
        self.handlers[_CALL] = self._call
        extension: dict[str, Handler] = {
            "tasks/get": self._get_stateless,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel_stateless,
        }
        for method, handler in extension.items():
            self.handlers[method] = partial(self._serve_in_era, method, handler, self.handlers.get(method))
        self._tools = tools
        self._plain_call = call
        self._work_call = work
        self._new_context = new_context

    def capability(self, *, told_apart: bool) -> ServerTasksCapability:
        """Return the capability to declare (TASK-01). ``told_apart``: no client sees another's tasks (TASK-35)."""
        lists = told_apart if self.options.list is None else self.options.list
        requests = ServerTaskRequestsCapability(ToolTasksCapability({})) if self.takes_calls else None
        return ServerTasksCapability({} if lists else None, {}, requests)

    @property
    def takes_calls(self) -> bool:
        """Whether calls of some tool may be tasks."""
        return any(_support(tool) != "forbidden" for tool in self._tools.everything())

    def _serve_in_era(
        self, method: str, stateless: Handler, handshake: Handler | None, scope: RequestScope, request: Any
    ) -> Any:
        """Serve a request about tasks by the handler of the client's era."""
        if scope.peer.era is Era.STATELESS:
            return stateless(scope, request)
        if handshake is None or scope.peer.revision is not REV_2025_11_25:
            raise RequestError(ErrorCode.METHOD_NOT_FOUND, f"Method not found: {method}")
        return handshake(scope, request)

    # Stateless clients

    def _call_stateless(self, scope: RequestScope, request: CallToolRequest) -> Any:
        """Serve ``tools/call``: as a task if the tool and the client want that (XTASK-01, XTASK-02).

        ``params.task`` is another revision's, and ignored (XTASK-12).
        """
        tool = self._tools.find(request.name, scope)
        support = "forbidden" if tool is None else _support(tool)
        if support == "required":
            check_takes_tasks(scope.peer.capabilities)
        if tool is None or support == "forbidden" or not declares(scope.peer.capabilities, _CAPABILITY):
            return self._plain_call(scope, request)
        if tool.becomes_task:
            return self._until_task(scope, request, tool)
        return self._as_task(scope, request, tool, must=support == "required")

    async def _until_task(self, scope: Any, request: CallToolRequest, tool: FunctionTool) -> Any:
        """Run the tool as a plain call until it asks to become a task (XTASK-15)."""
        flow = scope._own_flow
        flow.may_become_task = True
        try:
            result = self._plain_call(scope, request)
            return await result if is_awaitable(result) else result
        except (Leave, BaseExceptionGroup) as error:
            if not flow.becomes_task or not isinstance(without_leaving(error), Leave):
                raise
        return await self._as_task(scope, request, tool, must=True)

    async def _as_task(self, scope: RequestScope, request: CallToolRequest, tool: FunctionTool, *, must: bool) -> Any:
        """Run the tool as a task. If it may be a plain call and ends soon, return its result instead."""
        answer = await self._begin_stateless(scope, request, tool, must=must)
        if isinstance(answer, CreatedTask):
            return answer
        return _STATELESS_CODEC.decode(result_of(answer), CallToolResult)

    async def _get_stateless(self, scope: RequestScope, request: CustomRequest) -> Mapping[str, Any]:
        look = await self.look(scope, _extension_params(scope, request, TaskReference).task_id)
        return encode(_STATELESS_CODEC, DetailedTask(**_members_by_status(look)))

    async def _update(self, scope: RequestScope, request: CustomRequest) -> Mapping[str, Any]:
        update = _extension_params(scope, request, TaskUpdate)
        look = await self.look(scope, update.task_id, is_whole=False)
        for key, question in look.inputs.items():
            if key in update.input_responses:
                _check_answer(key, question, update.input_responses[key])
        runtime = scope.session.driver.runtime
        await self._keeping.answer(runtime, self._owner(scope), update.task_id, update.input_responses)
        return {}

    async def _cancel_stateless(self, scope: RequestScope, request: CustomRequest) -> Mapping[str, Any]:
        id = _extension_params(scope, request, TaskReference).task_id
        try:
            await self.cancel(scope, id)
        except RequestError as error:
            if "status" not in error.data:
                raise
            # It is over, which needs no more (XTASK-10).
        return {}

    async def _begin_stateless(
        self, scope: RequestScope, request: CallToolRequest, tool: FunctionTool, *, must: bool
    ) -> CreatedTask | TaskOutcome:
        """Turn a stateless client's call into a task, and return it.

        Unless it ``must`` be a task, wait ``TaskOptions.task_after`` seconds for the work to be over, or to ask
        something: if it is over, there is no task, and its outcome is returned. Raises RequestError beyond the limits.
        """
        saved = _call_to_save(scope) if tool.resumes else None
        run, task = await self._create(scope, request, None, saved)
        run.session = None  # whose messages would be of another era, or too late
        work = self._work(request, scope.session, scope._event, scope)
        if must:
            self._start(run, work, scope.method)
            return created_task(task)
        ended = self._keeping.expect(run.host.runtime, run.id)
        run.is_asking = partial(ended.set, None)
        timer = run.host.runtime.call_later(self.options.task_after, run.is_asking)
        self._start(run, work, scope.method)
        try:
            outcome: TaskOutcome | None = await ended.wait()
        except BaseException:
            self._withdraw(run)  # the requestor will never learn its id
            raise
        finally:
            timer.cancel()
            self._keeping.forget(run.id, ended)
        if outcome is None:
            return created_task(task)
        self._withdraw(run)
        return outcome

    def _withdraw(self, run: TaskRun) -> None:
        self._stop(run.id)
        self._machine.withdraw(run.id)
        self._keeping.pump()

    def _call(self, scope: RequestScope, request: CallToolRequest) -> Any:
        """Serve ``tools/call``: as a task if the request asks for one, otherwise as usual (TASK-07)."""
        if scope.peer.era is Era.STATELESS:
            return self._call_stateless(scope, request)
        tool = self._tools.find(request.name, scope)
        support = "optional" if tool is None else _support(tool)
        if tool is None or not self.wants_task(scope, request):
            if support == "required":
                raise RequestError(ErrorCode.METHOD_NOT_FOUND, f"The tool {request.name} only runs as a task")
            return self._plain_call(scope, request)
        if support == "forbidden":
            raise RequestError(ErrorCode.METHOD_NOT_FOUND, f"The tool {request.name} does not run as a task")
        saved = _call_to_save(scope) if tool.resumes else None
        work = self._work(request, scope.session, scope._event)
        return self.begin(scope, request, work, saved=saved, immediate=tool.immediate_response)

    def _work(self, request: CallToolRequest, session: Any, event: RequestReceived, asking_scope: Any = None) -> Work:
        """Return the work of a call. ``asking_scope`` is that of a plain call that asked, with the answers so far."""

        def work(run: TaskRun) -> Any:
            scope: Any = self._new_context(run, session, event)
            run.scope = scope
            if asking_scope is not None:
                scope._flow = asking_scope._own_flow.again()
            return self._work_call(scope, request)

        return work

    def _work_again(self, orphan: TaskOrphaned, run: TaskRun) -> tuple[Work, str] | None:
        """Return the work of an interrupted call: the same function with the same arguments."""
        try:
            params = orphan.request["params"]
            # Records of earlier versions name no revision.
            revision = Revision.parse(orphan.request.get("revision", REV_2025_11_25.name)) or REV_2025_11_25
            own = codec(revision)
            request = own.decode(params, CallToolRequest)
            context = RequestContext(
                revision.era,
                revision,
                own.decode(orphan.request["capabilities"], ClientCapabilities),
                own.decode(orphan.request["info"], Implementation),
                None,
                orphan.owner,
                None,
            )
        except (InvalidMessage, KeyError):
            return None
        tool = self._tools.find(request.name)
        if tool is None or not tool.resumes:
            return None
        raw = {"method": _CALL, "params": params}
        event = RequestReceived(IncomingId(0), request, context, raw, False)
        return self._work(request, run.session or DisconnectedSession(), event), _CALL


def _support(tool: Any) -> str:
    execution = tool.description.execution
    return "forbidden" if execution is None else execution.task_support or "forbidden"


def _call_to_save(scope: RequestScope) -> dict[str, Any]:
    """Return the data with which a call can run again, as JSON."""
    event = scope._event
    own = codec(event.context.revision)
    return {
        "params": event.raw["params"],
        "capabilities": encode(own, event.context.capabilities),
        "info": encode(own, event.context.info),
        "revision": event.context.revision.name,
    }


_METHODS: Final = ("sampling/createMessage", "elicitation/create")


def client_tasks_capability(options: TaskOptions, *, sampling: bool, elicitation: bool) -> ClientTasksCapability:
    """Return the tasks capability of a client. ``tasks/list`` is safe: a client has only one server."""
    requests = ClientTaskRequestsCapability(
        SamplingTasksCapability({}) if sampling else None,
        ElicitationTasksCapability({}) if elicitation else None,
    )
    return ClientTasksCapability(None if options.list is False else {}, {}, requests)


class ClientTasks(TaskReceiver):
    """The tasks of a client."""

    def __init__(
        self,
        options: TaskOptions,
        thread_pool: ThreadPool,
        handlers: Mapping[str, Handler],
        wrap: Callable[[Handler], Handler],
        new_scope: Callable[[TaskRun, Session, RequestReceived], RequestScope],
    ) -> None:
        """``handlers`` serve requests that are not tasks; ``wrap`` puts middleware around the work of those that are.

        ``new_scope`` makes the scope of a task.
        """
        super().__init__(options, thread_pool)
        for method in _METHODS:
            if method in handlers:
                self.handlers[method] = partial(self._serve, handlers[method])
        self._wrap = wrap
        self._new_scope = new_scope

    def _serve(self, handler: Handler, scope: RequestScope, request: Any) -> Any:
        """Serve a request: as a task if it asks for one."""
        if not self.wants_task(scope, request):
            return handler(scope, request)

        def work(run: TaskRun) -> Any:
            run.scope = self._new_scope(run, scope.session, scope._event)
            return self._wrap(handler)(run.scope, request)

        return self.begin(scope, request, work)
