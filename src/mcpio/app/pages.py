"""The items of a list that comes in pages, for the client: asked for as they are needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from mcpio.app.pagination import PageGuard
from mcpio.framing.json import dumps

if TYPE_CHECKING:
    from mcpio.types._fields import MalformedItem

__all__ = ["MALFORMED_BYTES", "MOST_MALFORMED", "Items"]

T = TypeVar("T")

MOST_MALFORMED: Final = 1000
"""How many malformed items of one list are kept for the caller; of more, the first."""

MALFORMED_BYTES: Final = 1 << 20
"""How many bytes of JSON they may have together; an item beyond that is not kept."""


class Items(AsyncIterator[T], Generic[T]):
    """The items of a list, page by page (PAGE-01). No generator: one that is left early would have to be closed."""

    malformed: list[MalformedItem]
    """The malformed items so far: at most 1,000, and 1 MiB of JSON. Their ``index`` is that in their page. They are
    left out of the iteration, and reported."""

    def __init__(
        self,
        method: str,
        fetch: Callable[[str | None], Awaitable[Any]],
        items: Callable[[Any], Iterable[T]],
        report: Callable[[str], None],
    ) -> None:
        self.malformed = []
        self._room = MALFORMED_BYTES
        self._method = method
        self._fetch = fetch
        self._items_of = items
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
                self._page = None  # whoever asks again after a failure asks for the page that failed
            self._page = await self._fetch(self._cursor)
            self._note(self._page.malformed)
            self._items = iter(self._items_of(self._page))

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
