"""Trio as the application layer sees it."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from math import inf
from types import FunctionType
from typing import Any, TypeVar

import trio
from trio.lowlevel import disable_ki_protection, enable_ki_protection

from mcpio import _drivers
from mcpio._drivers import contain, report
from mcpio._drivers.event_loop import Timed
from mcpio.app.runtime import StallDetector
from mcpio.engine.channel import Timers
from mcpio.errors import NoBackChannel

# ----------------------------------------------------------------------------------------------------------- interrupts
# The places where a Ctrl-C may be delivered.
# Python raises ``KeyboardInterrupt`` between any two instructions of the main thread. In the middle of an engine or a
# driver it would leave a state from which the session cannot end, and a program that waits for that end would hang.
# There, and so in all tasks, Trio holds the interrupt back, and raises it at the next checkpoint of the main task. In
# functions of users, which may run for long, it is raised at once.

K = TypeVar("K", bound=type)

interruptible = disable_ki_protection
"""Allow a Ctrl-C to be raised in a function, and in the functions that it calls."""


def uninterruptible(kind: K) -> K:
    """Defer a Ctrl-C in the methods of a class, and in the functions that they call. A class decorator."""
    for member in vars(kind).values():
        if isinstance(member, FunctionType):
            enable_ki_protection(member)
    return kind


# ------------------------------------------------------------------------------------------------------------ nurseries
# One exception in place of the groups that nurseries raise (P10), and shielded time to clean up.


def ungrouped() -> AbstractContextManager[None]:
    """Raise one exception in place of a nursery's group. See ``mcpio._drivers.unwrapped``."""
    return _drivers.unwrapped(trio.Cancelled)


@asynccontextmanager
async def last_moment(seconds: float | None) -> AsyncIterator[None]:
    """Shielded block of at most that many seconds; ``None`` for no limit."""
    with trio.CancelScope(shield=True, deadline=inf if seconds is None else trio.current_time() + seconds):
        yield


# -------------------------------------------------------------------------------------------------------------- runtime
# Trio's implementation of ``mcpio.app.runtime``.

T = TypeVar("T")

_UNSET: Any = object()


def check_in_trio(who: str) -> None:
    """Raise RuntimeError outside a Trio run, and say what to use on asyncio."""
    try:
        trio.lowlevel.current_trio_token()
    except RuntimeError:
        instead = "on asyncio, take mcpio.asyncio, or for a server over HTTP mcpio.asgi"
        raise RuntimeError(f"{who} of mcpio.trio need Trio, as in trio.run(main); {instead}") from None


@uninterruptible
class TrioTask:
    """A coroutine under its own cancel scope."""

    __slots__ = ("_coroutine", "_scope")

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._coroutine = coroutine
        self._scope = trio.CancelScope()

    def cancel(self) -> None:
        """Ask it to stop at its next checkpoint."""
        self._scope.cancel()

    async def run(self) -> None:
        """Run the coroutine. Never raises a failure into the nursery, which all handlers share.

        The failure of a handler becomes its answer. Other failures are reported: of answering, and of handlers that
        failed in their own nursery while they were being cancelled. SystemExit and KeyboardInterrupt propagate.
        """
        try:
            with self._scope:
                await self._coroutine
        except BaseException as error:
            contain(error, "the task of a handler failed", report, trio.Cancelled)


@uninterruptible
class TrioOneShot:
    """A value for one waiting task; cheaper than a ``trio.Event``, which keeps a set of tasks."""

    __slots__ = ("_task", "_value")

    def __init__(self, thread: int) -> None:
        # A task of another run would never wake, and its request would be written between the steps of this one.
        if threading.get_ident() != thread:
            instead = "call it by trio.from_thread.run(…, trio_token=token)"
            raise RuntimeError(f"this client or session belongs to another event loop: {instead}")
        self._task: trio.lowlevel.Task | None = None
        self._value: Any = _UNSET

    def set(self, value: Any) -> None:
        """Set the value and wake the waiting task."""
        if self._value is not _UNSET:
            return
        self._value = value
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    async def wait(self) -> Any:
        """Wait for the value."""
        if self._value is _UNSET:
            self._task = trio.lowlevel.current_task()

            def abort(_: object) -> trio.lowlevel.Abort:
                self._task = None
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(abort)
        else:
            await trio.lowlevel.checkpoint()
        return self._value


class TrioRuntime:
    """Runs tasks in a nursery that outlives them. Make it inside ``trio.run``."""

    __slots__ = ("_limiter", "_nursery", "_thread", "_token", "one_shot", "stalls")

    cancellation: type[BaseException] = trio.Cancelled
    """The exception of a cancelled task."""

    def __init__(self, nursery: trio.Nursery | None) -> None:
        """Without a nursery, no task can be spawned."""
        self._nursery = nursery
        self.stalls = StallDetector(_drivers.queued_for_a_processor, trio.lowlevel.current_clock().current_time)
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.get_ident()
        self.one_shot: Callable[[], TrioOneShot] = partial(TrioOneShot, self._thread)  # no call more than the class
        # With Trio's own limiter, 40 abandoned calls would hold up those of all sessions.
        self._limiter = trio.CapacityLimiter(math.inf)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> TrioTask:
        """Run a coroutine as a task."""
        if self._nursery is None:
            raise RuntimeError("there is no nursery for a task to run in")
        task = TrioTask(coroutine)
        self._nursery.start_soon(task.run)
        return task

    async def sleep(self, seconds: float) -> None:
        """Wait for that many seconds."""
        await trio.sleep(max(0, seconds))

    def call_later(self, seconds: float, function: Callable[[], None]) -> TrioTask:
        """Call a function after that many seconds."""

        async def wait() -> None:
            await self.sleep(seconds)
            function()

        return self.spawn(wait())

    def entropy(self, size: int) -> bytes:
        """Return random bytes from the operating system."""
        return os.urandom(size)

    def wall_clock(self) -> float:
        """Return the time of day."""
        return time.time()

    def to_thread(self, function: Callable[[], T]) -> Awaitable[T]:
        """Run a blocking function in a thread; a cancelled wait abandons it."""
        return trio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=self._limiter)

    def from_thread(self, function: Callable[[], T]) -> T:
        """Run a function in Trio's thread, from any thread. Raises NoBackChannel after the run."""
        if threading.get_ident() == self._thread:
            return function()
        try:
            return trio.from_thread.run_sync(function, trio_token=self._token)
        except trio.RunFinishedError:
            raise NoBackChannel("the event loop has ended") from None

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run a function at the loop's next turn."""
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(_run_contained, function)


def _run_contained(function: Callable[[], None]) -> None:
    """Call a function, and log its exception, which would end the whole Trio run."""
    try:
        function()
    except BaseException as error:
        contain(error, "a call from elsewhere failed", report)


# ----------------------------------------------------------------------------------------------------------- timekeeper
# A flag for one waiting task, and the task that watches the deadlines of all sessions.


@uninterruptible
class Signal:
    """A flag that one task waits for; waiting lowers it. Cheaper than a new ``trio.Event`` for each round."""

    __slots__ = ("_raised", "_task")

    def __init__(self) -> None:
        self._raised = False
        self._task: trio.lowlevel.Task | None = None

    def set(self) -> None:
        """Raise the flag."""
        if self._task is None:
            self._raised = True
        else:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    async def wait(self) -> None:
        """Wait until the flag is up, and lower it."""
        if self._raised:
            self._raised = False
            await trio.lowlevel.checkpoint()
            return
        self._task = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)


class Timekeeper:
    """Watches the deadlines of many sessions. Never touches a transport, so no peer can hold it up."""

    def __init__(self) -> None:
        self._timers = Timers()
        self._timed: dict[int, Timed] = {}
        self._sooner = Signal()
        self._sleeping_until = inf
        self._stopped = trio.CancelScope()

    def arm(self, timed: Timed, deadline: float | None) -> None:
        """Set the deadline of ``timed``, in place of an earlier one; ``None`` for none."""
        key = id(timed)
        if deadline is None:
            if self._timed.pop(key, None) is not None:
                self._timers.clear(key)
        elif self._timers.get(key) != deadline:
            self._timers.set(key, deadline)
            self._timed[key] = timed
            # The sleeper wakes up at the earliest deadline that was ever set, even if that was cleared since, as it is
            # by an answer that comes in time. To wake it up for each change would cost more.
            if deadline < self._sleeping_until:
                self._sleeping_until = deadline
                self._sooner.set()

    def stop(self) -> None:
        """End ``run``."""
        self._stopped.cancel()

    async def run(self) -> None:
        """Watch until cancelled or stopped."""
        with self._stopped:
            while True:
                with trio.move_on_at(self._sleeping_until):
                    await self._sooner.wait()
                now = trio.current_time()
                if now < self._sleeping_until:
                    continue
                # Collect all of them first: acting on one may set or clear the deadline of the next.
                for timed in [self._timed.pop(key) for key in self._timers.pop_expired(now)]:
                    try:
                        timed.handle_timeout()
                    except BaseException as error:
                        # The other sessions still need their deadlines.
                        contain(error, "a deadline could not be acted on", report)
                deadline = self._timers.next()
                self._sleeping_until = inf if deadline is None else deadline
