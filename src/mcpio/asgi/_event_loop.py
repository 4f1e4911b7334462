"""The event loop under an ASGI application: Trio or asyncio."""

from __future__ import annotations

import sys
from importlib import import_module

from mcpio._drivers.event_loop import EventLoop


def running_loop() -> EventLoop:
    """Return the running event loop."""
    if _is_in_trio():
        import_module("mcpio.trio._drivers")  # defers a Ctrl-C in sessions
        from mcpio.trio._event_loop import TrioEventLoop

        return TrioEventLoop()
    from mcpio.asyncio._event_loop import AsyncioEventLoop

    return AsyncioEventLoop()


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
