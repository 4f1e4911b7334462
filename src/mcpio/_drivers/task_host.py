"""A place for tasks of tools that outlives the sessions that begin them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from mcpio._drivers import report
from mcpio._drivers.timeouts import STORE_TIMEOUT
from mcpio.app.runtime import Runtime

if TYPE_CHECKING:
    from mcpio.app.server import Server
    from mcpio.app.session import Session
    from mcpio.app.tasks.receiver import TaskReceiver

__all__ = ["TaskHost", "hosted_tasks", "store_tasks"]

LastMoment: TypeAlias = Callable[[float], AbstractAsyncContextManager[None]]
"""Gives a block that takes so many seconds at most, and that no cancellation cuts off which has come."""


class TaskHost:
    """Where tasks run without a session."""

    def __init__(self, runtime: Runtime, clock: Callable[[], float]) -> None:
        """``clock`` is the one that the sessions go by."""
        self.runtime = runtime
        self._clock = clock

    def now(self) -> float:
        """Return the time."""
        return self._clock()

    def report(self, message: str, error: BaseException | None) -> None:
        """Write to the log, under the name ``mcpio``."""
        report(message, error)


@asynccontextmanager
async def hosted_tasks(
    tasks: TaskReceiver, place: TaskHost, state: Any, last_moment: LastMoment
) -> AsyncIterator[None]:
    """Let tasks run at a place, for a block; at its end they are stopped, and how they ended is stored."""
    try:
        tasks.attach(place, state)
        yield
    finally:
        tasks.stop(place)
        async with last_moment(STORE_TIMEOUT):
            await tasks.flush(place)
        tasks.detach(place)


async def store_tasks(server: Server, last_moment: LastMoment, session: Session) -> None:
    """Have a store of tasks take in how those ended that ended with their session."""
    if server.tasks is not None:
        async with last_moment(STORE_TIMEOUT):
            await server.tasks.flush(session.driver)
