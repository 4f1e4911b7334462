"""Requests of an ASGI application, and what lives in them: tasks, and the timer that watches all deadlines."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from math import inf
from typing import Any

from mcpio.app.runtime import OneShot, Runtime, Spawned
from mcpio.engine.timers import Timers
from mcpio.http.server.lifecycle import Lifecycle, State

__all__ = ["AsgiRequest", "DeadlineWatch", "RequestTask", "ScheduledCall", "current_request"]


class _NoTimeouts:
    """The ASGI server limits how long its clients may take."""

    head = body = idle = None
    rate = inf


_NO_TIMEOUTS = _NoTimeouts()


class AsgiRequest:
    """One call of the application, or the lifespan around all of them: tasks that begin in it live in it.

    Tasks need a task group of the event loop. Requests that are answered at once begin none, so a request has no group
    until ``open`` gives it one.
    """

    __slots__ = ("_is_ready", "_life", "_waiter", "exchange", "is_head", "is_whole", "queue", "running", "runtime")

    exchange: int
    """The machine's name for its exchange."""
    is_head: bool
    """Whether the response has no body, as for HEAD."""
    is_whole: bool
    """Whether the machine got all of it in one call."""
    queue: list[RequestTask]
    """The tasks that wait for ``open``."""
    running: dict[RequestTask, None]
    """The tasks that are not over."""
    runtime: Runtime | None
    """The event loop, with the request's own task group."""

    def __init__(self, exchange: int, *, is_head: bool = False) -> None:
        self.exchange = exchange
        self.is_head = is_head
        self.is_whole = False
        self._life: Lifecycle | None = None
        self.queue = []
        self.running = {}
        self.runtime = None
        self._is_ready = False
        self._waiter: OneShot | None = None

    @property
    def life(self) -> Lifecycle:
        """The state of the exchange. ``SEND_HEAD`` is applied when the machine has output of the response."""
        # A request that is answered within the call that brings it has none.
        if self._life is None:
            state = State.ANSWER if self.is_whole else State.BODY
            self._life = Lifecycle(_NO_TIMEOUTS, 0.0, state=state, is_last=True)
        return self._life

    def add(self, task: RequestTask) -> None:
        """Run a task in this request."""
        if self.runtime is None:
            self.queue.append(task)
        else:
            task.start(self, self.runtime)

    def open(self, runtime: Runtime) -> None:
        """Start the tasks that wait, in the group of ``runtime``, and further ones at once."""
        self.runtime = runtime
        queue, self.queue = self.queue, []
        for task in queue:
            task.start(self, runtime)

    def wake(self) -> None:
        """End the present wait, or the next one."""
        self._is_ready = True
        if self._waiter is not None:
            self._waiter.set(None)

    async def wait(self, runtime: Runtime) -> None:
        """Wait until ``wake`` is called, or return at once if it was since the last wait."""
        if not self._is_ready:
            self._waiter = runtime.one_shot()
            try:
                await self._waiter.wait()
            finally:
                self._waiter = None
        self._is_ready = False


current_request: ContextVar[AsgiRequest | None] = ContextVar("mcpio.asgi.current_request", default=None)
"""The request in which the present code runs."""


class RequestTask:
    """A coroutine that runs in a request, as soon as the request has a task group."""

    __slots__ = ("_coroutine", "_is_cancelled", "_task", "request")

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._coroutine = coroutine
        self._is_cancelled = False
        self._task: Spawned | None = None
        self.request: AsgiRequest | None = None

    def cancel(self) -> None:
        """Cancel the coroutine at its next wait."""
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()

    def start(self, request: AsgiRequest, runtime: Runtime) -> None:
        """Run the coroutine in a request."""
        self.request = request
        request.running[self] = None
        self._task = runtime.spawn(self._run(request))
        if self._is_cancelled:
            self._task.cancel()

    async def _run(self, request: AsgiRequest) -> None:
        # The context was copied from the task that spawned this one, which may belong to another request.
        current_request.set(request)
        try:
            await self._coroutine
        finally:
            del request.running[self]
            if not request.running:
                request.wake()


class DeadlineWatch:
    """The deadlines of an application. One open request runs the timer for all.

    An application without a lifespan has no task between requests: with no request open, deadlines are checked when
    the next one comes.
    """

    def __init__(self, now: Callable[[], float], expire: Callable[[], None]) -> None:
        """``now`` returns the time; ``expire`` lets the deadlines of the host expire."""
        self._now = now
        self._expire = expire
        self._watching: dict[AsgiRequest, None] = {}
        self._deadline: float | None = None
        self._timers: Timers[int] = Timers()
        self._calls: dict[int, Callable[[], None]] = {}
        self._last = 0
        # The request that runs the timer, the time that it sleeps until, and the task that sleeps.
        self._sleeper: tuple[AsgiRequest, float, Spawned] | None = None

    @property
    def any_request(self) -> AsgiRequest | None:
        """A request that runs the timer, or could."""
        return next(iter(self._watching), None)

    def begin(self, request: AsgiRequest) -> None:
        """Run the timer in an open request, unless another runs it."""
        self._watching[request] = None
        self._arm()

    def end(self, request: AsgiRequest) -> None:
        """Hand the timer over to another open request."""
        del self._watching[request]
        if self._sleeper is not None and self._sleeper[0] is request:
            self._sleeper[2].cancel()
            self._sleeper = None
            self._arm()

    def is_due(self, now: float) -> bool:
        """Whether a deadline has passed."""
        if self._deadline is not None and self._deadline <= now:
            return True
        due = self._timers.next()
        return due is not None and due <= now

    def check(self) -> None:
        """Handle the expired deadlines."""
        self._deadline = None  # the host reports its next one, if it has any
        self._expire()
        for number in self._timers.pop_expired(self._now()):
            function = self._calls.pop(number, None)
            if function is not None:
                function()
        self._arm()

    def set_host_deadline(self, deadline: float | None) -> None:
        """Replace the deadline of the host."""
        self._deadline = deadline
        self._arm()

    def call_at(self, when: float, function: Callable[[], None]) -> ScheduledCall:
        """Call a function at a time, unless the returned handle is cancelled before."""
        self._last += 1
        self._timers.set(self._last, when)
        self._calls[self._last] = function
        self._arm()
        return ScheduledCall(self, self._last)

    def cancel(self, number: int) -> None:
        """Cancel a scheduled call."""
        self._timers.clear(number)
        self._calls.pop(number, None)

    def _arm(self) -> None:
        deadline = min((when for when in (self._deadline, self._timers.next()) if when is not None), default=None)
        # A task that sleeps until an earlier time wakes up for nothing, which costs less than to replace it.
        if deadline is None or (self._sleeper is not None and self._sleeper[1] <= deadline):
            return
        if self._sleeper is not None:
            self._sleeper[2].cancel()
            self._sleeper = None
        request = self.any_request
        if request is not None and request.runtime is not None:
            sleeper = request.runtime.spawn(self._sleep(request.runtime, deadline))
            self._sleeper = (request, deadline, sleeper)

    async def _sleep(self, runtime: Runtime, until: float) -> None:
        # A microsecond more: rounding could wake it just before the deadline, to sleep once more.
        await runtime.sleep(until - self._now() + 1e-6)
        self._sleeper = None  # before ``check`` arms the next one, which would cancel this task
        self.check()


class ScheduledCall:
    """A function that ``DeadlineWatch.call_at`` is to call."""

    __slots__ = ("_number", "_watch")

    def __init__(self, watch: DeadlineWatch, number: int) -> None:
        self._watch = watch
        self._number = number

    def cancel(self) -> None:
        """Cancel the call, unless it was made."""
        self._watch.cancel(self._number)
