"""Tasks under Trio: a place that outlives the sessions, and stores that block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from runners import run_by

from mcpio import CallToolRequest, Context, Server
from mcpio.app import TaskOptions
from mcpio.stores import SqliteStore
from mcpio.trio import memory_client, open_transport, run_tasks, serve


class Mine:
    """A server whose tool digs until it is told to stop."""

    def __init__(self, resume: bool = False, **options: Any) -> None:
        self.lives = 0
        self.begun = 0
        self.enough = trio.Event()
        self.server = Server("mine", tasks=TaskOptions(poll_interval=0.01, **options), lifespan=self._live)

        @self.server.tool(task_support="optional", resume=resume)
        async def dig(ctx: Context) -> str:
            self.begun += 1
            await self.enough.wait()
            return f"{ctx.state}"

    @asynccontextmanager
    async def _live(self, server: Server) -> AsyncIterator[int]:
        self.lives += 1
        yield self.lives


async def begin(mine: Mine) -> str:
    """Begin a task in a session of its own, and return its id."""
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: serve(mine.server, far, principal="ada"))
        async with open_transport(near, era="handshake") as client:
            task = await client.start_task(CallToolRequest("dig"))
            task.owned = False
            await trio.testing.wait_all_tasks_blocked()
    return str(task.id)


async def look(mine: Mine, id: str, *, fetch: bool = False) -> Any:
    """Return the state of a task, or its result, in a session of its own."""
    near, far = trio.testing.memory_stream_pair()
    found: Any = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: serve(mine.server, far, principal="ada"))
        async with open_transport(near, era="handshake") as client:
            found = await (client.task_result(id) if fetch else client.get_task(id))
    return found


@run_by(trio.run)
async def test_tasks_with_a_host_outlive_their_sessions() -> None:
    mine = Mine()
    async with trio.open_nursery() as nursery:
        await nursery.start(run_tasks, mine.server)
        id = await begin(mine)
        assert (await look(mine, id)).status == "working"
        mine.enough.set()
        # The first lifespan is that of the place itself.
        assert (await look(mine, id, fetch=True)).text == "1"
        nursery.cancel_scope.cancel()


@run_by(trio.run)
async def test_tasks_without_a_host_end_with_their_sessions() -> None:
    mine = Mine()
    id = await begin(mine)
    task = await look(mine, id)
    assert (task.status, task.status_message) == ("failed", "What the task ran in has ended")


def test_run_tasks_of_a_server_without_tasks_raises() -> None:
    with pytest.raises(TypeError, match="the server has no tasks"):
        trio.run(run_tasks, Server("s"))


@pytest.mark.parametrize("resume", [True, False])
@run_by(trio.run)
async def test_outcome_of_a_cancelled_run_is_stored(tmp_path: Path, resume: bool) -> None:
    with SqliteStore(tmp_path / "tasks.db") as store:
        first = Mine(resume, store=store)
        async with trio.open_nursery() as nursery:
            await nursery.start(run_tasks, first.server)
            id = await begin(first)
            nursery.cancel_scope.cancel()
    with SqliteStore(tmp_path / "tasks.db") as store:
        second = Mine(resume, store=store)
        async with trio.open_nursery() as nursery:
            await nursery.start(run_tasks, second.server)
            task = await look(second, id)
            # It was stored in the first process's last moments.
            assert task.status_message == (None if resume else "What the task ran in has ended")
            assert (task.status, second.begun) == (("working", 1) if resume else ("failed", 0))
            second.enough.set()
            nursery.cancel_scope.cancel()


def test_unfetched_task_expires() -> None:
    async def main() -> None:
        mine = Mine()
        async with memory_client(mine.server, era="handshake") as client:
            task = await client.start_task(CallToolRequest("dig"), ttl=30)
            task.owned = False
            await trio.sleep(29)
            assert (await task.status()).status == "working"
            await trio.sleep(2)
            assert [each.task_id async for each in client.tasks()] == []

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
