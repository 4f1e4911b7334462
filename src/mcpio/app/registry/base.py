"""Registries: what a server offers by name, in the order of registration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from mcpio.app.contracts import HandlerScope
from mcpio.app.pagination import Page, page_of
from mcpio.app.registry.function import RegisteredFunction

__all__ = ["Offered", "Registry"]


class Offered(Protocol):
    """An entry of a registry."""

    @property
    def description(self) -> Any:
        """The typed description that list requests return."""

    @property
    def endpoint(self) -> RegisteredFunction:
        """Its function, and who may see and call it."""

    enabled: bool
    """Whether it is offered at the moment."""


T = TypeVar("T", bound=Offered)


class Registry(Generic[T]):
    """Entries by key. Disabled entries are kept, but neither listed nor found."""

    edition: int
    """How many entries were added and removed."""

    def __init__(self, noun: str, changed: Callable[[], None]) -> None:
        """``noun`` names an entry in errors. ``changed`` is called after every change of what is offered."""
        self._noun = noun
        self._notify_changed = changed
        self.edition = 0
        self._entries: dict[str, T] = {}
        self._numbers: dict[str, int] = {}
        self._next_number = 0
        # What is offered, with its numbers, until something changes: a page must not cost what all entries cost.
        self._offered: list[tuple[int, T]] | None = None

    def add(self, key: str, entry: T) -> None:
        """Offer an entry. Raises ValueError if the key is taken."""
        if key in self._entries:
            raise ValueError(f"there is a {self._noun} {key!r} already: remove it first, or choose another name")
        self._entries[key] = entry
        self._numbers[key] = self._next_number
        self._next_number += 1
        self.edition += 1
        if entry.enabled:
            self.changed()

    def remove(self, key: str) -> None:
        """Remove an entry. Raises KeyError if there is none."""
        entry = self._get(key)
        del self._entries[key], self._numbers[key]
        self.edition += 1
        if entry.enabled:
            self.changed()

    def enable(self, key: str, enabled: bool = True) -> None:
        """Offer an entry again, or stop offering it for now. Raises KeyError if there is none."""
        entry = self._get(key)
        if entry.enabled != enabled:
            entry.enabled = enabled
            self.changed()

    def disable(self, key: str) -> None:
        """Stop offering an entry until ``enable``. Raises KeyError if there is none."""
        self.enable(key, False)

    def find(self, key: str, scope: HandlerScope | None = None) -> T | None:
        """Return the entry that is offered under a key, or ``None``; with ``scope`` as far as that request may see."""
        entry = self._entries.get(key)
        if entry is None or not entry.enabled:
            return None
        if scope is not None and entry.endpoint.visible is not None and not entry.endpoint.is_visible(scope):
            return None
        return entry

    def __contains__(self, key: object) -> bool:
        """Whether an entry is offered under a key."""
        return isinstance(key, str) and self.find(key) is not None

    def __iter__(self) -> Iterator[T]:
        """Iterate over the entries that are offered."""
        return (entry for entry in self._entries.values() if entry.enabled)

    def everything(self) -> Iterator[T]:
        """Iterate over all entries, disabled ones included."""
        return iter(self._entries.values())

    def __len__(self) -> int:
        """Return the number of all entries, disabled ones included: they show that the feature exists."""
        return len(self._entries)

    def changed(self) -> None:
        """Tell the clients that the list has changed, such as when ``visible=`` gives other answers than before."""
        self._offered = None
        self._notify_changed()

    def page(self, cursor: str | None, size: int | None) -> Page[Any]:
        """Return the page of descriptions that a list request asks for (PAGE-01)."""
        if self._offered is None:
            self._offered = [(self._numbers[key], entry) for key, entry in self._entries.items() if entry.enabled]
        page = page_of(self._noun, self._offered, cursor, size)
        return Page([entry.description for entry in page.items], page.next_cursor)

    def _get(self, key: str) -> T:
        try:
            return self._entries[key]
        except KeyError:
            raise KeyError(f"there is no {self._noun} {key!r}") from None
