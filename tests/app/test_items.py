from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import trio
from linked import Link

from mcpio.app import pagination
from mcpio.app.pagination import Items
from mcpio.app.server import Server
from mcpio.errors import RemoteProtocolError, RequestError
from mcpio.testing import ManualRuntime
from mcpio.trio import memory_client
from mcpio.types import ListToolsResult, MalformedItem, Tool


class Page(NamedTuple):
    items: list[str]
    next_cursor: str | None
    malformed: tuple[MalformedItem, ...] = ()


class Book:
    """Pages by cursor; the first is that of ``None``. ``asked`` are the cursors that were asked for."""

    def __init__(self, pages: dict[str | None, Page | list[Exception]]) -> None:
        self.pages = pages
        self.asked: list[str | None] = []
        self.reports: list[str] = []
        self.items: Items[str] = Items(
            "tools/list", self.fetch, lambda page: page.items, self.reports.append, self.size_of
        )

    def size_of(self, page: Page) -> int:
        return sum(map(len, page.items))

    async def fetch(self, cursor: str | None) -> Page:
        self.asked.append(cursor)
        page = self.pages[cursor]
        if isinstance(page, list):
            failures, self.pages[cursor] = page, Page([f"after {len(page)}"], None)
            raise failures[0]
        return page

    def take(self, most: int = 100) -> list[str]:
        """Walk on from where the walk is, to the end or to so many items."""
        found: list[str] = []

        async def walk() -> None:
            async for item in self.items:
                found.append(item)
                if len(found) == most:
                    break

        ManualRuntime().complete(walk())
        return found


@pytest.mark.req("PAGE-01", "PAGE-06")
def test_items_come_page_by_page() -> None:
    book = Book({None: Page(["a", "b"], "1"), "1": Page([], "2"), "2": Page(["c"], None)})
    assert book.take() == ["a", "b", "c"]
    assert book.asked == [None, "1", "2"]
    assert book.take() == []


def test_pages_are_requested_on_demand() -> None:
    book = Book({None: Page(["a", "b"], "1"), "1": Page(["c", "d"], None)})
    assert book.asked == []
    assert book.take(2) == ["a", "b"]
    assert book.asked == [None]
    assert book.take(1) == ["c"]
    assert book.asked == [None, "1"]
    assert book.take() == ["d"]


@pytest.mark.req("PAGE-03", "GONE-05")
def test_an_empty_cursor_is_not_the_end() -> None:
    book = Book({None: Page(["a"], ""), "": Page(["b"], None)})
    assert book.take() == ["a", "b"]
    assert book.asked == [None, ""]


@pytest.mark.req("PAGE-05")
def test_repeated_cursor_ends_the_iteration() -> None:
    book = Book({None: Page(["a"], "1"), "1": Page(["b"], "2"), "2": Page(["c"], "1")})
    assert book.take(3) == ["a", "b", "c"]
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match="the cursor '1' came a second time"):
            book.take()


def test_a_page_that_failed_can_be_asked_for_again() -> None:
    book = Book({None: Page(["a"], "1"), "1": [RequestError(7, "busy")]})
    with pytest.raises(RequestError, match="busy"):
        book.take()
    assert book.take() == ["after 1"]
    assert book.asked == [None, "1", "1"]


def test_iteration_left_early_under_trio_needs_no_aclose() -> None:
    server = Server("s", page_size=1)
    for number in range(3):
        server.tool(lambda: None, name=f"tool{number}")

    async def main() -> None:
        async with memory_client(server) as client:
            async for tool in client.tools():
                assert tool.name == "tool0"
                break

    trio.run(main)


@pytest.mark.parametrize("page_size", [None, 1, 2])
def test_a_client_walks_a_list_while_it_changes(page_size: int | None) -> None:
    server = Server("s", page_size=page_size)
    for number in range(4):
        server.tool(lambda: None, name=f"tool{number}")
    link = Link(server)

    async def walk() -> list[Any]:
        found = []
        async for tool in link.client.tools():
            if tool.name == "tool1":
                server.tools.remove("tool0")
            found.append(tool.name)
        return found

    assert link.do(walk()) == ["tool0", "tool1", "tool2", "tool3"]


def bad(index: int) -> MalformedItem:
    return MalformedItem(index, 5, f"no item {index}")


def test_malformed_items_are_kept_aside_and_reported() -> None:
    book = Book({None: Page(["a"], "1", (bad(1), bad(3))), "1": Page(["b"], "2"), "2": Page(["c"], None, (bad(0),))})
    assert book.take() == ["a", "b", "c"]
    assert book.items.malformed == [bad(1), bad(3), bad(0)]
    assert book.reports == [
        "tools/list: malformed items are left out, 2 of a page, the first at 1: no item 1",
        "tools/list: malformed items are left out, 1 of a page, the first at 0: no item 0",
    ]


def test_first_malformed_items_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagination, "MOST_MALFORMED", 3)
    book = Book({None: Page([], "1", (bad(0), bad(1))), "1": Page([], "2", (bad(2), bad(3))), "2": Page([], None)})
    book.pages["2"] = Page([], None, (bad(4),))
    assert book.take() == []
    assert book.items.malformed == [bad(0), bad(1), bad(2)]


def test_malformed_items_are_kept_up_to_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagination, "MALFORMED_BYTES", 30)
    large, small = MalformedItem(0, "x" * 20, "no item"), MalformedItem(1, 5, "no item")
    book = Book({None: Page([], "1", (large, large, small)), "1": Page(["a"], None, (small,))})
    assert book.take() == ["a"]
    assert book.items.malformed == [large]
    assert len(book.reports) == 2


def test_a_client_reports_the_malformed_items_of_its_server() -> None:
    server = Server("s")
    server.handlers["tools/list"] = lambda ctx, request: ListToolsResult(
        (Tool("good", {"type": "object"}),), malformed=(MalformedItem(0, {"name": 5}, ""),)
    )
    server.tool(lambda: None, name="any")
    link = Link(server)
    items = link.client.tools()

    async def walk() -> list[str]:
        return [tool.name async for tool in items]

    assert link.do(walk()) == ["good"]
    assert [item.raw for item in items.malformed] == [{"name": 5}]
    assert len(link.reports) == 1
    assert link.reports[0].startswith("tools/list: malformed items are left out, 1 of a page, the first at 0: ")


@pytest.mark.parametrize(("name", "most"), [("MAX_ITEMS", "5 items"), ("MAX_BYTES", "0 MiB")])
def test_list_is_followed_up_to_a_bound(name: str, most: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagination, name, 5)
    book = Book({None: Page(["a", "b", "c"], "1"), "1": Page(["d", "e"], "2"), "2": Page(["f"], None)})
    assert book.take(5) == ["a", "b", "c", "d", "e"]
    with pytest.raises(RemoteProtocolError, match=f"tools/list: the list is too long: mcpio reads at most {most} of"):
        book.take()


def test_bytes_of_every_list_of_a_client_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("s", page_size=1)
    text = "x" * 1000
    for each in ("a", "b"):
        server.tool(lambda: "", name=each, description=text)
        server.prompt(lambda: "", name=each, description=text)
        server.resource(f"{each}://b", name="r", description=text)(lambda: "")
        server.resource(f"{each}://b/{{c}}", name="r", description=text)(lambda c: "")
        server.skills.dynamic(f"skill://{each}/SKILL.md", description=text)(lambda: "x")
    monkeypatch.setattr(pagination, "MAX_BYTES", 1000)
    link = Link(server, era="handshake")

    async def main() -> None:
        client = link.client
        for items in (client.tools, client.prompts, client.resources, client.resource_templates, client.skills):
            with pytest.raises(RemoteProtocolError, match="the list is too long"):
                _ = [item async for item in items()]

    link.do(main())
