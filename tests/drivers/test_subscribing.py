"""Parts of a program that need one resource: they come, leave and are cancelled in any order, and all hear of it."""

from __future__ import annotations

from typing import Any

import pytest
from eachloop import EachLoop, Here, on_each_virtual_loop

from mcpio import Context, NoBackChannel, Server
from mcpio.app import TaskOptions
from mcpio.apps import ViewConnection, pump
from mcpio.types import CallToolRequest, ElicitFormRequest, ElicitSchema, Tool

URI = "r://1"
eras = pytest.mark.parametrize("era", ["handshake", "stateless"])
turns = pytest.mark.parametrize("count", range(0, 12, 2))


def make_server() -> Server:
    server = Server("s")
    server.resource(URI, name="one")(lambda: "one")
    return server


class Part:
    """A part of the program that listens to the resource until it is left or cancelled."""

    def __init__(self, here: Here, tasks: Any, client: Any) -> None:
        self.heard = 0
        self._client = client
        self.began, self._left, self.over = here.event(), here.event(), here.event()
        self._task = tasks.spawn(self._run())

    async def _run(self) -> None:
        try:
            async with self._client.listen(uris=[URI]) as changes:
                self.began.set()
                async for _ in changes:
                    self.heard += 1
        finally:
            self.over.set()

    async def cancel(self) -> None:
        self._task.cancel()
        await self.over.wait()


async def give_way(here: Here, count: int) -> None:
    for _ in range(count):
        await here.checkpoint()


async def updated(here: Here, server: Server) -> int:
    """Report an update, and wait until everybody has heard; return how many were told."""
    await here.settle()
    told = server.notify_resource_updated(URI)
    await here.settle()
    return told


@turns
@eras
@on_each_virtual_loop
async def test_listener_that_leaves_and_comes_back_hears_of_updates(here: Here, era: str, count: int) -> None:
    server = make_server()
    async with here.served(server) as near, here.open_client(near, era=era) as client:
        for _ in range(3):
            async with client.listen(uris=[URI]):
                pass
            await give_way(here, count)
            async with client.listen(uris=[URI]) as changes:
                assert await updated(here, server) == 1
                await anext(changes)
        assert await updated(here, server) == 0


@turns
@eras
@on_each_virtual_loop
async def test_listener_cancelled_at_any_turn_costs_no_other(here: Here, era: str, count: int) -> None:
    server = make_server()
    async with here.served(server) as near, here.open_client(near, era=era) as client, here.tasks() as tasks:
        first, second = (Part(here, tasks, client) for _ in range(2))
        await give_way(here, count)
        await first.cancel()
        await updated(here, server)
        assert second.heard == 1
        await second.cancel()
        assert await updated(here, server) == 0


@turns
@eras
def test_subscriber_cancelled_at_any_turn_costs_no_other(era: str, count: int, each_virtual_loop: EachLoop) -> None:
    heard: list[Any] = []

    async def main(here: Here) -> None:
        server = make_server()
        async with (
            here.served(server) as near,
            here.open_client(near, era=era, on_notification=heard.append) as client,
            here.tasks() as tasks,
        ):
            outcomes: list[str] = []

            async def subscribe() -> None:
                await client.subscribe_resource(URI)
                outcomes.append("subscribed")

            first, _ = tasks.spawn(subscribe()), tasks.spawn(subscribe())
            await give_way(here, count)
            first.cancel()
            await updated(here, server)
            assert outcomes in (["subscribed"], ["subscribed"] * 2)
            assert len(heard) == 1
            # However often it subscribed, it ends that once.
            await client.unsubscribe_resource(URI)
            assert await updated(here, server) == 0
            assert len(heard) == 1

    each_virtual_loop.run(main, virtual=True)


@turns
@on_each_virtual_loop
async def test_end_of_a_subscription_cancelled_at_any_turn_leaves_it_usable(here: Here, count: int) -> None:
    server = make_server()
    async with (
        here.served(server) as near,
        here.open_client(near, era="handshake") as client,
        here.tasks() as tasks,
    ):
        await client.subscribe_resource(URI)
        ending = tasks.spawn(client.unsubscribe_resource(URI))
        await give_way(here, count)
        ending.cancel()
        part = Part(here, tasks, client)
        await updated(here, server)
        assert part.heard == 1
        await part.cancel()
        assert await updated(here, server) == 0


@eras
@on_each_virtual_loop
async def test_calls_on_an_ended_client_raise_no_back_channel(here: Here, era: str) -> None:
    async with here.drivers.memory_client(make_server(), era=era) as client:
        await client.aclose()
        for wanted in ({"tools": True}, {"uris": [URI]}, {"tools": True, "uris": [URI], "keep": True}):
            with pytest.raises(NoBackChannel):
                await client.listen(**wanted).__aenter__()
        with pytest.raises(NoBackChannel):
            await client.subscribe_resource(URI)
        view: Any = None
        with pytest.raises(NoBackChannel):
            await pump(ViewConnection(Tool("t", {"type": "object"}), ()), client, view)


def test_state_of_a_task_that_asks_is_known_after_the_end(each_virtual_loop: EachLoop) -> None:
    server = Server("s", tasks=TaskOptions())

    @server.tool(task_support="required")
    async def ask(ctx: Context) -> str:
        return str(await ctx.elicit(ElicitFormRequest("?", ElicitSchema({}))))

    async def main(here: Here) -> None:
        async def wait(_: Any, __: Any) -> Any:
            await here.forever()

        async with here.drivers.memory_client(server, era="handshake", elicitation=wait) as client:
            task = await client.start_task(CallToolRequest("ask"))
            while (await task.status()).status != "input_required":
                await here.sleep(1)
            await client.aclose()
            assert (await task.next_state(None)).status == "input_required"

    each_virtual_loop.run(main, virtual=True)
