"""Many servers behind one client: what one of them does affects no other."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from eachloop import EachLoop, Here, on_each_virtual_loop

from mcpio import Client, ConnectFailed, Server, TextContent
from mcpio.app import ServersConfig
from mcpio.backoff import Backoff
from mcpio.errors import ConnectionLost, McpError, ToolError
from mcpio.types import ToolListChangedNotification


def _server(name: str, *tools: str) -> Server:
    server = Server(name, "1")

    def answer(tool: str) -> Callable[[], str]:
        return lambda: f"{tool} of {name}"

    for tool in tools:
        server.tool(answer(tool), name=tool)

    @server.prompt
    def greet(who: str) -> str:
        return f"{name} greets {who}"

    @server.resource(f"note://{name}")
    def note() -> str:
        return name

    return server


class _Source:
    """A source whose client never comes: it waits for ever, or fails."""

    def __init__(self, here: Here, error: Exception | None = None) -> None:
        self.here = here
        self.error = error

    def __call__(self, **options: Any) -> _Source:
        return self

    async def __aenter__(self) -> Client:
        await self.here.checkpoint()
        if self.error is not None:
            raise self.error
        await self.here.forever()
        raise AssertionError

    async def __aexit__(self, *_: object) -> None:
        raise AssertionError


@on_each_virtual_loop
async def test_tools_of_all_servers_called_by_public_names(here: Here) -> None:
    config = {
        "a": partial(here.drivers.memory_client, _server("A", "read", "same")),
        "b c": partial(here.drivers.memory_client, _server("B", "same")),
    }
    async with here.drivers.open_servers(config) as servers:
        tools = await servers.tools()
        assert [(tool.name, tool.server, tool.item.name) for tool in tools] == [
            ("a__read", "a", "read"),
            ("a__same", "a", "same"),
            ("b-c__same", "b c", "same"),
        ]
        assert (await servers.call_tool("b-c__same")).text == "same of B"
        assert (await servers.call_tool("a__same")).text == "same of A"
        prompts = await servers.prompts()
        assert [prompt.name for prompt in prompts] == ["a__greet", "b-c__greet"]
        (message,) = (await servers.get_prompt("b-c__greet", {"who": "you"})).messages
        assert message.content == TextContent("B greets you")
        resources = await servers.resources()
        assert [(each.server, each.item.uri) for each in resources] == [("a", "note://A"), ("b c", "note://B")]
        assert list(servers) == ["a", "b c"]
        assert len(servers) == 2
        for unknown in ("a__none", "c__same"):
            with pytest.raises(LookupError, match=unknown):
                await servers.call_tool(unknown)
        with pytest.raises(KeyError):
            servers["c"]
        with pytest.raises(TypeError, match="time"):
            await servers.tools(time=1)


@on_each_virtual_loop
async def test_tool_called_before_it_was_listed(here: Here) -> None:
    async with here.drivers.open_servers({"a": partial(here.drivers.memory_client, _server("A", "read"))}) as servers:
        assert (await servers.call_tool("a__read")).text == "read of A"


def test_result_is_returned_as_the_type_asked_for(each_virtual_loop: EachLoop) -> None:
    server = Server("S")

    @server.tool
    def count(numbers: list[int]) -> dict[str, int]:
        return {"found": len(numbers)}

    async def main(here: Here) -> None:
        async with here.drivers.open_servers({"a": partial(here.drivers.memory_client, server)}) as servers:
            assert await servers.call_tool("a__count", {"numbers": [1, 2]}, returns=dict[str, int]) == {"found": 2}
            with pytest.raises(ToolError, match="numbers"):
                await servers.call_tool("a__count", {"numbers": "x"}, returns=dict[str, int])

    each_virtual_loop.run(main, virtual=True)


def test_failures_of_some_servers_leave_the_others_alone(
    each_virtual_loop: EachLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(here: Here) -> None:
        config = ServersConfig({"faulty": {}, "off": {"command": "x", "disabled": True}})
        sources: dict[str, Any] = {
            "good": partial(here.drivers.memory_client, _server("G", "work")),
            "hanging": _Source(here),
            "failing": _Source(here, ConnectFailed("out of order")),
            "broken": _Source(here, ZeroDivisionError("oops")),
        }

        class Both(dict[str, Any]):
            def __getitem__(self, name: str) -> Any:
                return config[name] if name in config else super().__getitem__(name)

        started = here.now()
        changes: list[tuple[str, str]] = []
        both = Both({**dict.fromkeys(config), **sources})
        async with here.drivers.open_servers(
            both, start_timeout=3, on_change=lambda *change: changes.append(change)
        ) as servers:
            assert here.now() - started == pytest.approx(3)  # what the hanging one was given
            assert (await servers.call_tool("good__work")).text == "work of G"
            states = {name: servers.state(name) for name in servers}
            assert states == {
                "faulty": "failed",
                "good": "ready",
                "hanging": "starting",
                "failing": "failed",
                "broken": "failed",
            }
            said = {name: str(servers.error(name)) for name in servers if servers.error(name)}
            assert (
                said["faulty"] == "the configuration: the server 'faulty': has neither command nor url; it has nothing"
            )
            assert said["broken"] == "ZeroDivisionError: oops"
            with pytest.raises(ConnectFailed, match="the server 'failing' is not ready: out of order"):
                servers["failing"]
            with pytest.raises(ConnectFailed, match="the server 'hanging' is not ready: starting"):
                await servers.call_tool("hanging__x")
            with pytest.raises(ConnectFailed):
                await servers.ready("broken")
            assert ("good", "ready") in changes
            assert ("failing", "failed") in changes

    each_virtual_loop.run(main, virtual=True)
    assert caplog.records == []


@on_each_virtual_loop
async def test_failure_at_the_start_raised_on_request(here: Here) -> None:
    config: dict[str, Any] = {
        "good": partial(here.drivers.memory_client, _server("G")),
        "failing": _Source(here, ConnectFailed("out of order")),
        "hanging": _Source(here),
    }
    with pytest.raises(ConnectFailed, match="the server 'failing' is not ready: out of order"):
        async with here.drivers.open_servers(config, on_failure="raise"):
            pytest.fail("the block began")
    assert here.now() < 1
    async with here.drivers.open_servers({"good": config["good"]}, on_failure="raise") as servers:
        assert servers.state("good") == "ready"
    ignore: Any = "ignore"
    with pytest.raises(ValueError, match="on_failure must be 'keep' or 'raise', not 'ignore'"):
        async with here.drivers.open_servers({}, on_failure=ignore):
            pytest.fail("the block began")


@on_each_virtual_loop
async def test_late_server_joins_late(here: Here) -> None:
    @asynccontextmanager
    async def late(**options: Any) -> AsyncIterator[Client]:
        await here.sleep(60)
        async with here.drivers.memory_client(_server("L", "work"), **options) as client:
            yield client

    async with here.drivers.open_servers({"late": late}) as servers:
        assert await servers.tools() == []
        client = await servers.ready("late")
        assert client is servers["late"]
        assert [tool.name for tool in await servers.tools()] == ["late__work"]
        assert here.now() >= 60


class _Dying:
    """A server that can be ended, and started again a number of times."""

    def __init__(self, here: Here, starts: int) -> None:
        self.here = here
        self.left = starts
        self.clients: list[Client] = []

    @asynccontextmanager
    async def __call__(self, **options: Any) -> AsyncIterator[Client]:
        await self.here.checkpoint()
        self.left -= 1
        if self.left < 0:
            raise ConnectFailed("worn out")
        async with self.here.drivers.memory_client(_server("D", "work"), **options) as client:
            self.clients.append(client)
            yield client


@on_each_virtual_loop
async def test_lost_server_restarted_by_the_policy(here: Here) -> None:
    dying, changes = _Dying(here, 2), list[str]()
    config: dict[str, Any] = {"dying": dying, "good": partial(here.drivers.memory_client, _server("G", "work"))}
    policy = Backoff(tries=2, base=1.0)
    async with here.drivers.open_servers(
        config, restart=policy, on_change=lambda _, what: changes.append(what)
    ) as servers:
        dying.clients[0].close()
        await here.settle()
        assert servers.state("dying") == "restarting"
        assert isinstance(servers.error("dying"), ConnectionLost)
        assert (await servers.call_tool("good__work")).text == "work of G"
        assert await servers.ready("dying") is dying.clients[1]
        assert servers.error("dying") is None
        dying.clients[1].close()
        await here.settle()
        with pytest.raises(ConnectFailed, match="worn out"):
            await servers.ready("dying")
        assert servers.state("dying") == "failed"
        assert changes.count("restarting") >= 2
        assert (await servers.call_tool("good__work")).text == "work of G"


@on_each_virtual_loop
async def test_lost_server_is_not_ready_while_its_client_still_closes(here: Here) -> None:
    changes: list[str] = []

    @asynccontextmanager
    async def slow_to_leave(**options: Any) -> AsyncIterator[Client]:
        async with here.drivers.memory_client(_server("A", "read"), **options) as client:
            yield client
        await here.settle()

    async with here.drivers.open_servers(
        {"a": slow_to_leave},
        restart=Backoff(tries=2, base=0.01),
        on_change=lambda _, change: changes.append(change),
    ) as servers:
        first = servers["a"]
        assert (await servers.call_tool("a__read")).text == "read of A"
        first.connection.abort()
        first.driver.wake()
        # Before any task has run.
        assert servers.state("a") == "restarting"
        assert isinstance(servers.error("a"), ConnectionLost)
        with pytest.raises(ConnectFailed, match="'a' is not ready: the connection is closed"):
            servers["a"]
        with pytest.raises(ConnectFailed, match="'a' is not ready"):
            await servers.call_tool("a__read")
        with pytest.raises(ConnectFailed, match="'a' is not ready"):
            await servers.get_prompt("a__greet", {"who": "you"})
        assert await servers.tools() == []
        second = await servers.ready("a")
        assert second is not first
        assert (await servers.call_tool("a__read")).text == "read of A"
        assert servers.error("a") is None
        assert changes == ["ready", "restarting", "ready"]


@on_each_virtual_loop
async def test_state_tells_a_loss_before_the_client_has_closed(here: Here) -> None:
    @asynccontextmanager
    async def never_leaves(**options: Any) -> AsyncIterator[Client]:
        async with here.drivers.memory_client(_server("A", "read"), **options) as client:
            yield client
        await here.forever()

    for restart, state in ((Backoff(tries=2, base=0.01), "restarting"), (None, "failed")):
        changes: list[str] = []

        def note(_: str, change: str, changes: list[str] = changes) -> None:
            changes.append(change)

        async with here.drivers.open_servers({"a": never_leaves}, restart=restart, on_change=note) as servers:
            client = servers["a"]
            client.connection.abort()
            client.driver.wake()
            assert servers.state("a") == state
            await here.settle()
            assert changes == ["ready", state]


def test_failed_restart_is_tried_again(each_virtual_loop: EachLoop) -> None:
    server = _server("A", "work")
    outcomes: list[Any] = [server, ConnectFailed("not yet"), server]
    clients: list[Client] = []
    changes: list[str] = []

    async def main(here: Here) -> None:
        @asynccontextmanager
        async def source(**options: Any) -> AsyncIterator[Client]:
            outcome = outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            async with here.drivers.memory_client(outcome, **options) as client:
                clients.append(client)
                yield client

        async with here.drivers.open_servers(
            {"a": source}, restart=Backoff(tries=5), on_change=lambda _, what: changes.append(what)
        ) as servers:
            clients[0].close()
            await here.settle()
            assert servers.state("a") == "restarting"
            with pytest.raises(ConnectFailed, match="the server 'a' is not ready"):
                await servers.call_tool("a__work")
            assert (await (await servers.ready("a")).call_tool("work")).text == "work of A"

    each_virtual_loop.run(main, virtual=True)
    assert changes == ["ready", "restarting", "restarting", "ready"]


@on_each_virtual_loop
async def test_end_of_the_block_closes_all_servers_and_is_told_to_those_that_wait(here: Here) -> None:
    dying = _Dying(here, 2)
    outcomes: list[str] = []
    config: dict[str, Any] = {"dying": dying, "good": partial(here.drivers.memory_client, _server("G"))}

    async def wait(servers: Any) -> None:
        try:
            await servers.ready("dying")
        except ConnectFailed as error:
            outcomes.append(str(error))

    async with here.tasks() as tasks:
        async with here.drivers.open_servers(config, restart=Backoff(base=1e6, cap=1e6)) as servers:
            dying.clients[0].close()
            await here.settle()
            tasks.spawn(wait(servers))
            await here.checkpoint()
        assert [servers.state(name) for name in servers] == ["closed", "closed"]
    assert outcomes == ["the server 'dying' is not ready: closed"]


@on_each_virtual_loop
async def test_lost_server_without_a_policy_has_failed(here: Here) -> None:
    dying = _Dying(here, 1)
    async with here.drivers.open_servers({"dying": dying}) as servers:
        dying.clients[0].close()
        await here.settle()
        assert servers.state("dying") == "failed"
        with pytest.raises(ConnectFailed, match="the connection is closed"):
            servers["dying"]


def test_changed_lists_reported_with_their_server(
    each_virtual_loop: EachLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(here: Here) -> None:
        server, changes, seen = _server("A", "one"), list[tuple[str, str]](), list[Any]()

        def change(name: str, what: str) -> None:
            changes.append((name, what))
            if what == "prompts":
                raise RuntimeError("careless")

        config = {"a": partial(here.drivers.memory_client, server)}
        async with here.drivers.open_servers(config, on_change=change, on_notification=seen.append) as servers:
            await servers.tools()
            server.tool(lambda: "x", name="two")
            server.prompt(lambda: "x", name="more")
            await here.settle()
            assert ("a", "tools") in changes
            assert ("a", "prompts") in changes
            assert any(isinstance(each, ToolListChangedNotification) for each in seen)
            assert (await servers.call_tool("a__two")).text == "x"

    each_virtual_loop.run(main, virtual=True)
    assert [record.message for record in caplog.records] == ["on_change failed for the server 'a'"]


def test_failing_list_affects_no_other(each_virtual_loop: EachLoop, caplog: pytest.LogCaptureFixture) -> None:
    bad = _server("B", "work")

    async def main(here: Here) -> None:
        async def refuse(scope: Any, request: Any, call_next: Any) -> Any:
            await here.checkpoint()
            raise McpError("no list today")

        config: dict[str, Any] = {
            "bad": partial(_with_middleware, here, bad, refuse),
            "bare": partial(here.drivers.memory_client, Server("bare", "1")),
            "good": partial(here.drivers.memory_client, _server("G", "work")),
        }
        async with here.drivers.open_servers(config) as servers:
            assert [tool.name for tool in await servers.tools()] == ["good__work"]

    with caplog.at_level(logging.WARNING):
        each_virtual_loop.run(main, virtual=True)
    assert "the server 'bad' does not list what it offers" in caplog.text


@on_each_virtual_loop
async def test_server_lost_while_lists_are_asked_for_is_no_error(here: Here) -> None:
    config = {name: partial(here.drivers.memory_client, _server(name, "read")) for name in ("a", "b")}
    async with here.drivers.open_servers(config) as servers:
        first: Any = servers["a"]
        listed = first.tools

        def tools(**call: Any) -> Any:
            servers._become("b", "failed")
            return listed(**call)

        first.tools = tools
        assert "a" in {tool.server for tool in await servers.tools()}


@asynccontextmanager
async def _with_middleware(here: Here, server: Server, layer: Any, **options: Any) -> AsyncIterator[Client]:
    async with here.drivers.memory_client(server, **options) as client:
        client._middleware = (layer,)
        yield client


@on_each_virtual_loop
async def test_body_error_propagates_unwrapped(here: Here) -> None:
    config: dict[str, Any] = {"good": partial(here.drivers.memory_client, _server("G")), "hanging": _Source(here)}
    with pytest.raises(ZeroDivisionError):
        async with here.drivers.open_servers(config, start_timeout=0.1):
            raise ZeroDivisionError
