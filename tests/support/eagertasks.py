"""A task factory that runs the first step of each task at once, on every version of Python."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any

__all__ = ["make_all_eager", "make_eager"]


def make_eager(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    """Return a loop whose tasks run their first step before ``create_task`` returns."""
    loop.set_task_factory(getattr(asyncio, "eager_task_factory", _eager_task))
    return loop


def make_all_eager() -> None:
    """Make the tasks of each loop of asyncio eager, from the loop's next run on."""
    run_forever = asyncio.BaseEventLoop.run_forever

    def run_eagerly(loop: asyncio.BaseEventLoop) -> None:
        if loop.get_task_factory() is None:
            make_eager(loop)
        run_forever(loop)

    loops: Any = asyncio.BaseEventLoop
    loops.run_forever = run_eagerly


def _eager_task(
    loop: asyncio.AbstractEventLoop, coroutine: Any, *, context: Context | None = None, **options: Any
) -> asyncio.Task[Any]:
    """Do what ``asyncio.eager_task_factory`` of Python 3.12 does, except that each task ends at a later turn."""
    running = _Running(coroutine)
    context = copy_context() if context is None else context
    task = _Task(running, loop=loop, context=context, **options)
    spawner = asyncio.current_task(loop) if loop.is_running() else None
    if spawner is not None:
        _switch(loop, spawner, task)
        try:
            context.run(running.run_first_step)
        finally:
            _switch(loop, task, spawner)
    return task


def _switch(loop: asyncio.AbstractEventLoop, left: asyncio.Task[Any], entered: asyncio.Task[Any]) -> None:
    tasks: Any = asyncio.tasks
    tasks._leave_task(loop, left)
    tasks._enter_task(loop, entered)


class _Task(asyncio.Task[Any]):
    def get_coro(self) -> Any:
        running: Any = super().get_coro()
        return running._coroutine


class _Running(Coroutine[Any, Any, Any]):
    """A coroutine whose first step was run before its task ran it."""

    def __init__(self, coroutine: Any) -> None:
        self._coroutine = coroutine
        self._outcome: Any = None
        self._has_outcome = False

    def run_first_step(self) -> None:
        try:
            self._outcome = self._coroutine.send(None)
        except BaseException as error:
            self._outcome = error
        self._has_outcome = True

    def send(self, value: Any) -> Any:
        if not self._has_outcome:
            return self._coroutine.send(value)
        self._has_outcome = False
        outcome, self._outcome = self._outcome, None
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def throw(self, *error: Any) -> Any:
        if self._has_outcome and isinstance(self._outcome, BaseException):
            return self.send(None)  # it ended before it could be cancelled
        self._has_outcome = False
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        awaiting: Generator[Any, Any, Any] = self._coroutine.__await__()
        return awaiting
