"""The event loop under an ASGI application: Trio or asyncio."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

from mcpio._drivers.event_loop import EventLoop

__all__ = ["running_loop", "session_carrier"]


def running_loop() -> EventLoop:
    """Return the running event loop."""
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
