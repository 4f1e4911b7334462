"""P9 over every transport: clients opened in many tasks, closed from others in any order, leave nothing behind."""

from __future__ import annotations

import gc
import os
import random
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from carriers import CARRIERS, Connect, added, make_server, over, run, until
from runners import run_by

from mcpio import Client, ConnectionLost, NoBackChannel
from mcpio.trio import StdioClient

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes and sockets of POSIX")

FEW = {"stdio": 4}
"""The number of clients where each costs a process; other transports use more."""


class ActiveSet:
    """Clients, each opened by its own task and waiting for a call."""

    def __init__(self, size: int, chance: random.Random) -> None:
        self.clients: list[Client] = []
        self.outcomes: list[type[Exception]] = []
        self.size = size
        self.chance = chance
        self.has_all = trio.Event()

    async def come_and_go(self, connect: Connect, home: trio.Nursery) -> None:
        """Open all clients, then close them in random order."""
        async with trio.open_nursery() as tasks:
            for _ in range(self.size):
                tasks.start_soon(self.come, connect, home)
            await self.has_all.wait()
            for client in self.chance.sample(self.clients, self.size):
                tasks.start_soon(self.leave, client)

    async def come(self, connect: Connect, home: trio.Nursery) -> None:
        """Open a client and call a tool that never returns."""
        client = await connect(nursery=home)
        assert await added(client, 1, 2) == 3
        asked = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._wait, client, asked)
            await asked.wait()
            self.clients.append(client)
            if len(self.clients) == self.size:
                self.has_all.set()

    async def leave(self, client: Client) -> None:
        """Close a client in one of several ways, twice."""
        ways: list[Callable[[], Awaitable[object]]] = [
            lambda: trio.to_thread.run_sync(client.close),
            lambda: trio.to_thread.run_sync(client.close, 0.0),
            lambda: client.aclose(0.1),
            lambda: self._at_once(client, 0.0),
            lambda: self._at_once(client, 1.0),
        ]
        for way in self.chance.sample(ways, self.chance.randint(1, 3)):
            await way()
        await client.driver.wait_closed()
        client.close()

    async def _wait(self, client: Client, asked: trio.Event) -> None:
        try:
            await client.call_tool("wait", on_progress=lambda *_: asked.set(), timeout=None)
        except (ConnectionLost, NoBackChannel) as error:
            self.outcomes.append(type(error))

    async def _at_once(self, client: Client, grace: float) -> None:
        client.close(grace)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", CARRIERS)
def test_clients_closed_from_other_tasks_in_any_order_leave_nothing(kind: str, seed: int, tmp_path: Path) -> None:
    server = make_server()

    async def main() -> None:
        crowd = ActiveSet(FEW.get(kind, 12), random.Random(seed))
        async with over(kind, server, tmp_path) as connect, trio.open_nursery() as home:
            await crowd.come_and_go(connect, home)
            await until(lambda: not home.child_tasks and not server.sessions)
        assert crowd.outcomes == [ConnectionLost] * crowd.size
        assert all(client.ended is not None for client in crowd.clients)
        for client in crowd.clients:
            if isinstance(client, StdioClient):
                with pytest.raises(ProcessLookupError):
                    os.kill(client.child.pid, 0)

    open_before = _open()
    run(main)
    gc.collect()
    assert _open() == open_before
    assert not [each for each in threading.enumerate() if each is not threading.main_thread() and not each.daemon]


@pytest.mark.parametrize("kind", CARRIERS)
@run_by(run)
async def test_cancelled_nursery_of_a_client_ends_the_calls_of_other_tasks(kind: str, tmp_path: Path) -> None:
    one = ActiveSet(1, random.Random())
    async with over(kind, make_server(), tmp_path) as connect, trio.open_nursery() as callers:
        async with trio.open_nursery() as home:
            callers.start_soon(one.come, connect, home)
            await one.has_all.wait()
            home.cancel_scope.cancel()
        with trio.fail_after(5):
            await until(lambda: one.outcomes == [ConnectionLost])
    assert one.clients[0].ended is not None


def _open() -> int | None:
    """Return the number of open descriptors, or 0 where the system does not tell."""
    place = Path("/proc/self/fd")
    return len(os.listdir(place)) if place.exists() else None
