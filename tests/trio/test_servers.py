"""Many servers behind one client: what one of them does is nobody else's trouble."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from mcpio import Client, ConnectFailed, Server, TextContent
from mcpio.app import ServersConfig
from mcpio.backoff import Backoff
from mcpio.errors import ConnectionLost, McpError, ToolError
from mcpio.trio import Servers, memory_client, open_servers
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


def _run(work: Callable[[], Any]) -> None:
    trio.run(work, clock=trio.testing.MockClock(autojump_threshold=0))


class _Source:
    """A source whose client never comes: it waits for ever, or fails."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def __call__(self, **options: Any) -> _Source:
        return self

    async def __aenter__(self) -> Client:
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        await trio.sleep_forever()
        raise AssertionError

    async def __aexit__(self, *_: object) -> None:
        raise AssertionError


_hanging = _Source(None)
_failing = _Source(ConnectFailed("out of order"))
_broken = _Source(ZeroDivisionError("oops"))


def test_tools_of_all_servers_called_by_public_names() -> None:
    async def main() -> None:
        config = {
            "a": partial(memory_client, _server("A", "read", "same")),
            "b c": partial(memory_client, _server("B", "same")),
        }
        async with open_servers(config) as servers:
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

    _run(main)


def test_tool_called_before_it_was_listed() -> None:
    async def main() -> None:
        async with open_servers({"a": partial(memory_client, _server("A", "read"))}) as servers:
            assert (await servers.call_tool("a__read")).text == "read of A"

    _run(main)


def test_result_is_returned_as_the_type_asked_for() -> None:
    server = Server("S")

    @server.tool
    def count(numbers: list[int]) -> dict[str, int]:
        return {"found": len(numbers)}

    async def main() -> None:
        async with open_servers({"a": partial(memory_client, server)}) as servers:
            assert await servers.call_tool("a__count", {"numbers": [1, 2]}, returns=dict[str, int]) == {"found": 2}
            with pytest.raises(ToolError, match="numbers"):
                await servers.call_tool("a__count", {"numbers": "x"}, returns=dict[str, int])

    _run(main)


def test_failures_of_some_servers_leave_the_others_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        config = ServersConfig({"faulty": {}, "off": {"command": "x", "disabled": True}})
        sources: dict[str, Any] = {
            "good": partial(memory_client, _server("G", "work")),
            "hanging": _hanging,
            "failing": _failing,
            "broken": _broken,
        }

        class Both(dict[str, Any]):
            def __getitem__(self, name: str) -> Any:
                return config[name] if name in config else super().__getitem__(name)

        started = trio.current_time()
        changes: list[tuple[str, str]] = []
        both = Both({**dict.fromkeys(config), **sources})
        async with open_servers(both, start_timeout=3, on_change=lambda *change: changes.append(change)) as servers:
            assert trio.current_time() - started == 3  # what the hanging one was given
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

    _run(main)
    assert caplog.records == []


def test_failure_at_the_start_raised_on_request() -> None:
    async def main() -> None:
        config: dict[str, Any] = {
            "good": partial(memory_client, _server("G")),
            "failing": _failing,
            "hanging": _hanging,
        }
        with pytest.raises(ConnectFailed, match="the server 'failing' is not ready: out of order"):
            async with open_servers(config, on_failure="raise"):
                pytest.fail("the block began")
        assert trio.current_time() < 1
        async with open_servers({"good": config["good"]}, on_failure="raise") as servers:
            assert servers.state("good") == "ready"
        ignore: Any = "ignore"
        with pytest.raises(ValueError, match="on_failure= is 'keep' or 'raise', not 'ignore'"):
            async with open_servers({}, on_failure=ignore):
                pytest.fail("the block began")

    _run(main)


def test_late_server_joins_late() -> None:
    async def main() -> None:
        @asynccontextmanager
        async def late(**options: Any) -> AsyncIterator[Client]:
            await trio.sleep(60)
            async with memory_client(_server("L", "work"), **options) as client:
                yield client

        async with open_servers({"late": late}) as servers:
            assert await servers.tools() == []
            client = await servers.ready("late")
            assert client is servers["late"]
            assert [tool.name for tool in await servers.tools()] == ["late__work"]
            assert trio.current_time() >= 60

    _run(main)


class _Dying:
    """A server that can be ended, and started again a number of times."""

    def __init__(self, starts: int) -> None:
        self.left = starts
        self.clients: list[Client] = []

    @asynccontextmanager
    async def __call__(self, **options: Any) -> AsyncIterator[Client]:
        await trio.lowlevel.checkpoint()
        self.left -= 1
        if self.left < 0:
            raise ConnectFailed("worn out")
        async with memory_client(_server("D", "work"), **options) as client:
            self.clients.append(client)
            yield client


def test_lost_server_restarted_by_the_policy() -> None:
    async def main() -> None:
        dying, changes = _Dying(2), list[str]()
        config: dict[str, Any] = {"dying": dying, "good": partial(memory_client, _server("G", "work"))}
        policy = Backoff(tries=2, base=1.0)
        async with open_servers(config, restart=policy, on_change=lambda _, what: changes.append(what)) as servers:
            dying.clients[0].close()
            await trio.testing.wait_all_tasks_blocked()
            assert servers.state("dying") == "restarting"
            assert isinstance(servers.error("dying"), ConnectionLost)
            assert (await servers.call_tool("good__work")).text == "work of G"
            assert await servers.ready("dying") is dying.clients[1]
            assert servers.error("dying") is None
            dying.clients[1].close()
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(ConnectFailed, match="worn out"):
                await servers.ready("dying")
            assert servers.state("dying") == "failed"
            assert changes.count("restarting") >= 2
            assert (await servers.call_tool("good__work")).text == "work of G"

    _run(main)


def test_lost_server_without_a_policy_has_failed() -> None:
    async def main() -> None:
        dying = _Dying(1)
        async with open_servers({"dying": dying}) as servers:
            dying.clients[0].close()
            await trio.testing.wait_all_tasks_blocked()
            assert servers.state("dying") == "failed"
            with pytest.raises(ConnectFailed, match="the connection is closed"):
                servers["dying"]

    _run(main)


def test_changed_lists_reported_with_their_server(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server, changes, seen = _server("A", "one"), list[tuple[str, str]](), list[Any]()

        def change(name: str, what: str) -> None:
            changes.append((name, what))
            if what == "prompts":
                raise RuntimeError("careless")

        config = {"a": partial(memory_client, server)}
        async with open_servers(config, on_change=change, on_notification=seen.append) as servers:
            await servers.tools()
            server.tool(lambda: "x", name="two")
            server.prompt(lambda: "x", name="more")
            await trio.testing.wait_all_tasks_blocked()
            assert ("a", "tools") in changes
            assert ("a", "prompts") in changes
            assert any(isinstance(each, ToolListChangedNotification) for each in seen)
            assert (await servers.call_tool("a__two")).text == "x"

    _run(main)
    assert [record.message for record in caplog.records] == ["on_change failed for the server 'a'"]


def test_failing_list_affects_no_other(caplog: pytest.LogCaptureFixture) -> None:
    bad = _server("B", "work")

    async def refuse(scope: Any, request: Any, call_next: Any) -> Any:
        await trio.lowlevel.checkpoint()
        raise McpError("no list today")

    async def main() -> None:
        config: dict[str, Any] = {
            "bad": partial(_with_middleware, bad, refuse),
            "bare": partial(memory_client, Server("bare", "1")),
            "good": partial(memory_client, _server("G", "work")),
        }
        async with open_servers(config) as servers:
            assert [tool.name for tool in await servers.tools()] == ["good__work"]

    with caplog.at_level(logging.WARNING):
        _run(main)
    assert "the server 'bad' does not list what it offers" in caplog.text


@asynccontextmanager
async def _with_middleware(server: Server, layer: Any, **options: Any) -> AsyncIterator[Client]:
    async with memory_client(server, **options) as client:
        client._middleware = (layer,)
        yield client


def test_body_error_propagates_unwrapped() -> None:
    async def main() -> None:
        config: dict[str, Any] = {"good": partial(memory_client, _server("G")), "hanging": _hanging}
        with pytest.raises(ZeroDivisionError):
            async with open_servers(config, start_timeout=0.1):
                raise ZeroDivisionError

    _run(main)


PROGRAM = """
import os, sys
from mcpio import Server
server = Server("program", "1")

@server.tool
def pid() -> int:
    return os.getpid()

@server.tool
def die() -> str:
    os._exit(3)
"""


def test_processes_of_a_configuration_killed_and_restarted(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mcpio", "serve", str(tmp_path / "program.py")]
    config = ServersConfig(
        {
            "one": {"command": command},
            "two": {"command": command[0], "args": command[1:], "cwd": str(tmp_path)},
            "garbage": {"command": "echo", "args": ["this is no message"]},
            "none": {"command": "no-such-program"},
            "gone": {"url": "http://127.0.0.1:1/mcp"},
            "gone too": {"url": "ws://127.0.0.1:1/mcp"},
        }
    )

    async def pid(servers: Servers, name: str) -> int:
        await servers.ready(name)
        return int(json.loads((await servers.call_tool(f"{name}__pid")).text)["result"])

    async def main() -> None:
        async with open_servers(config, restart=Backoff(tries=2, base=0.01)) as servers:
            one, two = await pid(servers, "one"), await pid(servers, "two")
            with pytest.raises(ConnectionLost, match="exited with status 3"):
                await servers.call_tool("one__die")
            while servers.state("one") == "ready":
                await trio.testing.wait_all_tasks_blocked()
            assert await pid(servers, "one") not in (one, two)
            assert await pid(servers, "two") == two
            assert servers.state("garbage") == servers.state("gone") == servers.state("gone too") == "failed"
            assert str(servers.error("none")) == "cannot start 'no-such-program': no such program"
            assert "this is no message" in str(servers.error("garbage"))

    trio.run(main)
