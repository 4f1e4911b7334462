"""A server on Trio in a thread, for clients on another event loop."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio

__all__ = ["on_trio"]


@contextmanager
def on_trio(serve: Callable[..., Awaitable[Any]]) -> Iterator[Any]:
    """Run ``serve(task_status=…)`` for a block, and yield what it started with."""
    started, scope = threading.Event(), trio.CancelScope()
    found: list[Any] = []

    async def run() -> None:
        found.append(trio.lowlevel.current_trio_token())
        with scope:
            async with trio.open_nursery() as nursery:
                found.append(await nursery.start(serve))
                started.set()

    thread = threading.Thread(target=trio.run, args=(run,))
    thread.start()
    try:
        assert started.wait(20)
        yield found[1]
    finally:
        found[0].run_sync_soon(scope.cancel)
        thread.join()
