"""Lists in pages, on both sides."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from mcpio.codec import codec
from mcpio.errors import ErrorCode, RemoteProtocolError, RequestError
from mcpio.framing.json import dumps
from mcpio.revisions import LATEST_HANDSHAKE

if TYPE_CHECKING:
    from mcpio.engine.connection import Connection
    from mcpio.types._fields import MalformedItem


# ----------------------------------------------------------------------------------------------------------- pagination
# Pagination: cursors of a server, pages and their items for a client, and its guard against endless lists.

T = TypeVar("T")

PAGE_SIZE: Final = 200
"""Default for the number of entries in one page of a server."""

PAGE_BYTES: Final = 1 << 20
"""How long a page is, about and in bytes, where it has more than one entry and the server sends pages."""

MAX_PAGES: Final = 1000
"""Default for the number of pages of one list that a client requests."""

MAX_ITEMS: Final = 100_000
"""How many items a client follows a list for."""

MAX_BYTES: Final = 32 << 20
"""For how many bytes of JSON a client follows a list."""


def json_size(connection: Connection, payload: Any) -> int:
    """Return about how many bytes of JSON a payload took on a connection."""
    return len(dumps(codec(connection.revision or LATEST_HANDSHAKE).encode(payload)))


class Page(Generic[T]):
    """Some items of a list, and the cursor of the next page; ``None`` at the end."""

    __slots__ = ("items", "next_cursor")

    def __init__(self, items: list[T], next_cursor: str | None) -> None:
        self.items: list[T] = items
        self.next_cursor: str | None = next_cursor


def page_of(
    kind: str,
    entries: Sequence[tuple[int, T]],
    cursor: str | None,
    size: int | None,
    weigh: Callable[[T], int] = lambda _: 0,
) -> Page[T]:
    """Return the page of a list that a cursor names; without a cursor the first (PAGE-01).

    Args:
        kind: The name of the list, so that a cursor of another list is refused.
        entries: (number, item) with rising numbers, which items keep. A cursor holds the last number given, so it stays
            valid when items are added or removed (PAGE-04).
        cursor: The cursor of the page.
        size: How many items the page has, at least 1; ``None`` for all.
        weigh: Returns about how many bytes an item takes. A page of fewer than ``size`` ends before ``PAGE_BYTES``.

    Raises:
        RequestError: -32602 for a cursor that was not given out. An empty cursor never is (PAGE-03).

    """
    start = 0
    if cursor is not None:
        start = bisect_right(entries, _number(kind, cursor), key=lambda entry: entry[0])
    end = len(entries) if size is None else start + size
    page = entries[start:end]
    if size is not None:
        room = PAGE_BYTES
        for count, (_, item) in enumerate(page):
            room -= weigh(item)
            if room < 0 < count:
                page, end = page[:count], start + count
                break
    more = end < len(entries)
    return Page([item for _, item in page], _cursor(kind, page[-1][0]) if more else None)


class PageGuard:
    """Follows the cursors of one list on the client's side (PAGE-02, PAGE-03).

    Request the first page without a cursor, and further pages with the cursors that ``follow`` returns.
    """

    __slots__ = ("_bytes", "_items", "_limit", "_method", "_seen")

    def __init__(self, method: str, max_pages: int = MAX_PAGES) -> None:
        self._method = method
        self._limit = max_pages
        # Hashes, since a server may send cursors of megabytes. Their seed is secret, so none can be made to collide.
        self._seen: set[int] = set()
        self._items, self._bytes = MAX_ITEMS, MAX_BYTES

    def count(self, items: int, size: int) -> None:
        """Count the items and the bytes of a page. Raises RemoteProtocolError if the list is too long with it."""
        self._items -= items
        self._bytes -= size
        if self._items < 0 or self._bytes < 0:
            most = f"{MAX_ITEMS:,} items" if self._items < 0 else f"{MAX_BYTES >> 20} MiB"
            raise RemoteProtocolError(f"{self._method}: the list is too long: mcpio reads at most {most} of it")

    def follow(self, next_cursor: str | None) -> str | None:
        """Return the cursor of the next page, or ``None`` at the end of the list. An empty cursor is not the end.

        Raises RemoteProtocolError if a cursor is repeated, or there are too many pages (PAGE-05).
        """
        if next_cursor is None:
            return None
        if hash(next_cursor) in self._seen:
            raise RemoteProtocolError(f"{self._method}: the cursor {next_cursor[:100]!r} came a second time")
        self._seen.add(hash(next_cursor))
        if len(self._seen) >= self._limit:
            raise RemoteProtocolError(f"{self._method}: the list has more than {self._limit} pages")
        return next_cursor


# A cursor is the number of the last item given, with a checksum over the list's name: opaque to clients.

_CURSOR: Final = re.compile(r"(0|[1-9a-f][0-9a-f]{0,31})-([0-9a-f]{8})")


def _cursor(kind: str, number: int) -> str:
    return f"{number:x}-{_checksum(kind, number):08x}"


def _number(kind: str, cursor: str) -> int:
    match = _CURSOR.fullmatch(cursor)
    if match is None or int(match[2], 16) != _checksum(kind, int(match[1], 16)):
        raise RequestError(ErrorCode.INVALID_PARAMS, "Invalid cursor", {"cursor": cursor[:100]})
    return int(match[1], 16)


def _checksum(kind: str, number: int) -> int:
    """Return a checksum that a made-up cursor, or one of another list, is unlikely to have. It is not a secret."""
    from binascii import crc32

    return crc32(f"{kind}:{number}".encode())


MOST_MALFORMED: Final = 1000
"""How many malformed items of one list are kept for the caller: the first ones."""

MALFORMED_BYTES: Final = 1 << 20
"""How many bytes of JSON the kept malformed items may have together."""


class Items(AsyncIterator[T], Generic[T]):
    """The items of a list, page by page (PAGE-01). Not a generator, which would have to be closed if left early."""

    malformed: list[MalformedItem]
    """The malformed items so far: at most 1,000, and 1 MiB of JSON. Their ``index`` is that in their page. They are not
    iterated over, and reported."""

    def __init__(
        self,
        method: str,
        fetch: Callable[[str | None], Awaitable[Any]],
        items: Callable[[Any], Collection[T]],
        report: Callable[[str], None],
        size_of: Callable[[Any], int],
    ) -> None:
        self.malformed = []
        self._room = MALFORMED_BYTES
        self._method = method
        self._fetch = fetch
        self._items_of = items
        self._size_of = size_of
        self._report = report
        self._guard = PageGuard(method)
        self._cursor: str | None = None
        self._page: Any = None
        self._items: Iterator[T] = iter(())

    async def __anext__(self) -> T:
        while True:
            for item in self._items:
                return item
            if self._page is not None:
                self._cursor = self._guard.follow(self._page.next_cursor)
                if self._cursor is None:
                    raise StopAsyncIteration
                self._page = None  # so that the next step after a failure requests the same page again
            page = await self._fetch(self._cursor)
            items = self._items_of(page)
            # A list of one page is one message, which is limited itself.
            is_all = self._cursor is None and page.next_cursor is None
            self._guard.count(len(items), 0 if is_all else self._size_of(page))
            self._page, self._items = page, iter(items)
            self._note(page.malformed)

    def _note(self, malformed: tuple[MalformedItem, ...]) -> None:
        for item in malformed[: MOST_MALFORMED - len(self.malformed)]:
            size = len(dumps(item.raw)) + len(item.reason)
            if size <= self._room:
                self._room -= size
                self.malformed.append(item)
        if malformed:
            first = malformed[0]
            self._report(
                f"{self._method}: malformed items are left out, {len(malformed)} of a page, "
                f"the first at {first.index}: {first.reason:.200}"
            )


# ---------------------------------------------------------------------------------------------------------------- pages
# Results of list requests, kept with their JSON text: most clients request the same pages.

MOST_PAGES: Final = 100
"""How many pages are kept. Beyond, all are forgotten (P6)."""


class KeptPages:
    """The results for the pages of lists, by page. ``hints`` are members that say how long clients may keep them."""

    __slots__ = ("_pages", "hints", "texts")

    hints: Mapping[str, Any]
    texts: dict[int, dict[Any, bytes]]
    """The JSON texts of the kept results, by the id of the result: it is alive as long as its page is kept."""

    def __init__(self, hints: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.hints = hints
        self._pages: dict[Hashable, tuple[list[Any], Any]] = {}
        self.texts = {}

    def result(self, make: Callable[..., Any], key: Hashable, page: Page[Any], *, private: bool = False) -> Any:
        """Return the result for a page: the one returned before, unless an item of the page has changed.

        ``private`` says that clients must not share it, whatever the hints.
        """
        key = (make, key, page.next_cursor, private)
        cached = self._pages.get(key)
        # Unchanged items are identical, which is what a comparison of lists looks at first.
        if cached is not None and cached[0] == page.items:
            return cached[1]
        if cached is not None:
            del self.texts[id(cached[1])]
        elif len(self._pages) >= MOST_PAGES:
            self._pages.clear()
            self.texts.clear()
        hints = {**self.hints, "cache_scope": "private"} if private else self.hints
        result = make(tuple(page.items), page.next_cursor, **hints)
        self._pages[key] = (page.items, result)
        self.texts[id(result)] = {}
        return result
