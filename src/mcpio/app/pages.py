"""The items of a list that comes in pages, for the client: asked for as they are needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from mcpio.app.pagination import PageGuard

__all__ = ["Items"]


class _Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


P = TypeVar("P", bound=_Page)
T = TypeVar("T")


class Items(AsyncIterator[T], Generic[P, T]):
    """The items of a list, page by page (PAGE-01). No generator: one that is left early would have to be closed."""

    def __init__(
        self, method: str, fetch: Callable[[str | None], Awaitable[P]], items: Callable[[P], Iterable[T]]
    ) -> None:
        self._fetch = fetch
        self._items_of = items
        self._guard = PageGuard(method)
        self._cursor: str | None = None
        self._page: P | None = None
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
            self._items = iter(self._items_of(self._page))
