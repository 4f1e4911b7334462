"""Tasks of a server under ASGI: in the requests that began them or, with a lifespan, in that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiwire import AsgiWire, Called, EventLoop, OnAsyncio, as_call
from httpwire import RawClient

from mcpio import Server
from mcpio.app import TaskOptions
from mcpio.asgi import app
from mcpio.http.model import HttpOptions
from mcpio.stores import SqliteStore


class Tasked:
    """A server with a tool that runs as a task, its application and a client."""

    def __init__(self, loop: EventLoop, options: TaskOptions | None = None) -> None:
        self.go_on = loop.event()
        self.loop = loop
        server = Server("tasked", "1", tasks=options)

        @server.tool(task_support="required")
        async def work() -> str:
            await self.go_on.wait()
            return "worked"

        self.application = app(server, options=HttpOptions(session_idle=60))
        self.wire = AsgiWire(self.application, loop)
        self.client = RawClient(self.wire)
        self._last = 10

    async def ask(self, method: str, **params: Any) -> Called:
        self._last += 1
        request = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        return as_call(await self.client.post(request))

    async def begin(self) -> tuple[str, Called]:
        """Begin a task that is kept for an hour; return its id, and the call that began it."""
        await self.client.initialize()
        call = await self.ask("tools/call", name="work", arguments={}, task={"ttl": 3_600_000})
        assert call.is_over
        return call.json["result"]["task"]["taskId"], call

    async def status(self, id: str) -> str:
        found: str = (await self.ask("tasks/get", taskId=id)).json["result"]["status"]
        return found


def test_task_lives_in_the_request_that_began_it(loop: EventLoop) -> None:
    async def main() -> None:
        tasked = Tasked(loop)
        id, call = await tasked.begin()
        assert not call.returned()
        assert await tasked.status(id) == "working"
        tasked.go_on.set()
        await loop.settle()
        # That it is kept for an hour holds up nothing.
        assert call.returned()
        assert await tasked.status(id) == "completed"
        result = (await tasked.ask("tasks/result", taskId=id)).json["result"]
        assert result["content"][0]["text"] == "worked"
        assert all(each.returned() for each in tasked.wire.calls)

    loop.run(main)


def test_task_of_a_cancelled_request_fails(loop: EventLoop) -> None:
    async def main() -> None:
        tasked = Tasked(loop)
        id, call = await tasked.begin()
        call.cancel()
        await loop.settle()
        assert call.returned()
        assert await tasked.status(id) == "failed"

    loop.run(main)


def test_task_outlives_request_and_session_within_a_lifespan(loop: EventLoop) -> None:
    async def main() -> None:
        tasked = Tasked(loop)
        async with tasked.application.lifespan():
            id, call = await tasked.begin()
            assert call.returned()
            await tasked.client.end()
            tasked.client.headers.clear()
            await tasked.client.initialize()
            assert await tasked.status(id) == "working"
            tasked.go_on.set()
            await loop.settle()
            assert await tasked.status(id) == "completed"
            await tasked.wire.pass_time(3_700)
            tasked.client.headers.clear()
            await tasked.client.initialize()
            assert "error" in (await tasked.ask("tasks/get", taskId=id)).json

    loop.run(main)


@pytest.mark.parametrize("with_lifespan", [True, False])
def test_blocking_store_does_not_stop_the_loop(tmp_path: Any, with_lifespan: bool) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path / "tasks.db")
        tasked = Tasked(OnAsyncio(), TaskOptions(store=store))
        if with_lifespan:
            async with tasked.application.lifespan():
                await conversation(tasked)
        else:
            await conversation(tasked)
        store.close()

    async def conversation(tasked: Tasked) -> None:
        await tasked.client.initialize()
        call = await tasked.ask("tools/call", name="work", arguments={}, task={})
        await call.answered.wait()
        id = call.json["result"]["task"]["taskId"]
        tasked.go_on.set()
        found = await tasked.ask("tasks/result", taskId=id)
        await found.answered.wait()
        assert found.json["result"]["content"][0]["text"] == "worked"
        await call.finished.wait()

    asyncio.run(main())
