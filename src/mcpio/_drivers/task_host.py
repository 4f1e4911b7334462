"""A host for tasks of tools that outlives the sessions that started them."""

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

__all__ = ["TaskHost", "hosted_tasks", "store_tasks"]

LastMoment: TypeAlias = Callable[[float], AbstractAsyncContextManager[None]]
"""Returns a block of at most that many seconds which an earlier cancellation does not cut off."""


class TaskHost:
    """Runs tasks without a session: the part of a driver that they need."""

    def __init__(self, runtime: Runtime, clock: Callable[[], float]) -> None:
        """``clock`` is that of the sessions."""
        self.runtime = runtime
        self._clock = clock

    def now(self) -> float:
        """Return the time."""
        return self._clock()

    def report(self, message: str, error: BaseException | None) -> None:
        """Write to the log, under the name ``mcpio``."""
        report(message, error)


@asynccontextmanager
async def hosted_tasks(server: Server, host: TaskHost, state: Any, last_moment: LastMoment) -> AsyncIterator[None]:
    """Run a server's tasks, if it has any, during a block. At its end they are stopped, and their outcomes stored."""
    tasks = server.tasks
    if tasks is None:
        yield
        return
    try:
        tasks.attach(host, state)
        yield
    finally:
        tasks.stop(host)
        async with last_moment(STORE_TIMEOUT):
            await tasks.flush(host)
        tasks.detach(host)


async def store_tasks(server: Server, last_moment: LastMoment, session: Session) -> None:
    """Store the outcomes of the tasks that ended with their session."""
    if server.tasks is not None:
        async with last_moment(STORE_TIMEOUT):
            await server.tasks.flush(session.driver)
