"""``run_tasks``: a host for tasks that outlives the sessions that started them."""

from __future__ import annotations

import trio

from mcpio._drivers import checked_server, lifespan_of
from mcpio._drivers.actor import TaskHost, hosted_tasks
from mcpio.app.server import Server
from mcpio.trio._runtime import TrioRuntime, check_in_trio, last_moment, ungrouped

__all__ = ["run_tasks"]


async def run_tasks(server: Server, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Run the tasks of a server until cancelled, independently of the sessions that started them.

    Start it with ``nursery.start`` before ``serve``: without it, the tasks of a session end with the session. It is not
    for ``serve_http``, which does the same. The server's lifespan is entered for it. Stored tasks of an earlier process
    that their tools can resume continue at once. When it is cancelled, tasks are cut off; those that cannot be resumed
    have failed.

    Raises TypeError if ``server`` is not a Server, or has no tasks.
    """
    check_in_trio("servers")
    if checked_server(server).tasks is None:
        raise TypeError("the server has no tasks: give a tool task_support=, or the server tasks=")
    async with lifespan_of(server) as state:
        with ungrouped():
            async with trio.open_nursery() as nursery:
                host = TaskHost(TrioRuntime(nursery), trio.current_time)
                async with hosted_tasks(server, host, state, last_moment):
                    task_status.started()
                    await trio.sleep_forever()
