"""A place for tasks that outlives the sessions that begin them."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import trio

from mcpio._drivers import checked_server, lifespan_of
from mcpio._drivers import task_host as places
from mcpio.app.server import Server
from mcpio.app.tasks.receiver import TaskReceiver
from mcpio.trio._nurseries import last_moment, ungrouped
from mcpio.trio._runtime import TrioRuntime, check_in_trio

__all__ = ["hosted_tasks", "run_tasks"]


async def run_tasks(server: Server, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Run the tasks of a server until cancelled, whatever becomes of the sessions that began them.

    Start it, with ``nursery.start``, before what serves: without it the tasks of a session end with the session. Not
    with ``serve_http``, which does the same. The server's lifespan is entered for it. Tasks that a store has from
    before, and that their tools resume, go on at once. When it is cancelled, tasks are cut off: those that are not
    resumed have failed.

    ``TypeError`` for a server that has no tasks, and for what is no server.
    """
    check_in_trio("servers")
    tasks = checked_server(server).tasks
    if tasks is None:
        raise TypeError("the server has no tasks: give a tool task_support=, or the server tasks=")
    async with lifespan_of(server) as state:
        with ungrouped():
            async with trio.open_nursery() as nursery, hosted_tasks(tasks, TrioRuntime(nursery), state):
                task_status.started()
                await trio.sleep_forever()


def hosted_tasks(tasks: TaskReceiver, runtime: TrioRuntime, state: Any) -> AbstractAsyncContextManager[None]:
    """Let tasks run, for a block; at its end they are stopped, and how they ended is stored."""
    return places.hosted_tasks(tasks, places.TaskHost(runtime, trio.current_time), state, last_moment)
