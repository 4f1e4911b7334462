"""Parts of a program that need one resource: they come, leave and are cancelled in any order, and all hear of it."""

from __future__ import annotations

from typing import Any

import pytest
from eachloop import EachLoop, Here

from mcpio import Server

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
def test_listener_that_leaves_and_comes_back_hears_of_updates(
    era: str, count: int, each_virtual_loop: EachLoop
) -> None:
    async def main(here: Here) -> None:
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

    each_virtual_loop.run(main, virtual=True)


@turns
@eras
def test_listener_cancelled_at_any_turn_costs_no_other(era: str, count: int, each_virtual_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        server = make_server()
        async with here.served(server) as near, here.open_client(near, era=era) as client, here.tasks() as tasks:
            first, second = (Part(here, tasks, client) for _ in range(2))
            await give_way(here, count)
            await first.cancel()
            await updated(here, server)
            assert second.heard == 1
            await second.cancel()
            assert await updated(here, server) == 0

    each_virtual_loop.run(main, virtual=True)


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
def test_end_of_a_subscription_cancelled_at_any_turn_leaves_it_usable(count: int, each_virtual_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
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

    each_virtual_loop.run(main, virtual=True)
