"""Pagination: the server's cursors, and the client's guard against a list that never ends."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from mcpio.errors import ErrorCode, RemoteProtocolError, RequestError

__all__ = ["MAX_PAGES", "Page", "PageGuard", "page_of"]

T = TypeVar("T")

MAX_PAGES: Final = 1000
"""How many pages of one list a client asks for, unless told otherwise."""


class Page(Generic[T]):
    """Some items of a list, and the cursor of the page after it: ``None`` when there is none."""

    __slots__ = ("items", "next_cursor")

    def __init__(self, items: list[T], next_cursor: str | None) -> None:
        self.items: list[T] = items
        self.next_cursor: str | None = next_cursor


def page_of(kind: str, entries: Sequence[tuple[int, T]], cursor: str | None, size: int | None) -> Page[T]:
    """Return the page of a list that a cursor asks for; without one the first (PAGE-01).

    ``entries`` are (number, item) in rising order of numbers, which belong to the items for good: a cursor says after
    which number to go on, so it stays right when items come and go (PAGE-04). ``size`` is at least 1; ``None`` puts
    all items on one page. ``kind`` names the list, so that a cursor of another one is not taken for its own.
    `RequestError` (-32602) for a cursor that was never given out; an empty one never is (PAGE-03).
    """
    start = 0
    if cursor is not None:
        start = bisect_right(entries, _number(kind, cursor), key=lambda entry: entry[0])
    end = len(entries) if size is None else start + size
    found = entries[start:end]
    more = end < len(entries)
    return Page([item for _, item in found], _cursor(kind, found[-1][0]) if more else None)


class PageGuard:
    """Follows the cursors of one list on the client's side (PAGE-02, PAGE-03).

    Ask for the first page without a cursor, then, as long as `follow` returns one, for the page it names.
    """

    __slots__ = ("_limit", "_method", "_seen")

    def __init__(self, method: str, max_pages: int = MAX_PAGES) -> None:
        self._method = method
        self._limit = max_pages
        # Hashes, since a server may send cursors of megabytes. Their seed is secret, so none can be made to collide.
        self._seen: set[int] = set()

    def follow(self, next_cursor: str | None) -> str | None:
        """Return the cursor of the next page, or ``None`` at the end of the list; an empty one is not the end.

        `RemoteProtocolError` when a cursor comes a second time or there are too many pages (PAGE-05).
        """
        if next_cursor is None:
            return None
        if hash(next_cursor) in self._seen:
            raise RemoteProtocolError(f"{self._method}: the cursor {next_cursor[:100]!r} came a second time")
        self._seen.add(hash(next_cursor))
        if len(self._seen) >= self._limit:
            raise RemoteProtocolError(f"{self._method}: the list has more than {self._limit} pages")
        return next_cursor


# A cursor is the list's name and the number of the last item given, in a form that invites nobody to count on it.

_CURSOR: Final = re.compile(r"(0|[1-9a-f][0-9a-f]{0,15})-([0-9a-f]{8})")


def _cursor(kind: str, number: int) -> str:
    return f"{number:x}-{_checksum(kind, number):08x}"


def _number(kind: str, cursor: str) -> int:
    found = _CURSOR.fullmatch(cursor)
    if found is None or int(found[2], 16) != _checksum(kind, int(found[1], 16)):
        raise RequestError(ErrorCode.INVALID_PARAMS, "Invalid cursor", {"cursor": cursor[:100]})
    return int(found[1], 16)


def _checksum(kind: str, number: int) -> int:
    """Return a number that a cursor of another list, or one made up, is unlikely to have; no secret."""
    from binascii import crc32

    return crc32(f"{kind}:{number}".encode())
