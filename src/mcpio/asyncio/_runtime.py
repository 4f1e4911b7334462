"""asyncio as the application layer sees it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from mcpio import _drivers
from mcpio.app.runtime import StallDetector
from mcpio.errors import NoBackChannel

# -------------------------------------------------------------------------------------------------------------- runtime
# asyncio's implementation of ``mcpio.app.runtime``.

T = TypeVar("T")


class AsyncioTask:
    """A coroutine that runs as a task."""

    __slots__ = ("_steps", "_task")

    def __init__(self, coroutine: Coroutine[Any, Any, None], runtime: AsyncioRuntime, group: asyncio.TaskGroup) -> None:
        self._steps = _Starting(coroutine, runtime)
        self._task = group.create_task(self._steps)
        self._steps.is_due = True

    def cancel(self) -> None:
        """Ask it to stop at its next wait."""
        if not self._steps.is_cancelled:
            self._steps.is_cancelled = True
            self._task.cancel()

    def when_done(self, function: Callable[[], object]) -> None:
        """Call a function when the task is done."""
        self._task.add_done_callback(lambda _: function())


class _Starting(Coroutine[Any, Any, None]):
    """A coroutine that starts at a later turn, even if its task was cancelled before, and stops at its first wait.

    Otherwise an eager task factory would run it before ``spawn`` returns, and its spawner could not record it first. A
    cancelled one would never be awaited, and warn of that.
    """

    __slots__ = ("_coroutine", "_has_started", "_runtime", "is_cancelled", "is_due")

    is_due: bool
    """Whether its task was made, and it may start."""
    is_cancelled: bool
    """Whether its handle was cancelled."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], runtime: AsyncioRuntime) -> None:
        self._coroutine = coroutine
        self._runtime = runtime
        self._has_started = self.is_due = self.is_cancelled = False

    def is_stopping(self) -> bool:
        """Whether its handle, its group or the whole loop ends it, and not the program that runs in it."""
        return self.is_cancelled or self._runtime.is_ending()

    def send(self, value: Any) -> Any:
        if not self.is_due:
            return None  # an eager step: what yields None runs again at the next turn
        self._has_started = True
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        task = asyncio.current_task()
        if self._has_started or task is None:
            return self._coroutine.throw(*error)
        task.uncancel()
        task.cancel()
        return self.send(None)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._coroutine.__await__()

    def __getattr__(self, name: str) -> Any:
        # Tools that show tasks ask for its frame and its name.
        return getattr(self._coroutine, name)


class AsyncioOneShot:
    """A value for one waiting task."""

    __slots__ = ("_future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # A task of another loop would never wake, and its request would be written between the steps of this one.
        if asyncio.get_running_loop() is not loop:
            instead = "call it by asyncio.run_coroutine_threadsafe(…, loop)"
            raise RuntimeError(f"this client or session belongs to another event loop: {instead}")
        self._future: asyncio.Future[Any] = loop.create_future()

    def set(self, value: Any) -> None:
        """Set the value and wake the waiting task."""
        if not self._future.done():
            self._future.set_result(value)

    def wait(self) -> Awaitable[Any]:
        """Wait for the value. A cancelled task stops here even if the value is there.

        Where the program cancelled the task of its own handler, the task goes on, to answer the request.
        """
        if self._future.done():
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                steps = task.get_coro()
                if not isinstance(steps, _Starting) or steps.is_stopping():
                    raise asyncio.CancelledError
        return self._future


class AsyncioRuntime:
    """Runs tasks in a task group that outlives them. Make it inside the running loop."""

    __slots__ = ("_loop", "_maker", "_thread", "group", "stalls")

    group: asyncio.TaskGroup | None
    """The group that the tasks run in, or None."""

    def __init__(self, group: asyncio.TaskGroup | None) -> None:
        """Without a group, no task can be spawned."""
        self.group = group
        self._loop = asyncio.get_running_loop()
        self._maker = asyncio.current_task()
        self.stalls: StallDetector = StallDetector(_drivers.queued_for_a_processor, self._loop.time)
        self._thread = threading.get_ident()

    @property
    def cancellation(self) -> type[BaseException]:
        """The exception that ``result()`` of a cancelled future raises, also in plain functions."""
        return asyncio.CancelledError

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> AsyncioTask:
        """Run a coroutine as a task."""
        if self.group is None:
            raise RuntimeError("there is no group for a task to run in")
        return AsyncioTask(coroutine, self, self.group)

    def is_ending(self) -> bool:
        """Whether the group is ending, or the task that it was made in, as all are when ``asyncio.run`` ends."""
        if self._maker is not None and (self._maker.cancelling() or self._maker.done()):
            return True
        probe = asyncio.sleep(0)
        try:
            # A group that ends takes no task; nothing else says so before its tasks are done.
            self.group.create_task(probe)  # type: ignore[union-attr]  # its tasks ask
        except RuntimeError:
            probe.close()
            return True
        return False

    def one_shot(self) -> AsyncioOneShot:
        """Return a value to wait for."""
        return AsyncioOneShot(self._loop)

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Wait for that many seconds."""
        return asyncio.sleep(seconds)

    def call_later(self, seconds: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after that many seconds."""
        return self._loop.call_later(seconds, function)

    def entropy(self, size: int) -> bytes:
        """Return random bytes from the operating system."""
        return os.urandom(size)

    def wall_clock(self) -> float:
        """Return the time of day."""
        return time.time()

    async def to_thread(self, function: Callable[[], T]) -> T:
        """Run a blocking function in a thread; a cancelled wait abandons it.

        The thread is not in the loop's executor, for which ``asyncio.run`` would wait at its end.
        """
        result: Future[T] = Future()
        work = partial(contextvars.copy_context().run, _settle, result, partial(_without_stop, function))
        threading.Thread(target=work, name="mcpio handler", daemon=True).start()
        return await asyncio.wrap_future(result)

    def from_thread(self, function: Callable[[], T]) -> T:
        """Run a function in the loop's thread, from any thread. Raises NoBackChannel if the loop is closed."""
        if threading.get_ident() == self._thread:
            return function()
        result: Future[T] = Future()
        try:
            self._loop.call_soon_threadsafe(_settle, result, function)
        except RuntimeError:
            raise NoBackChannel("the event loop has ended") from None
        return result.result()

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run a function at the loop's next turn."""
        # Raised by a closed loop.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)


def _without_stop(function: Callable[[], T]) -> T:
    """Call a function, and raise RuntimeError in place of StopIteration, as a coroutine does.

    asyncio before Python 3.12 cannot set a future to StopIteration: its waiter would never wake.
    """
    try:
        return function()
    except StopIteration as error:
        raise RuntimeError("the function in a thread raised StopIteration") from error


def _settle(result: Future[T], function: Callable[[], T]) -> None:
    """Set a future to the outcome of a function, unless the wait for it was cancelled."""
    if not result.set_running_or_notify_cancel():
        return
    try:
        result.set_result(function())
    except BaseException as error:
        result.set_exception(error)


# ---------------------------------------------------------------------------------------------------------------- tasks
# Tasks that end with a block, one exception in place of a group (P10), and time to clean up.


def ungrouped() -> AbstractContextManager[None]:
    """Raise one exception in place of a task group's exception group. See ``mcpio._drivers.unwrapped``."""
    return _drivers.unwrapped(asyncio.CancelledError)


@asynccontextmanager
async def tasks_around() -> AsyncIterator[AsyncioRuntime]:
    """Yield a runtime, and wait at the end for the tasks it spawned. An exception of the body propagates unwrapped."""
    group = asyncio.TaskGroup()
    await group.__aenter__()
    try:
        yield AsyncioRuntime(group)
    finally:
        with ungrouped():
            await group.__aexit__(None, None, None)


@asynccontextmanager
async def last_moment(seconds: float | None) -> AsyncIterator[None]:
    """Block of at most that many seconds; ``None`` for no limit.

    asyncio raises a cancellation once, so an earlier one does not cut off the block.
    """
    task, limit = asyncio.current_task(), asyncio.timeout(seconds)
    before = 0 if task is None else task.cancelling()
    try:
        async with limit:
            yield
    except (TimeoutError, asyncio.CancelledError):
        # The first versions of Python 3.11 count an earlier cancellation of the task once more.
        if not limit.expired() or (task is not None and task.cancelling() > before):
            raise


async def settled(future: asyncio.Future[Any]) -> None:
    """Wait until a task or future is done, which must be soon. A cancellation during that is raised afterwards."""
    late: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            late = error
    if late is not None:
        raise late
