from __future__ import annotations

import tracemalloc
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpio.app.pagination import PAGE_BYTES, Page, PageGuard, page_of
from mcpio.app.server import Server
from mcpio.errors import ErrorCode, RemoteProtocolError, RequestError

TEN = [(number, f"item {number}") for number in range(10)]


def all_pages(entries: list[tuple[int, str]], size: int | None) -> list[list[str]]:
    pages = []
    cursor = None
    guard = PageGuard("tools/list")
    while True:
        page = page_of("tool", entries, cursor, size)
        pages.append(page.items)
        cursor = guard.follow(page.next_cursor)
        if cursor is None:
            return pages


@pytest.mark.req("PAGE-01")
@pytest.mark.parametrize(
    ("size", "lengths"), [(3, [3, 3, 3, 1]), (5, [5, 5]), (10, [10]), (11, [10]), (1, [1] * 10), (None, [10])]
)
def test_a_list_comes_in_pages(size: int | None, lengths: list[int]) -> None:
    pages = all_pages(TEN, size)
    assert [len(page) for page in pages] == lengths
    assert list(chain(*pages)) == [item for _, item in TEN]


def test_page_ends_before_it_is_too_long() -> None:
    sizes = [PAGE_BYTES // 2, PAGE_BYTES // 2, 1, PAGE_BYTES * 2, 0, PAGE_BYTES]
    entries = list(enumerate(sizes))
    pages: list[list[int]] = []
    cursor = None
    while not pages or cursor is not None:
        page = page_of("tool", entries, cursor, 5, lambda size: size)
        pages.append(page.items)
        cursor = page.next_cursor
    assert pages == [sizes[:2], sizes[2:3], sizes[3:4], sizes[4:]]
    assert page_of("tool", entries, None, None, lambda size: size).items == sizes


def test_an_empty_list_is_one_empty_page() -> None:
    page: Page[str] = page_of("tool", [], None, 5)
    assert (page.items, page.next_cursor) == ([], None)


@pytest.mark.req("PAGE-04")
def test_a_cursor_stays_right_when_items_come_and_go() -> None:
    cursor = page_of("tool", TEN, None, 4).next_cursor
    changed = [*TEN[1:2], *TEN[5:], (10, "item 10")]  # the item that the cursor names is gone too
    assert page_of("tool", changed, cursor, 4).items == ["item 5", "item 6", "item 7", "item 8"]
    assert page_of("tool", TEN[:2], cursor, 4).items == []


@pytest.mark.req("PAGE-04")
@pytest.mark.parametrize("cursor", ["", "1", "abc", "3-00000000", "-1-00000000", "03-00000000", "3-" + "0" * 99])
def test_a_cursor_that_was_never_given_out_is_refused(cursor: str) -> None:
    with pytest.raises(RequestError) as caught:
        page_of("tool", TEN, cursor, 4)
    assert caught.value.code == ErrorCode.INVALID_PARAMS
    assert caught.value.data == {"cursor": cursor[:100]}


@pytest.mark.req("PAGE-04")
def test_a_cursor_of_another_list_is_refused() -> None:
    cursor = page_of("tool", TEN, None, 4).next_cursor
    with pytest.raises(RequestError):
        page_of("prompt", TEN, cursor, 4)


@given(st.lists(st.integers(0, 2**40), unique=True).map(sorted), st.integers(1, 5))
def test_every_item_comes_once_and_in_order(numbers: list[int], size: int) -> None:
    entries = [(number, str(number)) for number in numbers]
    assert list(chain(*all_pages(entries, size))) == [item for _, item in entries]


@pytest.mark.req("PAGE-03")
def test_an_empty_cursor_is_not_the_end() -> None:
    guard = PageGuard("tools/list")
    assert guard.follow("") == ""
    assert guard.follow(None) is None


@pytest.mark.req("PAGE-02")
def test_a_cursor_is_handed_on_unchanged() -> None:
    odd = " %2F ä\u0000 "
    assert PageGuard("tools/list").follow(odd) == odd


@pytest.mark.req("PAGE-05")
def test_a_cursor_that_comes_again_is_an_error() -> None:
    guard = PageGuard("tools/list")
    guard.follow("a")
    guard.follow("")
    with pytest.raises(RemoteProtocolError, match=r"^tools/list: the cursor 'a' came a second time$"):
        guard.follow("a")


@pytest.mark.req("PAGE-05")
def test_too_many_pages_are_an_error() -> None:
    guard = PageGuard("tools/list", max_pages=3)
    guard.follow("a")
    guard.follow("b")
    with pytest.raises(RemoteProtocolError, match="the list has more than 3 pages"):
        guard.follow("c")


@pytest.mark.req("PAGE-05", "PAGE-06")
def test_maximum_number_of_pages_is_accepted() -> None:
    guard = PageGuard("tools/list", max_pages=3)
    assert [guard.follow("a"), guard.follow("b"), guard.follow(None)] == ["a", "b", None]


def test_seen_cursors_are_not_kept() -> None:
    guard = PageGuard("tools/list")
    tracemalloc.start()
    try:
        for number in range(8):
            guard.follow(str(number) * 100_000)
        assert tracemalloc.get_traced_memory()[0] < 50_000
    finally:
        tracemalloc.stop()
    with pytest.raises(RemoteProtocolError, match="the cursor '77"):
        guard.follow("7" * 100_000)


def test_long_descriptions_come_in_several_pages() -> None:
    server = Server("s")
    for number in range(5):
        server.tool(echo, name=f"tool{number}", description="x" * (PAGE_BYTES // 3))
    pages = [server.tools.page(None, 200)]
    while (cursor := pages[-1].next_cursor) is not None:
        pages.append(server.tools.page(cursor, 200))
    assert [len(page.items) for page in pages] == [2, 2, 1]
    server.tools.remove("tool0")
    assert [tool.name for tool in server.tools.page(None, 200).items] == ["tool1", "tool2"]
    assert len(server.tools.page(None, None).items) == 4


def echo(text: str) -> str:
    return text
