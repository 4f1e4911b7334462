"""Closing is tied to no task (P9): many clients, closed in any order, from anywhere, more than once."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
import trio
import trio.testing

from mcpio.app.client import Client
from mcpio.app.server import Server
from mcpio.trio import connect, open_transport, serve

server = Server("many")


@pytest.mark.parametrize("seed", range(10))
def test_any_number_of_clients_closed_in_any_order_from_anywhere(seed: int) -> None:
    """Clients in tasks of their own, in both shapes; closed by other tasks, threads and the loop, more than once."""
    chance = random.Random(seed)
    clients: list[Client] = []

    async def main() -> None:
        before = trio.lowlevel.current_statistics().tasks_living
        async with trio.open_nursery() as nursery:
            for number in range(20):
                near, far = trio.testing.memory_stream_pair()
                nursery.start_soon(serve, server, far)
                nursery.start_soon(hold_block if number % 2 else hold_none, near, nursery)
            while len(clients) < 20:
                await trio.lowlevel.checkpoint()
            for client in chance.sample(clients * 2, 40):
                nursery.start_soon(chance.choice([close_here, close_in_thread, close_later, wait_too]), client)
        assert trio.lowlevel.current_statistics().tasks_living == before

    async def hold_block(near: Any, _: trio.Nursery) -> None:
        async with open_transport(near) as client:
            clients.append(client)
            await client.driver.wait_closed()

    async def hold_none(near: Any, nursery: trio.Nursery) -> None:
        clients.append(await connect(near, nursery=nursery))

    async def close_here(client: Client) -> None:
        client.close()

    async def close_later(client: Client) -> None:
        trio.lowlevel.current_trio_token().run_sync_soon(client.close)

    async def wait_too(client: Client) -> None:
        await client.aclose(0)

    async def close_in_thread(client: Client) -> None:
        await trio.to_thread.run_sync(client.close)

    trio.run(main)
    assert len(clients) == 20
    for client in clients:
        client.close()
    thread = threading.Thread(target=clients[0].close)
    thread.start()
    thread.join()
