from __future__ import annotations

from typing import Any

import pytest
from linked import Link

from mcpio.app import pagination as pages
from mcpio.app.pagination import KeptPages, Page
from mcpio.app.server import Server
from mcpio.revisions import REV_2025_06_18, REV_2025_11_25
from mcpio.types.features import ListToolsResult, Tool

ECHO, ADD = Tool("echo", {"type": "object"}), Tool("add", {"type": "object"})


def page(*tools: Tool, cursor: str | None = None) -> Page[Tool]:
    return Page(list(tools), cursor)


def test_unchanged_page_returns_the_same_result() -> None:
    kept = KeptPages()
    first = kept.result(ListToolsResult, None, page(ECHO, ADD))
    assert first == ListToolsResult((ECHO, ADD))
    assert kept.result(ListToolsResult, None, page(ECHO, ADD)) is first
    assert kept.texts.get(id(first)) == {}


def test_changed_page_replaces_result_and_texts() -> None:
    kept = KeptPages()
    first = kept.result(ListToolsResult, None, page(ECHO))
    second = kept.result(ListToolsResult, None, page(ADD))
    assert second == ListToolsResult((ADD,))
    assert (kept.texts.get(id(first)), kept.texts.get(id(second))) == (None, {})


def test_pages_beyond_the_bound_forget_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_PAGES", 2)
    kept = KeptPages()
    first, second, third = [kept.result(ListToolsResult, cursor, page(ECHO)) for cursor in (None, "a", "b")]
    assert (kept.texts.get(id(first)), kept.texts.get(id(second)), kept.texts.get(id(third))) == (None, None, {})


def offering(*names: str) -> Server:
    server = Server("s")
    for name in names:
        server.tool(lambda: "", name=name)
    return server


@pytest.mark.parametrize("revision", [REV_2025_06_18, REV_2025_11_25])
def test_repeated_list_request_is_answered_alike(revision: Any) -> None:
    link = Link(offering("echo", "add"), revision=revision)
    first, second = link.do(link.client.list_tools()), link.do(link.client.list_tools())
    assert first == second
    assert [tool.name for tool in second.tools] == ["echo", "add"]


def test_change_of_a_registry_shows_in_the_next_list() -> None:
    server = offering("echo", "add")
    link = Link(server)
    link.do(link.client.list_tools())
    server.tools.disable("echo")
    assert [tool.name for tool in link.do(link.client.list_tools()).tools] == ["add"]
    server.tools.enable("echo")
    assert [tool.name for tool in link.do(link.client.list_tools()).tools] == ["echo", "add"]


def test_pages_are_encoded_separately_for_each_revision() -> None:
    server = offering("echo")
    server.tool(lambda: "", name="dig", task_support="required")
    new, old = Link(server, revision=REV_2025_11_25), Link(server, revision=REV_2025_06_18)
    for _ in range(2):
        assert [tool.name for tool in new.do(new.client.list_tools()).tools] == ["echo", "dig"]
        assert [tool.name for tool in old.do(old.client.list_tools()).tools] == ["echo"]


def test_other_lists_are_kept_too() -> None:
    server = Server("s")
    server.resource("memo://a", name="a")(lambda: "a")
    server.resource("memo://{name}", name="memo")(lambda name: name)
    server.prompt(lambda: "hello", name="greet")
    link = Link(server)
    for _ in range(2):
        assert [each.uri for each in link.do(link.client.list_resources()).resources] == ["memo://a"]
        assert [each.name for each in link.do(link.client.list_resource_templates()).resource_templates] == ["memo"]
        assert [each.name for each in link.do(link.client.list_prompts()).prompts] == ["greet"]
