"""One call of an ASGI application, and the tasks that live in it."""

from __future__ import annotations

from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

from mcpio.app.runtime import OneShot, Runtime, Spawned

__all__ = ["AsgiRequest", "RequestTask", "current_request"]


class AsgiRequest:
    """One call of the application, or the lifespan around all of them: what begins in it lives in it.

    Tasks need a group of the event loop. Requests that are answered at once begin none, so a call does without until
    ``open`` gives it one.
    """

    __slots__ = (
        "_is_ready",
        "_waiting",
        "exchange",
        "has_response",
        "is_done",
        "is_head",
        "is_over",
        "is_read",
        "queue",
        "running",
        "runtime",
    )

    exchange: int
    """The exchange, as the machine knows it."""
    is_head: bool
    """Whether the response is to have no body."""
    is_read: bool
    """Whether all of the request came."""
    has_response: bool
    """Whether there is something of the response, or was."""
    is_over: bool
    """Whether the response is complete, or nobody is there to read it."""
    is_done: bool
    """Whether it has returned: nothing can begin in it any more."""
    queue: list[RequestTask]
    """The tasks that wait for ``open``."""
    running: dict[RequestTask, None]
    """The tasks that are not over."""
    runtime: Runtime | None
    """The event loop with the call's own group of tasks."""

    def __init__(self, exchange: int, *, is_head: bool = False) -> None:
        self.exchange = exchange
        self.is_head = is_head
        self.is_read = self.has_response = self.is_over = self.is_done = self._is_ready = False
        self.queue = []
        self.running = {}
        self.runtime = None
        self._waiting: OneShot | None = None

    def add(self, task: RequestTask) -> None:
        """Let a task run in this call."""
        if self.runtime is None:
            self.queue.append(task)
        else:
            task.start(self, self.runtime)

    def open(self, runtime: Runtime) -> None:
        """Start what waits, in the group of ``runtime``, and have it ready for more."""
        self.runtime = runtime
        queue, self.queue = self.queue, []
        for task in queue:
            task.start(self, runtime)

    def wake(self) -> None:
        """Take note that something happened."""
        self._is_ready = True
        if self._waiting is not None:
            self._waiting.set(None)

    async def wait(self, runtime: Runtime) -> None:
        """Wait until something happened since the last time."""
        if not self._is_ready:
            self._waiting = runtime.one_shot()
            try:
                await self._waiting.wait()
            finally:
                self._waiting = None
        self._is_ready = False


current_request: ContextVar[AsgiRequest | None] = ContextVar("mcpio.asgi.current_request", default=None)
"""The call in which the present code runs."""


class RequestTask:
    """A coroutine that runs in a call, from the time on when the call can run it."""

    __slots__ = ("_coroutine", "_is_cancelled", "_task", "call")

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._coroutine = coroutine
        self._is_cancelled = False
        self._task: Spawned | None = None
        self.call: AsgiRequest | None = None

    def cancel(self) -> None:
        """Ask it to stop at its next wait."""
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()

    def start(self, call: AsgiRequest, runtime: Runtime) -> None:
        """Run it in a call."""
        self.call = call
        call.running[self] = None
        self._task = runtime.spawn(self._run(call))
        if self._is_cancelled:
            self._task.cancel()

    async def _run(self, call: AsgiRequest) -> None:
        current_request.set(call)  # whoever spawned it may have acted in another one
        try:
            await self._coroutine
        finally:
            del call.running[self]
            if not call.running:
                call.wake()
