"""The parts of an event loop that the checks need: tasks, time and limits, the same on Trio, asyncio and uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from math import inf
from typing import Any, Final, Literal, Protocol, TypeAlias

import trio

from mcpio.trio._runtime import ungrouped

__all__ = ["LOOPS", "Group", "KitLoop", "Limit", "LoopName", "current_loop"]

LoopName: TypeAlias = Literal["trio", "asyncio", "uvloop"]
"""An event loop that the kit can run checks on."""

Main: TypeAlias = Callable[[], Awaitable[None]]


class Group(Protocol):
    """Tasks that end with a block."""

    def start_soon(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """Start a task."""


class Limit(Protocol):
    """A block that can be cut short."""

    @property
    def has_expired(self) -> bool:
        """Whether the block was cut short. Known after the block."""

    def move(self, deadline: float) -> None:
        """Cut the block short at that time; infinity for never."""


class KitLoop(Protocol):
    """An event loop."""

    @property
    def manners(self) -> str:
        """What a transport raises there when it does not work, and when it is cancelled."""

    def prepare(self) -> None:
        """Open what the event loop keeps for the whole process, so that no check takes it for a leak."""

    def run(self, main: Main, report: Callable[[str], None], *, virtual_time: bool) -> None:
        """Run a function to its end. ``report`` takes what only the event loop hears of."""

    def now(self) -> float:
        """Return the time in seconds."""

    async def sleep(self, seconds: float) -> None:
        """Wait; 0 lets the other tasks have a turn."""

    def event(self) -> Any:
        """Return something to ``set`` and to ``await wait()`` for."""

    def group(self) -> AbstractAsyncContextManager[Group]:
        """Return a block that waits for its tasks. An error of one ends the others, and is raised alone."""

    def limited(self, deadline: float = inf) -> AbstractAsyncContextManager[Limit]:
        """Return a block that is cut short at a time, and then raises nothing."""

    async def in_thread(self, function: Callable[[], Any]) -> None:
        """Call a function in a thread."""

    def count_tasks(self) -> int:
        """Return how many tasks there are."""


class _OnTrio:
    manners = (
        "trio.BrokenResourceError, trio.ClosedResourceError or OSError when a connection does not work, "
        "trio.Cancelled when it is cancelled"
    )

    def prepare(self) -> None:
        pass

    def run(self, main: Main, report: Callable[[str], None], *, virtual_time: bool) -> None:
        trio.run(main, clock=_jumping_clock() if virtual_time else None)

    def now(self) -> float:
        return trio.current_time()

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    def event(self) -> trio.Event:
        return trio.Event()

    @asynccontextmanager
    async def group(self) -> AsyncIterator[Group]:
        with ungrouped():
            async with trio.open_nursery() as nursery:
                yield nursery

    @asynccontextmanager
    async def limited(self, deadline: float = inf) -> AsyncIterator[Limit]:
        limit = _TrioLimit(trio.CancelScope(deadline=deadline))
        with limit.scope:
            yield limit

    async def in_thread(self, function: Callable[[], Any]) -> None:
        await trio.to_thread.run_sync(function)

    def count_tasks(self) -> int:
        return trio.lowlevel.current_statistics().tasks_living


class _TrioLimit:
    def __init__(self, scope: trio.CancelScope) -> None:
        self.scope = scope

    @property
    def has_expired(self) -> bool:
        return self.scope.cancelled_caught

    def move(self, deadline: float) -> None:
        self.scope.deadline = deadline


class _OnAsyncio:
    manners = "OSError when a connection does not work, asyncio.CancelledError when it is cancelled"

    def __init__(self, find_factory: Callable[[], Callable[[], asyncio.AbstractEventLoop] | None]) -> None:
        self._find_factory = find_factory

    def prepare(self) -> None:
        factory = self._find_factory()
        if factory is not None:
            factory().close()

    def run(self, main: Main, report: Callable[[str], None], *, virtual_time: bool) -> None:
        if virtual_time:
            raise ValueError("virtual_time is for transports of Trio: asyncio has no clock that jumps")

        async def reporting() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: report(_said_by_loop(context)))
            await main()

        with asyncio.Runner(loop_factory=self._find_factory()) as runner:
            runner.run(reporting())

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def event(self) -> asyncio.Event:
        return asyncio.Event()

    @asynccontextmanager
    async def group(self) -> AsyncIterator[Group]:
        from mcpio.asyncio._runtime import ungrouped  # as the next class, only where asyncio is in use

        with ungrouped():
            async with asyncio.TaskGroup() as group:
                yield _AsyncioGroup(group)

    @asynccontextmanager
    async def limited(self, deadline: float = inf) -> AsyncIterator[Limit]:
        timeout = asyncio.timeout_at(None if deadline == inf else deadline)
        limit = _AsyncioLimit(timeout)
        try:
            async with timeout:
                yield limit
        except TimeoutError:
            if not limit.has_expired:
                raise

    async def in_thread(self, function: Callable[[], Any]) -> None:
        await asyncio.to_thread(function)

    def count_tasks(self) -> int:
        return len(asyncio.all_tasks())


class _AsyncioGroup:
    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def start_soon(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        async def run() -> None:
            await function(*arguments)

        self._group.create_task(run())


class _AsyncioLimit:
    def __init__(self, timeout: asyncio.Timeout) -> None:
        self._timeout = timeout

    @property
    def has_expired(self) -> bool:
        return self._timeout.expired()

    def move(self, deadline: float) -> None:
        if not self._timeout.expired():
            self._timeout.reschedule(None if deadline == inf else deadline)


def current_loop() -> KitLoop:
    """Return the event loop that runs the caller."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return LOOPS["trio"]
    return LOOPS["asyncio"]


def _said_by_loop(context: dict[str, Any]) -> str:
    error = context.get("exception")
    return f"asyncio reported: {context.get('message')}" + ("" if error is None else f": {error!r}")


def _jumping_clock() -> trio.abc.Clock:
    """Return a clock that jumps to the next deadline when all tasks wait."""
    from trio.testing import MockClock  # imported late: it imports pytest where that is installed

    return MockClock(autojump_threshold=0)


def _uvloop() -> Callable[[], asyncio.AbstractEventLoop]:
    import uvloop

    found: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return found


LOOPS: Final[dict[LoopName, KitLoop]] = {
    "trio": _OnTrio(),
    "asyncio": _OnAsyncio(lambda: None),
    "uvloop": _OnAsyncio(_uvloop),
}
