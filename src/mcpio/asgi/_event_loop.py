"""The event loop under an ASGI application: Trio or asyncio."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import attrs

from mcpio._drivers import event_loop as drivers
from mcpio.app.runtime import Runtime

__all__ = ["EventLoop", "loop_identity", "running_event_loop", "running_loop", "session_carrier"]


@attrs.frozen
class EventLoop:
    """A running event loop."""

    identity: object
    """The same object for the same loop, and no other."""
    is_current: Callable[[], bool]
    """Whether it is the loop that runs now."""
    clock: Callable[[], float]
    """Its time, in seconds."""
    runtime: Runtime
    """Its ``Runtime``, without a task group."""
    group: Callable[[], AbstractAsyncContextManager[Runtime]]
    """A task group as a context manager, which yields a ``Runtime`` that spawns in it. An exception of the body, or one
    that ends the program, cancels the tasks and propagates unwrapped."""
    last_moment: Callable[[float], AbstractAsyncContextManager[None]]
    """A block limited to a number of seconds, which runs even in a cancelled task."""


def loop_identity() -> object:
    """Return the identity of the running event loop."""
    if _is_in_trio():
        return sys.modules["trio"].lowlevel.current_trio_token()
    import asyncio

    return asyncio.get_running_loop()


def running_loop() -> EventLoop:
    """Return the running event loop."""
    return _trio_loop() if _is_in_trio() else _asyncio_loop()


def running_event_loop() -> drivers.EventLoop:
    """Return the interface of the shared drivers to the running event loop."""
    if _is_in_trio():
        from mcpio.trio._event_loop import TrioEventLoop

        return TrioEventLoop()
    from mcpio.asyncio._event_loop import AsyncioEventLoop

    return AsyncioEventLoop()


def session_carrier() -> Callable[..., Awaitable[None]]:
    """Return the function that runs one session on the running event loop: ``carry`` of its driver."""
    if _is_in_trio():
        from mcpio.trio._drivers import carry as carry_on_trio

        return carry_on_trio
    from mcpio.asyncio._drivers import carry as carry_on_asyncio

    return carry_on_asyncio


def _is_in_trio() -> bool:
    """Whether a Trio task calls this. Older versions of Trio answer only by an exception."""
    trio = sys.modules.get("trio")
    if trio is None:
        return False
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True


def _trio_loop() -> EventLoop:
    from mcpio.trio._event_loop import TrioEventLoop
    from mcpio.trio._runtime import TrioRuntime

    trio, loop, token = sys.modules["trio"], TrioEventLoop(), loop_identity()

    def is_current() -> bool:
        try:
            return trio.lowlevel.current_trio_token() is token
        except RuntimeError:
            return False

    # The clock itself: each request asks it several times.
    clock = trio.lowlevel.current_clock().current_time
    return EventLoop(token, is_current, clock, TrioRuntime(None), loop.group, loop.last_moment)


def _asyncio_loop() -> EventLoop:
    from mcpio.asyncio._event_loop import AsyncioEventLoop
    from mcpio.asyncio._runtime import AsyncioRuntime

    asyncio, loop = sys.modules["asyncio"], AsyncioEventLoop()
    running: Any = loop_identity()

    def is_current() -> bool:
        try:
            return asyncio.get_running_loop() is running
        except RuntimeError:
            return False

    return EventLoop(running, is_current, running.time, AsyncioRuntime(None), loop.group, loop.last_moment)
