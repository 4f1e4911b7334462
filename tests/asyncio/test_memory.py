"""A client and a server in one process on asyncio: the same conversation, without a transport and without time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lifespans import Scope
from streams import run

from mcpio import ConnectionLost, Context, NoBackChannel, RequestTimeout, Server
from mcpio.asyncio import memory_client
from mcpio.types.content import TextContent


def a_server(**options: Any) -> Server:
    server = Server("memory", **options)

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.tool
    async def never_ends() -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            server.instructions = "cancelled"

    @server.tool
    async def count(to: int, ctx: Context) -> str:
        for number in range(1, to + 1):
            ctx.progress(number, to)
            await asyncio.sleep(1)
        return "done"

    return server


def test_memory_client_calls_and_lists_tools() -> None:
    progress: list[float] = []

    async def main() -> None:
        async with memory_client(a_server()) as client:
            assert client.server.info.name == "memory"
            assert {tool.name async for tool in client.tools()} == {"echo", "never_ends", "count"}
            assert (await client.call_tool("echo", {"text": "hi"})).content == (TextContent("hi"),)
            await client.call_tool("count", {"to": 2}, on_progress=lambda *report: progress.append(report[0]))
            results = await asyncio.gather(*(client.call_tool("echo", {"text": str(number)}) for number in range(50)))
            assert [result.text for result in results] == [str(number) for number in range(50)]

    run(main)
    assert progress == [1, 2]


def test_a_call_that_times_out_and_one_that_is_cancelled_end_their_handlers() -> None:
    async def main() -> None:
        server = a_server()
        async with memory_client(server) as client:
            with pytest.raises(RequestTimeout):
                await client.call_tool("never_ends", timeout=5.0)
            await asyncio.sleep(1)
            assert server.instructions == "cancelled"
            server.instructions = ""
            call = asyncio.create_task(client.call_tool("never_ends"))
            await asyncio.sleep(1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await asyncio.sleep(1)
            assert server.instructions == "cancelled"

    run(main)


def test_end_of_the_block_cancels_running_handlers() -> None:
    async def main() -> None:
        server = a_server()
        async with memory_client(server, era="handshake") as client:
            call = asyncio.create_task(client.call_tool("never_ends"))
            await asyncio.sleep(1)
        with pytest.raises(ConnectionLost):
            await call
        assert server.instructions == "cancelled"
        with pytest.raises(NoBackChannel):
            await client.ping()

    run(main)


def test_lifespan_is_entered_for_the_block_and_its_exception_propagates_unwrapped() -> None:
    async def main() -> None:
        scope = Scope()
        async with memory_client(a_server(lifespan=scope), era="handshake") as client:
            await client.ping()
            assert scope.seen == ["entered"]
        assert scope.seen == ["entered", "left"]
        with pytest.raises(KeyError, match="mine"):
            async with memory_client(a_server(), era="handshake"):
                raise KeyError("mine")
        wrong: Any = object()
        with pytest.raises(TypeError, match="server= takes Server"):
            memory_client(wrong, era="handshake")

    run(main)
