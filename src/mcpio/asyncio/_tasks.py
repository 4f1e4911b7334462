"""Tasks that end with a block, one exception in place of a group (P10), and time to clean up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

from mcpio import _drivers
from mcpio.asyncio._runtime import AsyncioRuntime

__all__ = ["last_moment", "settled", "tasks_around", "ungrouped"]


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
