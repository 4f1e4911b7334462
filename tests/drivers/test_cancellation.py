"""Cancelled callers, blocks and handlers, on each event loop."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
from eachloop import EachLoop, Here

from mcpio import Context, Server


def make_server(ended: list[str]) -> Server:
    server = Server("s")

    @server.tool
    async def never_ends(ctx: Context) -> None:
        ctx.progress(1)
        try:
            await ctx.sleep(1e6)
        finally:
            ended.append("never_ends")

    @server.tool
    async def fails_when_cancelled(ctx: Context) -> None:
        try:
            await ctx.sleep(1e6)
        finally:
            raise ValueError("in the end")

    @server.tool
    def echo(text: str) -> str:
        return text

    return server


@pytest.mark.req("CANC-01", "CANC-05")
@pytest.mark.parametrize("turns", range(0, 24, 3))
def test_call_cancelled_at_any_turn_leaves_the_client_usable(turns: int, each_virtual_loop: EachLoop) -> None:
    ended: list[str] = []
    server = make_server(ended)

    async def main(here: Here) -> None:
        async with here.drivers.memory_client(server) as client, here.tasks() as tasks:
            call = tasks.spawn(_quiet(client.call_tool("never_ends", timeout=None)))
            for _ in range(turns):
                await here.checkpoint()
            call.cancel()
            assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"
            await here.settle()
            (session,) = server.sessions
            assert (client.health().asked, session.health().serving) == (0, 0)

    each_virtual_loop.run(main, virtual=True)
    assert len(ended) <= 1


async def _quiet(call: Any) -> None:
    await call


@pytest.mark.req("CANC-05")
def test_cancelled_call_ends_its_handler_and_no_other(each_virtual_loop: EachLoop) -> None:
    ended: list[str] = []

    async def main(here: Here) -> None:
        async with here.drivers.memory_client(make_server(ended)) as client, here.tasks() as tasks:
            began = here.event()
            other = tasks.spawn(_quiet(client.call_tool("never_ends", timeout=None)))
            with here.scope(5) as scope:
                await client.call_tool("never_ends", timeout=None, on_progress=lambda *_: began.set())
            assert scope.cancelled_caught
            await began.wait()
            await here.settle()
            assert ended == ["never_ends"]
            other.cancel()

    each_virtual_loop.run(main, virtual=True)
    assert ended == ["never_ends"] * 2


@pytest.mark.req("CANC-05")
def test_handler_that_raises_during_cancellation_affects_nothing_else(
    each_virtual_loop: EachLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(here: Here) -> None:
        async with here.drivers.memory_client(make_server([])) as client:
            with here.scope(1) as scope:
                await client.call_tool("fails_when_cancelled")
            assert scope.cancelled_caught
            assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"

    each_virtual_loop.run(main, virtual=True)
    assert [record.getMessage() for record in caplog.records] == ["the tool 'fails_when_cancelled' failed"]


def test_cancelled_block_ends_the_handlers_of_its_calls(each_virtual_loop: EachLoop) -> None:
    ended: list[str] = []

    async def main(here: Here) -> None:
        with here.scope(1) as scope:
            async with here.drivers.memory_client(make_server(ended)) as client:
                await client.call_tool("never_ends", timeout=None)
        assert scope.cancelled_caught
        assert 1 <= here.now() < 2

    each_virtual_loop.run(main, virtual=True)
    assert ended == ["never_ends"]


OPEN: dict[str, Callable[[Here, int], Any]] = {
    "tcp": lambda here, port: here.drivers.open_tcp("127.0.0.1", port),
    "http": lambda here, port: here.open_http(f"http://127.0.0.1:{port}/mcp", trust_env=False),
    "websocket": lambda here, port: here.drivers.open_websocket(f"ws://127.0.0.1:{port}/mcp"),
}


@pytest.mark.parametrize("transport", OPEN)
def test_opening_cancelled_at_any_turn_leaves_no_socket(transport: str, each_loop: EachLoop) -> None:
    """Of a server that accepts and never answers. A socket that is left would be a warning, and so an error."""

    async def main(here: Here, port: int) -> None:
        async def hold() -> None:
            async with OPEN[transport](here, port):
                pytest.fail("there was no handshake")

        async with here.tasks() as tasks:
            for turns in range(20):
                opening = tasks.spawn(hold())
                for _ in range(turns):
                    await here.checkpoint()
                opening.cancel()

    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        each_loop.run(lambda here: main(here, listening.getsockname()[1]))
