"""The work of one task: it outlives the request that began it, and perhaps the session."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import attrs

from mcpio.app.contracts import HandlerScope, PeerSession
from mcpio.engine.table import Phase
from mcpio.errors import ConnectionLost, NoBackChannel
from mcpio.types.lifecycle import ProgressNotification
from mcpio.types.meta import META_RELATED_TASK

if TYPE_CHECKING:
    from mcpio.app.reporting import FaultReports
    from mcpio.app.runtime import OneShot, Runtime, Spawned
    from mcpio.app.thread_pool import ThreadPool
    from mcpio.engine.task_records import Owner

__all__ = ["DisconnectedSession", "TaskHost", "TaskRun", "related"]

T = TypeVar("T")


def related(id: str) -> dict[str, Any]:
    """Return the ``_meta`` of messages that belong to a task (TASK-28)."""
    return {META_RELATED_TASK: {"taskId": id}}


class TaskHost(Protocol):
    """Where tasks run: the driver of a session, or a host that outlives all sessions."""

    @property
    def runtime(self) -> Runtime:
        """The event loop."""

    def now(self) -> float:
        """Return the time in seconds, on a clock that all hosts of one server share."""

    def report(self, message: str, error: BaseException | None) -> None:
        """Report a failure to the operator, with its exception."""


class TaskKeeper(Protocol):
    """The receiver of tasks, as a running one needs it."""

    @property
    def fault_reports(self) -> FaultReports:
        """Reports the failures of tasks to the operator."""

    @property
    def thread_pool(self) -> ThreadPool:
        """The threads of blocking handlers."""

    def say(self, run: TaskRun, message: str) -> None:
        """Set the status message of a task."""

    def note_question(self, run: TaskRun) -> None:
        """Record that the work waits for its requestor."""

    def note_answer(self, run: TaskRun) -> None:
        """Record that the work no longer waits."""

    def open_question(self, run: TaskRun, key: str, question: dict[str, Any]) -> str:
        """Record a question for a stateless requestor, and return its key in the task."""

    def close_question(self, run: TaskRun, key: str) -> None:
        """Record that the work no longer waits for an answer."""


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
        receiver: TaskKeeper,
        id: str,
        owner: Owner,
        host: TaskHost,
        session: PeerSession | None,
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
        self.session: PeerSession | None = session
        self.state: Any = state
        self.token: int | str | None = token
        self.handle: Spawned | None = None
        self.scope: HandlerScope | None = None
        self.waiting: list[HandlerScope] = []
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
        self._receiver.say(self, message)

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

    async def ask(self, way: Callable[[PeerSession], Callable[..., Any]], request: Any, **call: Any) -> Any:
        """Send a request to the requestor, once it waits for the result: earlier it cannot be reached (TASK-16).

        ``way`` returns the call that sends the request in a session. If the connection ends before the answer, the
        request is sent again to the next one that waits (TASK-17).
        """
        request = attrs.evolve(request, meta={**request.meta, **related(self.id)})
        self._receiver.note_question(self)
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
            self._receiver.note_answer(self)

    async def put_question(self, key: str, question: dict[str, Any]) -> Any:
        """Keep a question in the task until its stateless requestor answers, and return the raw answer."""
        key = self._receiver.open_question(self, key, question)
        answered = self._open[key] = self.host.runtime.one_shot()
        self.is_asking()
        try:
            return await answered.wait()
        finally:
            del self._open[key]
            self._receiver.close_question(self, key)

    # For the receiver

    def have_answer(self, key: str, answer: Any) -> None:
        """Pass on the answer to an open question."""
        self._open[key].set(answer)

    def join(self, scope: HandlerScope) -> None:
        """Record that a ``tasks/result`` request waits: requests of the work may go to its session."""
        self.waiting.append(scope)
        # All of them: one waiting request carries any number of the task's own.
        wanting, self._wanting = self._wanting, []
        for each in wanting:
            each.set(None)

    def leave(self, scope: HandlerScope) -> None:
        """Record that the work no longer waits. Further calls do nothing."""
        self.waiting = [each for each in self.waiting if each is not scope]

    def stop(self) -> None:
        """Cancel the work at its next wait."""
        self.is_over = True
        if self.scope is not None:
            self.scope.driving.abandon()
        if self.handle is not None:
            self.handle.cancel()

    async def _route(self) -> HandlerScope:
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


def _is_ending(session: PeerSession) -> bool:
    return session.connection.phase in (Phase.CLOSING, Phase.CLOSED)
