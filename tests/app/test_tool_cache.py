from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from linked import Link

from mcpio.app import client_tools
from mcpio.app.client_tools import ToolCache
from mcpio.app.contracts import CacheHint
from mcpio.app.server import Server
from mcpio.errors import RequestError
from mcpio.testing import ManualRuntime
from mcpio.testing.manual_runtime import ManualOneShot
from mcpio.types import CallToolRequest, ListToolsResult, ServerCapabilities, Tool, ToolsCapability


class Shop:
    """A list of tools that is given out when the test says so."""

    def __init__(self, *names: str, announced: bool = True) -> None:
        self.runtime = ManualRuntime()
        self.names = list(names)
        self.walks = 0
        self.gate: ManualOneShot | None = None
        self.failures: list[Exception] = []
        self.changes = 0
        self.cache = ToolCache(self.runtime, self._walk, lambda: announced, lambda tool: len(tool.name))

    async def _walk(self) -> AsyncIterator[Tool]:
        self.walks += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.failures:
            raise self.failures.pop()
        if self.changes:
            self.changes -= 1
            self.cache.forget()
        for number, name in enumerate(self.names):
            yield Tool(name, {"number": number})

    def find(self, name: str) -> str | None:
        found = self.runtime.complete(self.cache.tool(name))
        return None if found is None else found.name


def test_the_list_is_asked_for_once() -> None:
    shop = Shop("a", "b")
    assert [shop.find(name) for name in ("a", "b", "c", "c")] == ["a", "b", None, None]
    assert shop.walks == 1


def test_list_is_requested_again_after_a_change() -> None:
    shop = Shop("a")
    assert shop.find("a") == "a"
    shop.names = ["b"]
    shop.cache.forget()
    assert [shop.find("a"), shop.find("b")] == [None, "b"]
    assert shop.walks == 2


def test_unknown_tool_is_listed_again_without_change_notifications() -> None:
    shop = Shop("a", announced=False)
    assert shop.find("b") is None
    shop.names.append("b")
    assert [shop.find("b"), shop.find("a")] == ["b", "a"]
    assert shop.walks == 2


def test_first_of_two_tools_with_one_name_is_used() -> None:
    shop = Shop("a", "a")
    found = shop.runtime.complete(shop.cache.tool("a"))
    assert found is not None
    assert found.input_schema == {"number": 0}


def test_a_list_is_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_tools, "MOST_TOOLS", 2)
    shop = Shop("a", "b", "c")
    assert [shop.find("b"), shop.find("c")] == ["b", None]


def test_list_is_kept_up_to_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_tools, "TOOL_BYTES", 4)
    shop = Shop("aa", "bb", "cc")
    assert [shop.find("bb"), shop.find("cc")] == ["bb", None]


def several(shop: Shop, *names: str) -> list[str]:
    """Look tools up at the same time; return what each got."""
    got: list[str] = []

    async def look(name: str) -> None:
        try:
            found = await shop.cache.tool(name)
            got.append("none" if found is None else found.name)
        except RequestError as error:
            got.append(error.message)

    shop.gate = ManualOneShot()
    for name in names:
        shop.runtime.spawn(look(name))
    shop.runtime.run()
    shop.gate.set(None)
    shop.runtime.run()
    return got


def test_concurrent_calls_share_one_listing() -> None:
    shop = Shop("a", "b")
    assert sorted(several(shop, "a", "b", "c")) == ["a", "b", "none"]
    assert shop.walks == 1


def test_failed_listing_raises_only_for_its_caller() -> None:
    shop = Shop("a", "b")
    shop.failures = [RequestError(7, "busy")]
    assert sorted(several(shop, "a", "b")) == ["b", "busy"]
    assert shop.walks == 2


def test_cancelled_listing_does_not_block_others() -> None:
    shop = Shop("a")
    shop.gate = ManualOneShot()
    got: list[Tool | None] = []

    async def look() -> None:
        got.append(await shop.cache.tool("a"))

    first = shop.runtime.spawn(look())
    shop.runtime.spawn(look())
    shop.runtime.run()
    first.cancel()
    shop.runtime.run()
    shop.gate.set(None)
    shop.runtime.run()
    assert [tool is not None and tool.name for tool in got] == ["a"]


def test_change_during_the_listing_repeats_it_a_limited_number_of_times() -> None:
    shop = Shop("a")
    shop.changes = 1
    assert shop.find("a") == "a"
    assert shop.walks == 2
    shop.changes = 1000
    shop.cache.forget()
    assert shop.find("a") == "a"
    assert shop.walks == 5
    shop.changes = 0
    assert shop.find("a") == "a"
    assert shop.walks == 6


@pytest.mark.req("TOOL-14")
@pytest.mark.parametrize("announced", [True, False])
def test_a_client_knows_its_servers_tools(announced: bool) -> None:
    server = Server("s", page_size=1, capabilities=ServerCapabilities(tools=ToolsCapability(announced)))
    for name in ("a", "b"):
        server.tool(lambda: None, name=name)
    link = Link(server, era="handshake")

    async def names() -> list[str | None]:
        found = [await link.client.tool(name) for name in ("a", "b", "c")]
        return [None if tool is None else tool.name for tool in found]

    assert link.do(names()) == ["a", "b", None]
    server.tools.remove("a")
    server.tool(lambda: None, name="c")
    link.run()
    assert link.do(names()) == [None if announced else "a", "b", "c"]


def test_cached_tool_needs_no_request() -> None:
    shop = Shop("a")
    assert shop.cache.at_hand("a") is None
    assert shop.walks == 0
    shop.find("a")
    assert shop.cache.at_hand("a") is not None
    assert shop.cache.at_hand("b") is None
    shop.cache.forget()
    assert shop.cache.at_hand("a") is None


# What lists show


def test_tool_that_a_list_showed_is_known_without_a_walk() -> None:
    shop = Shop("a", "b")
    version = shop.cache.version
    shop.cache.learn([Tool("b", {"is": "first"}), Tool("b", {"is": "second"})], version)
    assert (shop.find("b"), shop.walks) == ("b", 0)
    known = shop.cache.at_hand("b")
    assert known is not None
    assert known.input_schema == {"is": "first"}
    assert (shop.find("c"), shop.find("a"), shop.walks) == (None, "a", 1)


def test_list_from_before_a_change_is_not_learned() -> None:
    shop = Shop("a")
    version = shop.cache.version
    shop.cache.forget()
    shop.cache.learn([Tool("old", {})], version)
    assert shop.cache.at_hand("old") is None


def test_learned_tools_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_tools, "MOST_TOOLS", 2)
    shop = Shop()
    shop.cache.learn([Tool(name, {"number": 1}) for name in "abc"], 0)
    shop.cache.learn([Tool(name, {"number": 2}) for name in "bc"], 0)
    numbers = [None if tool is None else tool.input_schema["number"] for tool in map(shop.cache.at_hand, "abc")]
    assert numbers == [None, 2, 2]


def test_bytes_of_learned_tools_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_tools, "TOOL_BYTES", 4)
    shop = Shop()
    for _ in range(3):  # the same tools take no more room
        shop.cache.learn([Tool(name, {}) for name in ("aa", "bb", "cc")], 0)
    assert [shop.cache.at_hand(name) is not None for name in ("aa", "bb", "cc")] == [False, True, True]


@pytest.mark.req("TASK-06")
@pytest.mark.parametrize("show", ["list_tools", "tools", "tool"])
def test_tool_that_must_be_a_task_is_called_as_one_after_any_list_showed_it(show: str) -> None:
    calls: list[bool] = []

    async def watch(ctx: Any, request: Any, call_next: Any) -> Any:
        if isinstance(request, CallToolRequest):
            calls.append(request.task is not None)
        return await call_next(request)

    server = Server("s", middleware=[watch])

    @server.tool(task_support="required")
    async def dig() -> str:
        return "dug"

    link = Link(server, era="handshake")

    async def main() -> str:
        client = link.client
        if show == "tools":
            _ = [tool async for tool in client.tools()]
        else:
            await (client.list_tools() if show == "list_tools" else client.tool("dig"))
        return (await client.call_tool("dig")).text

    assert link.do(main()) == "dug"
    assert calls[0] is True


# Stateless servers, which report changes only while the client listens


def of_int() -> dict[str, int]:
    return {"a": 1}


def of_str() -> dict[str, str]:
    return {"a": "1"}


@pytest.mark.parametrize("ttl", [0, 60])
def test_stateless_tool_is_looked_up_again_once_its_list_is_not_fresh(ttl: float) -> None:
    server = Server("s", cache=CacheHint(ttl))
    server.tool(lambda: None, name="a")
    link = Link(server, era="stateless")
    assert link.do(link.client.tool("a")) is not None
    server.tools.remove("a")
    assert (link.do(link.client.tool("a")) is None) == (ttl == 0)
    link.advance(ttl)
    assert link.do(link.client.tool("a")) is None


def test_first_page_of_a_list_replaces_what_was_known() -> None:
    shop = Shop("a", "b")
    shop.find("a")
    shop.cache.learn([Tool("b", {})], shop.cache.version, is_first=True)
    assert (shop.cache.at_hand("a"), shop.cache.at_hand("b")) == (None, Tool("b", {}))
    shop.names = ["b"]
    assert shop.find("a") is None


@pytest.mark.req("TOOL-14")
@pytest.mark.parametrize("change", ["changed", "not listed any more"])
@pytest.mark.parametrize("ttl", [0, 60])
def test_result_is_checked_against_the_schema_that_its_tool_has_by_now(change: str, ttl: float) -> None:
    server = Server("s", cache=CacheHint(ttl))
    server.tool(of_int, name="a")
    link = Link(server, era="stateless", check_results="raise")
    assert link.call("a").structured_content == {"a": 1}
    server.tools.remove("a")
    server.tool(of_str, name="a")
    if change != "changed":
        server.handlers["tools/list"] = lambda ctx, request: ListToolsResult(())
    assert link.call("a").structured_content == {"a": "1"}


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
def test_change_before_the_acknowledgement_of_a_subscription_is_noticed(kind: str) -> None:
    server = Server("s", cache=CacheHint(60))
    server.tool(lambda: None, name="a")
    server.prompt(lambda: "", name="a")
    server.resource("r:1", name="a")(lambda: "")
    link = Link(server, era="stateless")

    async def names() -> list[str]:
        return [each.name async for each in getattr(link.client, kind)()]

    assert link.do(names()) == ["a"]
    registry: Any = getattr(server, kind)
    (registry.static if kind == "resources" else registry).remove("r:1" if kind == "resources" else "a")
    wanted: Any = {kind: True}
    link.do(link.client.listen(**wanted).__aenter__())
    assert link.do(names()) == []
