"""The runtime seam on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["AsyncioRuntime"]

T = TypeVar("T")


class AsyncioTask:
    """A coroutine as a task of its own."""

    __slots__ = ("_cancelled", "_coroutine", "_started", "_task")

    def __init__(self, coroutine: Coroutine[Any, Any, None], group: asyncio.TaskGroup) -> None:
        self._coroutine = coroutine
        self._started = False
        self._cancelled = False
        self._task = group.create_task(self._run())

    def cancel(self) -> None:
        """Ask it to stop at its next wait."""
        self._cancelled = True
        # asyncio would not even start a task that is cancelled before: it would skip the coroutine's clean-up.
        if self._started:
            self._task.cancel()

    async def _run(self) -> None:
        self._started = True
        if self._cancelled:
            self._task.cancel()
        await self._coroutine


class AsyncioOneShot:
    """A value for one waiting task."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def set(self, value: Any) -> None:
        """Give the value and wake the waiter."""
        if not self._future.done():
            self._future.set_result(value)

    def wait(self) -> Awaitable[Any]:
        """Wait for the value."""
        return self._future


class AsyncioRuntime:
    """Tasks in a task group, which outlives them all. Make it inside the running loop."""

    __slots__ = ("_group", "_loop")

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._loop = asyncio.get_running_loop()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> AsyncioTask:
        """Run a coroutine as a task of its own."""
        return AsyncioTask(coroutine, self._group)

    def one_shot(self) -> AsyncioOneShot:
        """Return a value to wait for."""
        return AsyncioOneShot()

    def to_thread(self, function: Callable[[], T]) -> Awaitable[T]:
        """Run a blocking function in a thread; a cancelled wait abandons it."""
        return asyncio.to_thread(function)

    def from_thread(self, function: Callable[[], T]) -> T:
        """Run a function in the loop's thread, from any other."""

        async def call() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()
