"""Named things that a server offers, in the order of their registration; watchers hear when what is offered changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from mcpio.app.pagination import Page, page_of

__all__ = ["Offered", "Registry"]


class Offered(Protocol):
    """What a registry holds."""

    @property
    def description(self) -> Any:
        """What a list request shows of it: the typed description."""

    enabled: bool
    """Whether it is offered at the moment."""


T = TypeVar("T", bound=Offered)


class Registry(Generic[T]):
    """Entries by key. Disabled ones are kept but neither listed nor found."""

    def __init__(self, noun: str, changed: Callable[[], None]) -> None:
        """``noun`` names an entry in errors; ``changed`` is called after every change of what is offered."""
        self._noun = noun
        self._changed = changed
        self._entries: dict[str, T] = {}
        self._numbers: dict[str, int] = {}
        self._next_number = 0

    def add(self, key: str, entry: T) -> None:
        """Offer an entry. Raises ``ValueError`` for a key that is taken."""
        if key in self._entries:
            raise ValueError(f"there is a {self._noun} {key!r} already: remove it first, or choose another name")
        self._entries[key] = entry
        self._numbers[key] = self._next_number
        self._next_number += 1
        if entry.enabled:
            self._changed()

    def remove(self, key: str) -> None:
        """Stop offering an entry for good. Raises ``KeyError`` when there is none."""
        entry = self._get(key)
        del self._entries[key], self._numbers[key]
        if entry.enabled:
            self._changed()

    def enable(self, key: str, enabled: bool = True) -> None:
        """Offer an entry again, or stop offering it for now. Raises ``KeyError`` when there is none."""
        entry = self._get(key)
        if entry.enabled != enabled:
            entry.enabled = enabled
            self._changed()

    def disable(self, key: str) -> None:
        """Stop offering an entry for now: ``enable`` brings it back. Raises ``KeyError`` when there is none."""
        self.enable(key, False)

    def find(self, key: str) -> T | None:
        """Return the entry that is offered under a key."""
        entry = self._entries.get(key)
        return entry if entry is not None and entry.enabled else None

    def __contains__(self, key: object) -> bool:
        """Whether an entry is offered under a key."""
        return isinstance(key, str) and self.find(key) is not None

    def __iter__(self) -> Iterator[T]:
        """Give the entries that are offered."""
        return (entry for entry in self._entries.values() if entry.enabled)

    def everything(self) -> Iterator[T]:
        """Give all entries, disabled ones too."""
        return iter(self._entries.values())

    def __len__(self) -> int:
        """Count all entries, disabled ones too: they show that the feature exists."""
        return len(self._entries)

    def page(self, cursor: str | None, size: int | None) -> Page[Any]:
        """Return the page of descriptions that a list request asks for (PAGE-01)."""
        entries = [(self._numbers[key], entry.description) for key, entry in self._entries.items() if entry.enabled]
        return page_of(self._noun, entries, cursor, size)

    def _get(self, key: str) -> T:
        try:
            return self._entries[key]
        except KeyError:
            raise KeyError(f"there is no {self._noun} {key!r}") from None
