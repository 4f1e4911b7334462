"""``open_servers`` and ``proxy`` on asyncio: failures and restarts of one server, sessions, and replacements."""

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
from mcpio.asyncio import memory_client, open_servers, proxy
from mcpio.backoff import Backoff
from mcpio.types.elicitation import ElicitResult


@attrs.frozen
class Answer:
    yes: bool


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds of which nobody tells."""
    while True:
        if holds():
            return
        await asyncio.sleep(0)


def a_server(name: str, *tools: str) -> Server:
    server = Server(name)
    for tool in tools:
        server.tool(partial(_answer, f"{tool} of {name}"), name=tool)
    return server


def _answer(text: str) -> str:
    return text


# Many servers


class Source:
    """Opens a client, and may fail, hang, or lose it."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = [*outcomes]
        self.clients: list[Client] = []

    @asynccontextmanager
    async def __call__(self, **options: Any) -> AsyncIterator[Client]:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is None:
            await asyncio.Event().wait()
        async with memory_client(outcome, **options) as client:
            self.clients.append(client)
            yield client


def test_tools_of_all_servers_are_called_by_public_names() -> None:
    async def main() -> None:
        config = {"a": Source(a_server("A", "read", "same")), "b c": Source(a_server("B", "same"))}
        async with open_servers(config) as servers:
            assert (await servers.call_tool("b-c__same")).text == "same of B"
            assert [tool.name for tool in await servers.tools()] == ["a__read", "a__same", "b-c__same"]
            with pytest.raises(LookupError, match="a__none"):
                await servers.call_tool("a__none")
            wrong: Any = {"time": 1}
            with pytest.raises(TypeError, match="time"):
                await servers.tools(**wrong)

    run(main)


def test_failures_of_some_servers_leave_the_others_alone() -> None:
    async def main() -> None:
        config: dict[str, Any] = {
            "good": Source(a_server("G", "work")),
            "hanging": Source(None),
            "failing": Source(ConnectFailed("out of order")),
            "broken": Source(ZeroDivisionError("oops")),
        }
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with open_servers(config, start_timeout=3) as servers:
            assert 3 <= loop.time() - began < 4
            assert (await servers.call_tool("good__work")).text == "work of G"
            states = {name: servers.state(name) for name in servers}
            assert states == {"good": "ready", "hanging": "starting", "failing": "failed", "broken": "failed"}
            with pytest.raises(ConnectFailed, match="out of order"):
                await servers.ready("failing")
            assert "oops" in str(servers.error("broken"))

    run(main)


def test_a_failure_at_the_start_is_raised_on_request_and_other_errors_are_not_wrapped() -> None:
    async def main() -> None:
        with pytest.raises(ConnectFailed, match="out of order"):
            async with open_servers({"a": Source(ConnectFailed("out of order"))}, on_failure="raise"):
                raise AssertionError
        with pytest.raises(KeyError):
            async with open_servers({"a": Source(a_server("A"))}):
                raise KeyError
        wrong: Any = "wrong"
        with pytest.raises(ValueError, match="on_failure"):
            async with open_servers({}, on_failure=wrong):
                raise AssertionError

    run(main)


def test_a_lost_server_is_restarted_by_the_policy() -> None:
    async def main() -> None:
        server = a_server("A", "work")
        source = Source(server, ConnectFailed("not yet"), server)
        changes: list[str] = []
        config = {"a": source}
        async with open_servers(
            config, restart=Backoff(tries=5), on_change=lambda _, state: changes.append(state)
        ) as servers:
            source.clients[0].close()
            await source.clients[0].driver.wait_closed()
            await until(lambda: servers.state("a") != "ready")
            assert (await (await servers.ready("a")).call_tool("work")).text == "work of A"
        assert changes == ["ready", "restarting", "restarting", "ready"]

    run(main)


# A proxy


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
