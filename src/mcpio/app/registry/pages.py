"""Results of list requests, kept with their JSON text: most clients request the same pages."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Any, Final

from mcpio.app.pagination import Page

__all__ = ["MOST_PAGES", "KeptPages"]

MOST_PAGES: Final = 100
"""How many pages are kept. Beyond, all are forgotten (P6)."""


class KeptPages:
    """The results for the pages of lists, by page. ``hints`` are members that say how long clients may keep them."""

    __slots__ = ("_hints", "_pages", "_texts")

    def __init__(self, hints: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._hints = hints
        self._pages: dict[Hashable, tuple[list[Any], Any]] = {}
        # By the id of a result, which is alive as long as its page is kept.
        self._texts: dict[int, dict[Any, bytes]] = {}

    def result(self, make: Callable[..., Any], key: Hashable, page: Page[Any], *, private: bool = False) -> Any:
        """Return the result for a page: the one returned before, unless an item of the page has changed.

        ``private`` says that clients must not share it, whatever the hints.
        """
        key = (make, key, page.next_cursor, private)
        kept = self._pages.get(key)
        # Unchanged items are identical, which is what a comparison of lists looks at first.
        if kept is not None and kept[0] == page.items:
            return kept[1]
        if kept is not None:
            del self._texts[id(kept[1])]
        elif len(self._pages) >= MOST_PAGES:
            self._pages.clear()
            self._texts.clear()
        hints = {**self._hints, "cache_scope": "private"} if private else self._hints
        result = make(tuple(page.items), page.next_cursor, **hints)
        self._pages[key] = (page.items, result)
        self._texts[id(result)] = {}
        return result

    def texts(self, result: Any) -> dict[Any, bytes] | None:
        """Return the mapping for the JSON texts of a kept result, ``None`` for any other result."""
        return self._texts.get(id(result))
