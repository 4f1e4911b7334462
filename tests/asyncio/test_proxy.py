"""``proxy`` on asyncio: sessions, and replacements of the server behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import pytest
from streams import run

from mcpio import Client, ConnectFailed, Context, McpError, Server
from mcpio.asyncio import memory_client, proxy
from mcpio.types.asking import ElicitResult


@attrs.frozen
class Answer:
    yes: bool


async def until(holds: Callable[[], bool]) -> None:
    """Let other tasks run until a condition holds."""
    while True:
        if holds():
            return
        await asyncio.sleep(0)


class Kitchens:
    """Opens a server that is another one each time, and says when it is to be replaced."""

    def __init__(self, *broken: int) -> None:
        self.opened = 0
        self.broken = broken
        self.clients: list[Client] = []
        self._due = asyncio.Event()

    @asynccontextmanager
    async def __call__(self, **options: Any) -> AsyncIterator[Client]:
        self.opened += 1
        number = self.opened
        if number in self.broken:
            raise ConnectFailed("burnt down")
        server = Server("kitchen", str(number))

        @server.tool
        def which() -> str:
            return str(number)

        @server.tool
        async def ask(ctx: Context) -> str:
            ctx.progress(1)
            return str(await ctx.elicit("Really?", Answer))

        @server.tool
        async def wait() -> None:
            await asyncio.Event().wait()

        async with memory_client(server, **options) as client:
            self.clients.append(client)
            yield client

    async def watch(self) -> None:
        await self._due.wait()
        self._due.clear()

    def has_opened_more_than(self, servers: int) -> bool:
        return self.opened > servers

    def replace(self) -> None:
        self._due.set()


async def which(client: Client) -> str:
    return (await client.call_tool("which")).text


def with_kitchens(main: Callable[[Kitchens], Any], *broken: int) -> None:
    async def made() -> None:
        await main(Kitchens(*broken))

    run(made)


def test_requests_progress_and_cancellation_pass_through_a_separate_session() -> None:
    async def main(kitchens: Kitchens) -> None:
        server = proxy(kitchens)
        async with memory_client(server) as client:
            assert client.server.info.name == "kitchen"
            assert [tool.name async for tool in client.tools()] == ["which", "ask", "wait"]
            assert await which(client) == await which(client) == "2"
            call = asyncio.create_task(client.call_tool("wait"))
            await until(lambda: bool(kitchens.clients[-1].connection.pending.outgoing))
            call.cancel()
            await until(lambda: not (kitchens.clients[-1].connection.pending.outgoing))
        assert kitchens.opened == 2

    with_kitchens(main)


def test_a_server_behind_that_does_not_start_ends_the_serving() -> None:
    async def main(kitchens: Kitchens) -> None:
        with pytest.raises(ConnectFailed, match="burnt down"):
            async with memory_client(proxy(kitchens)):
                raise AssertionError

    with_kitchens(main, 1)


def test_a_dead_server_is_started_again_for_the_next_request() -> None:
    async def main(kitchens: Kitchens) -> None:
        async with memory_client(proxy(kitchens)) as client:
            assert await which(client) == "2"
            await kitchens.clients[-1].aclose()
            with pytest.raises(McpError):
                await which(client)
            assert await which(client) == "4"

    with_kitchens(main, 3)


def test_a_session_outlives_its_server_and_one_that_does_not_start(caplog: pytest.LogCaptureFixture) -> None:
    async def main(kitchens: Kitchens) -> None:
        changed: list[Any] = []
        async with memory_client(proxy(kitchens, watch=kitchens.watch), on_notification=changed.append) as client:
            assert await which(client) == "2"
            for given in ("3", "3", "5"):
                opened = kitchens.opened
                kitchens.replace()
                await until(partial(kitchens.has_opened_more_than, opened))
                assert await which(client) == given
            assert [type(each).__name__ for each in changed].count("ToolListChangedNotification") == 2
        assert all(each.ended is not None for each in kitchens.clients)

    with_kitchens(main, 4)
    assert "so the old one stays: burnt down" in caplog.text


def test_a_watch_that_fails_is_reported_and_the_server_stays(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise OSError("no such directory")

    async def main(kitchens: Kitchens) -> None:
        async with memory_client(proxy(kitchens, watch=fail)) as client:
            assert await which(client) == "2"

    with_kitchens(main)
    assert "watch= failed" in caplog.text


def test_questions_pass_through_to_the_user() -> None:
    asked: list[str] = []

    async def agree(_: object, request: Any) -> ElicitResult:
        asked.append(request.message)
        return ElicitResult(action="decline")

    async def main(kitchens: Kitchens) -> None:
        async with memory_client(proxy(kitchens), elicitation=agree) as client:
            await client.call_tool("ask")

    with_kitchens(main)
    assert asked == ["Really?"]
