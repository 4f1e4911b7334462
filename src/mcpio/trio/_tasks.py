"""A place for tasks that outlives the sessions that begin them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from mcpio._driving import report
from mcpio.app.server import Server
from mcpio.app.tasks import TaskReceiver
from mcpio.trio._drivers import LAST_STORED, lifespan_of
from mcpio.trio._groups import ungrouped
from mcpio.trio._runtime import TrioRuntime

__all__ = ["attached", "run_tasks"]


async def run_tasks(server: Server, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Run the tasks of a server until cancelled, whatever becomes of the sessions that began them.

    Start it, with ``nursery.start``, before what serves: without it the tasks of a session end with the session. Not
    with ``serve_http``, which does the same. The server's lifespan is entered for it. Tasks that a store has from
    before, and that their tools resume, go on at once. When it is cancelled, tasks are cut off: those that are not
    resumed have failed.

    ``TypeError`` for a server that has no tasks.
    """
    tasks = server.tasks
    if tasks is None:
        raise TypeError("the server has no tasks: give a tool task_support=, or the server tasks=")
    async with lifespan_of(server) as state:
        with ungrouped():
            async with trio.open_nursery() as nursery, attached(tasks, TrioRuntime(nursery), state):
                task_status.started()
                await trio.sleep_forever()


@asynccontextmanager
async def attached(tasks: TaskReceiver, runtime: TrioRuntime, state: Any) -> AsyncIterator[None]:
    """Let tasks run, for a block; at its end they are stopped, and how they ended is stored."""
    place = _Place(runtime)
    try:
        tasks.attach(place, state)
        yield
    finally:
        tasks.stop(place)
        with trio.CancelScope(shield=True, deadline=trio.current_time() + LAST_STORED):
            await tasks.flush(place)
        tasks.detach(place)


class _Place:
    """Where tasks run without a session."""

    def __init__(self, runtime: TrioRuntime) -> None:
        self.runtime = runtime

    def now(self) -> float:
        return trio.current_time()

    def report(self, message: str, error: BaseException | None) -> None:
        report(message, error)
