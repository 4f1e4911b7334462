"""Tasks that end with a block, one exception in place of their groups (P10), and time to end in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

from mcpio import _drivers
from mcpio.asyncio._runtime import AsyncioRuntime

__all__ = ["last_moment", "settled", "tasks_around", "ungrouped"]


def ungrouped() -> AbstractContextManager[None]:
    """Let what is in the group of a task group leave without it. See ``mcpio._drivers.unwrapped``."""
    return _drivers.unwrapped(asyncio.CancelledError)


@asynccontextmanager
async def tasks_around() -> AsyncIterator[AsyncioRuntime]:
    """Give a runtime, and wait at the end for what it spawned. What the body raises leaves as it is."""
    group = asyncio.TaskGroup()
    await group.__aenter__()
    try:
        yield AsyncioRuntime(group)
    finally:
        with ungrouped():
            await group.__aexit__(None, None, None)


@asynccontextmanager
async def last_moment(seconds: float | None) -> AsyncIterator[None]:
    """Give a block of at most so many seconds, or of as many as it takes.

    A cancellation is raised once, so one that has come before does not cut it off.
    """
    task, limit = asyncio.current_task(), asyncio.timeout(seconds)
    before = 0 if task is None else task.cancelling()
    try:
        async with limit:
            yield
    except (TimeoutError, asyncio.CancelledError):
        # The first versions of Python 3.11 say of a task that was cancelled before that it has been again.
        if not limit.expired() or (task is not None and task.cancelling() > before):
            raise


async def settled(future: asyncio.Future[Any]) -> None:
    """Wait until a task or future is done, which is soon. A cancellation that comes meanwhile is raised afterwards."""
    late: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            late = error
    if late is not None:
        raise late
