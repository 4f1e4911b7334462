"""``run_tasks``: a host for tasks that outlives the sessions that started them."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import trio

from mcpio._drivers import checked_server, lifespan_of, task_host
from mcpio.app.server import Server
from mcpio.app.tasks.receiver import TaskReceiver
from mcpio.trio._nurseries import last_moment, ungrouped
from mcpio.trio._runtime import TrioRuntime, check_in_trio

__all__ = ["hosted_tasks", "run_tasks"]


async def run_tasks(server: Server, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Run the tasks of a server until cancelled, independently of the sessions that started them.

    Start it with ``nursery.start`` before ``serve``: without it, the tasks of a session end with the session. It is not
    for ``serve_http``, which does the same. The server's lifespan is entered for it. Stored tasks of an earlier process
    that their tools can resume continue at once. When it is cancelled, tasks are cut off; those that cannot be resumed
    have failed.

    Raises TypeError if ``server`` is not a Server, or has no tasks.
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
    """Run tasks during a block. At its end they are stopped, and their outcomes are stored."""
    return task_host.hosted_tasks(tasks, task_host.TaskHost(runtime, trio.current_time), state, last_moment)
