"""Clients that are used in another event loop than their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

import mcpio.asyncio
import mcpio.trio
from mcpio import Server
from mcpio.app.client import Client


async def call(client: Client) -> object:
    return await client.call_tool("look", timeout=1)


async def listen(client: Client) -> None:
    async with client.listen(tools=True):
        pass


async def close(client: Client) -> None:
    await client.aclose(0.1)


USES = [call, listen, close]


def server() -> Server:
    server = Server("other", "1")

    @server.tool
    def look() -> str:
        return "seen"

    return server


@pytest.mark.parametrize("use", USES)
def test_use_of_a_client_in_another_asyncio_loop_raises(use: Callable[[Client], Awaitable[Any]]) -> None:
    def elsewhere(client: Client) -> None:
        with pytest.raises(RuntimeError, match=r"belongs to another event loop: .*run_coroutine_threadsafe"):
            asyncio.run(asyncio.wait_for(use(client), 5))

    async def main() -> None:
        async with mcpio.asyncio.memory_client(server()) as client:
            await asyncio.to_thread(elsewhere, client)
            assert (await client.call_tool("look")).text == "seen"

    asyncio.run(main())


@pytest.mark.parametrize("use", USES)
def test_use_of_a_client_in_another_trio_run_raises(use: Callable[[Client], Awaitable[Any]]) -> None:
    def elsewhere(client: Client) -> None:
        with pytest.raises(RuntimeError, match=r"belongs to another event loop: .*trio\.from_thread\.run"):
            trio.run(use, client)

    async def main() -> None:
        async with mcpio.trio.memory_client(server()) as client:
            await trio.to_thread.run_sync(partial(elsewhere, client))
            assert (await client.call_tool("look")).text == "seen"

    trio.run(main)
