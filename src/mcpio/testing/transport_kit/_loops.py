"""The event loops that the checks run on: Trio, asyncio and uvloop, as the drivers see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import Any, Literal, Protocol, TypeAlias, get_args

import trio

from mcpio._drivers.event_loop import EventLoop
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.trio._runtime import ungrouped

LoopName: TypeAlias = Literal["trio", "asyncio", "uvloop"]
"""An event loop that the kit can run checks on."""

LOOPS: tuple[LoopName, ...] = get_args(LoopName)

Main: TypeAlias = Callable[[], Awaitable[None]]


class Group(Protocol):
    """Tasks that end with a block."""

    def start_soon(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """Start a task."""


class KitLoop(EventLoop, Protocol):
    """The running event loop, with what only checks need."""

    @property
    def manners(self) -> str:
        """The exceptions that a transport raises on this loop when it fails and when it is cancelled, for messages."""

    def tasks(self) -> AbstractAsyncContextManager[Group]:
        """Return a block that waits for its tasks. An error of one ends the others, and is raised alone."""

    def count_tasks(self) -> int:
        """Return how many tasks there are."""


class _OnTrio(TrioEventLoop):
    manners = (
        "trio.BrokenResourceError, trio.ClosedResourceError or OSError when a connection does not work, "
        "trio.Cancelled when it is cancelled"
    )

    @asynccontextmanager
    async def tasks(self) -> AsyncIterator[Group]:
        with ungrouped():
            async with trio.open_nursery() as nursery:
                yield nursery

    def count_tasks(self) -> int:
        return trio.lowlevel.current_statistics().tasks_living


@cache
def _on_asyncio() -> type[KitLoop]:
    from mcpio.asyncio._event_loop import AsyncioEventLoop  # only where asyncio is in use
    from mcpio.asyncio._runtime import ungrouped

    class OnAsyncio(AsyncioEventLoop):
        manners = "OSError when a connection does not work, asyncio.CancelledError when it is cancelled"

        @asynccontextmanager
        async def tasks(self) -> AsyncIterator[Group]:
            with ungrouped():
                async with asyncio.TaskGroup() as group:
                    yield _AsyncioGroup(group)

        def count_tasks(self) -> int:
            return len(asyncio.all_tasks())

    return OnAsyncio


class _AsyncioGroup:
    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def start_soon(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        async def run() -> None:
            await function(*arguments)

        self._group.create_task(run())


def current_loop() -> KitLoop:
    """Return the event loop that runs the caller."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _OnTrio()
    return _on_asyncio()()


# -------------------------------------------------------------------------------------------------------------- running


def prepare(name: LoopName) -> None:
    """Open what an event loop keeps for the whole process, so that no check takes it for a leak."""
    if (factory := _factory(name)) is not None:
        factory().close()


def run(name: LoopName, main: Main, report: Callable[[str], None], *, virtual_time: bool) -> None:
    """Run a function to its end. ``report`` takes what only the event loop hears of."""
    if name == "trio":
        trio.run(main, clock=_jumping_clock() if virtual_time else None)
        return
    if virtual_time:
        raise ValueError("virtual_time is for transports of Trio: asyncio has no clock that jumps")

    async def reporting() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: report(_said_by_loop(context)))
        await main()

    with asyncio.Runner(loop_factory=_factory(name)) as runner:
        runner.run(reporting())


def _factory(name: LoopName) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if name != "uvloop":
        return None
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _said_by_loop(context: dict[str, Any]) -> str:
    error = context.get("exception")
    return f"asyncio reported: {context.get('message')}" + ("" if error is None else f": {error!r}")


def _jumping_clock() -> trio.abc.Clock:
    """Return a clock that jumps to the next deadline when all tasks wait."""
    from trio.testing import MockClock  # imported late: it imports pytest where that is installed

    return MockClock(autojump_threshold=0)
