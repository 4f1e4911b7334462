"""A proxy ends what it started together with the attempt that started it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from eachloop import EachLoop, Here, on_each_virtual_loop

from mcpio import Client, RequestError, Server


class Kitchens:
    """Opens a server that is another one each time. The next one hangs, or stalls when it is asked for ``stalls``."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self.clients: list[Client] = []
        self.stalls = ""
        self.hangs = False
        self.stalled = here.event()
        self._replace = here.event()

    async def watch(self) -> None:
        await self._replace.wait()
        self._replace = self._here.event()

    async def replace(self) -> None:
        """Have the server replaced, as far as no time need pass."""
        self._replace.set()
        await self._here.settle()

    @asynccontextmanager
    async def __call__(self, **options: Any) -> AsyncIterator[Client]:
        server, number = Server("kitchen", "1"), len(self.clients)
        stalls = self.stalls
        if self.hangs:
            await self._here.forever()

        @server.middleware
        async def stall(ctx: Any, request: Any, call_next: Any) -> Any:
            if ctx.method == stalls:
                self.stalled.set()
                await self._here.forever()
            return await call_next(request)

        @server.tool
        def which() -> str:
            return str(number)

        @server.resource("bench://notes")
        def notes() -> str:
            return ""

        async with self._here.drivers.memory_client(server, **options) as client:
            self.clients.append(client)
            yield client

    @property
    def alive(self) -> list[int]:
        return [number for number, client in enumerate(self.clients) if not client.connection.closed]


async def which(client: Client) -> str:
    return (await client.call_tool("which")).text


@pytest.mark.parametrize("method", ["logging/setLevel", "resources/subscribe"])
@on_each_virtual_loop
async def test_replacement_that_stalls_after_its_handshake_is_ended(here: Here, method: str) -> None:
    kitchens = Kitchens(here)
    server = here.drivers.proxy(kitchens, watch=kitchens.watch)
    async with here.drivers.memory_client(server) as client:
        await client.set_log_level("error")
        await client.subscribe_resource("bench://notes")
        old = await which(client)
        kitchens.stalls = method
        for _ in range(3):
            await kitchens.replace()
            await kitchens.stalled.wait()
            await here.sleep(16)
            await here.settle()
            assert [str(each) for each in kitchens.alive] == [old]
            assert await which(client) == old
        kitchens.stalls = ""
        await kitchens.replace()
        assert await which(client) != old
        assert len(kitchens.alive) == 1


@on_each_virtual_loop
async def test_calls_while_a_server_hangs_fail_together_once_it_has_not_started_in_time(here: Here) -> None:
    kitchens = Kitchens(here)
    server = here.drivers.proxy(kitchens, watch=kitchens.watch)
    async with here.drivers.memory_client(server) as client, here.tasks() as tasks:
        kitchens.hangs = True
        failed: list[tuple[float, str]] = []

        async def call() -> None:
            with pytest.raises(RequestError) as refused:
                await which(client)
            failed.append((here.now() - began, refused.value.message))

        began = here.now()
        tasks.spawn(call())
        await here.sleep(5)
        for _ in range(3):
            tasks.spawn(call())
        await here.sleep(20)
        assert failed == [(15.0, "the server behind this proxy does not start: no answer within 15 s")] * 4
        kitchens.hangs = False
        assert await which(client) == str(len(kitchens.clients) - 1)


@pytest.mark.parametrize("has_old", [False, True])
def test_change_while_a_server_hangs_starts_it_again_at_once(
    each_virtual_loop: EachLoop, has_old: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(here: Here) -> None:
        kitchens = Kitchens(here)
        server = here.drivers.proxy(kitchens, watch=kitchens.watch)
        async with here.drivers.memory_client(server) as client, here.tasks() as tasks:
            found: list[str] = []

            async def call() -> None:
                found.append(await which(client))

            if has_old:
                await call()
                found.clear()
            began = here.now()
            kitchens.hangs = True
            await kitchens.replace()
            for _ in range(3):
                tasks.spawn(call())
            await here.sleep(5)
            assert found == []
            await kitchens.replace()
            kitchens.hangs = False
            await kitchens.replace()
            assert found == [str(len(kitchens.clients) - 1)] * 3
            assert here.now() - began == pytest.approx(5)
            assert len(kitchens.alive) == 1

    each_virtual_loop.run(main, virtual=True)
    assert not caplog.records


@pytest.mark.parametrize("method", ["logging/setLevel", "resources/subscribe"])
@on_each_virtual_loop
async def test_cancelled_request_ends_the_server_that_it_opened(here: Here, method: str) -> None:
    kitchens = Kitchens(here)
    async with here.drivers.memory_client(here.drivers.proxy(kitchens)) as client:
        await client.set_log_level("error")
        await client.subscribe_resource("bench://notes")
        await kitchens.clients[-1].aclose()
        kitchens.stalls = method
        with here.scope(5):
            await which(client)
        await here.settle()
        assert kitchens.alive == []
        kitchens.stalls = ""
        await which(client)
        assert len(kitchens.alive) == 1
