"""What is different between the event loops under an ASGI application."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import attrs

from mcpio.app.runtime import Runtime

__all__ = ["EventLoop", "loop_identity", "running_loop"]


@attrs.frozen
class EventLoop:
    """An event loop that runs."""

    identity: object
    """It is the same for the same loop, and no other's."""
    clock: Callable[[], float]
    """Its time, in seconds."""
    runtime: Runtime
    """The seam to it, which has no place for tasks."""
    group: Callable[[], AbstractAsyncContextManager[Runtime]]
    """A block in which tasks can run, by the runtime that it gives. It is left when they are over, or cancelled because
    the body raised. What the body raises leaves as it is, and so does what ends the program."""
    last_moment: Callable[[float], AbstractAsyncContextManager[None]]
    """A block that takes at most so many seconds, and is not cut off by a cancellation that has come already."""


def loop_identity() -> object:
    """Return what the loop in which this is called is known by."""
    if _is_in_trio():
        return sys.modules["trio"].lowlevel.current_trio_token()
    import asyncio

    return asyncio.get_running_loop()


def running_loop() -> EventLoop:
    """Return the loop in which this is called."""
    return _trio_loop() if _is_in_trio() else _asyncio_loop()


def _is_in_trio() -> bool:
    """Whether this is called in a task of Trio's, whose older versions say so only by an exception."""
    trio = sys.modules.get("trio")
    if trio is None:
        return False
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True


def _trio_loop() -> EventLoop:
    import trio

    from mcpio.trio._nurseries import last_moment, ungrouped
    from mcpio.trio._runtime import TrioRuntime

    @contextlib.asynccontextmanager
    async def group() -> AsyncIterator[Runtime]:
        with ungrouped():
            async with trio.open_nursery() as nursery:
                yield TrioRuntime(nursery)

    return EventLoop(loop_identity(), trio.current_time, TrioRuntime(None), group, last_moment)


def _asyncio_loop() -> EventLoop:
    import asyncio

    from mcpio.asyncio._runtime import AsyncioRuntime
    from mcpio.asyncio._tasks import last_moment, ungrouped

    @contextlib.asynccontextmanager
    async def group() -> AsyncIterator[Runtime]:
        with ungrouped():
            async with asyncio.TaskGroup() as tasks:
                try:
                    yield AsyncioRuntime(tasks)
                except (Exception, asyncio.CancelledError):
                    # The group cancels its tasks now. Those that have not begun would never get to what they must do
                    # in any case.
                    await asyncio.sleep(0)
                    raise

    loop = asyncio.get_running_loop()
    return EventLoop(loop, loop.time, AsyncioRuntime(None), group, last_moment)
