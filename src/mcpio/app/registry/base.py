"""Registries: the entries of a server by name, in the order of registration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from mcpio.app.contracts import HandlerScope
from mcpio.app.pagination import Page, page_of
from mcpio.app.registry.function import RegisteredFunction

__all__ = ["InLoop", "Mirror", "Mounted", "Offered", "Registry"]


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
    mount: Mounted | None
    """The mounted server that it belongs to; ``None`` for an entry of the server's own."""


T = TypeVar("T", bound=Offered)

InLoop: TypeAlias = Callable[[Callable[[], Any]], Any]
"""Calls a function in the thread of the event loop that serves a registry's server, and returns its result."""


def _at_once(function: Callable[[], Any]) -> Any:
    return function()


class Mounted(Protocol):
    """The origin of an entry that belongs to a mounted server."""

    @property
    def server(self) -> str:
        """The name of the mounted server."""

    def serve(self, scope: Any, request: Any) -> Any:
        """Pass a request for the entry to the mounted server."""


class Mirror(Protocol):
    """Repeats the changes of a registry elsewhere: in the server that its server is mounted in."""

    def check(self, key: str, entry: Any) -> None:
        """Raise ValueError or TypeError if an entry cannot be added there."""

    def add(self, key: str, entry: Any) -> None:
        """Add an entry."""

    def remove(self, key: str) -> None:
        """Remove an entry."""

    def enable(self, key: str, enabled: bool) -> None:
        """Enable or disable an entry."""

    def changed(self) -> None:
        """Notify the clients that the list has changed."""


class Registry(Generic[T]):
    """Entries by key. Disabled entries are kept, but neither listed nor found. Any thread may change them."""

    edition: int
    """How many entries were added and removed."""
    noun: str
    """The noun for an entry in error messages."""
    mirrors: tuple[Mirror, ...]
    """Functions that repeat every change elsewhere."""

    def __init__(self, noun: str, changed: Callable[[], None], in_loop: InLoop = _at_once) -> None:
        """``noun`` names an entry in errors. ``changed`` is called after every change of the list."""
        self.noun = noun
        self._in_loop = in_loop
        self.mirrors = ()
        self._notify_changed = changed
        self.edition = 0
        self._entries: dict[str, T] = {}
        self._numbers: dict[str, int] = {}
        self._next_number = 0
        # The entries that are offered, with their numbers, until something changes: a page must not cost as much as all
        # of them.
        self._offered: list[tuple[int, T]] | None = None

    def add(self, key: str, entry: T) -> None:
        """Offer an entry. Raises ValueError if the key is taken."""
        self._in_loop(lambda: self._add(key, entry))

    def _add(self, key: str, entry: T) -> None:
        taken = self._entries.get(key)
        if taken is not None:
            owner = "" if taken.mount is None else f", of the mounted server {taken.mount.server!r}"
            raise ValueError(f"there is a {self.noun} {key!r} already{owner}: remove it first, or choose another name")
        self.check_mirrors(key, entry)
        self._entries[key] = entry
        self._numbers[key] = self._next_number
        self._next_number += 1
        self.edition += 1
        for mirror in self.mirrors:
            mirror.add(key, entry)
        if entry.enabled:
            self._changed()

    def remove(self, key: str) -> None:
        """Remove an entry. Raises KeyError for an unknown key."""
        self._in_loop(lambda: self._remove(key))

    def _remove(self, key: str) -> None:
        entry = self._get(key)
        del self._entries[key], self._numbers[key]
        self.edition += 1
        for mirror in self.mirrors:
            mirror.remove(key)
        if entry.enabled:
            self._changed()

    def enable(self, key: str, enabled: bool = True) -> None:
        """Enable an entry, or disable it. Raises KeyError for an unknown key."""
        self._in_loop(lambda: self._enable(key, enabled))

    def _enable(self, key: str, enabled: bool) -> None:
        entry = self._get(key)
        if entry.enabled != enabled:
            entry.enabled = enabled
            self._changed()
        for mirror in self.mirrors:
            mirror.enable(key, enabled)

    def disable(self, key: str) -> None:
        """Hide an entry until ``enable``. Raises KeyError for an unknown key."""
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

    def entry(self, key: str) -> T | None:
        """Return the entry under a key, disabled or not, or ``None``."""
        return self._entries.get(key)

    def entries(self) -> tuple[tuple[str, T], ...]:
        """Return all entries with their keys, disabled ones included."""
        return tuple(self._entries.items())

    def check_mirrors(self, key: str, entry: T) -> None:
        """Raise ValueError or TypeError if an entry cannot be added where this registry is repeated."""
        for mirror in self.mirrors:
            mirror.check(key, entry)

    def everything(self) -> Iterator[T]:
        """Iterate over all entries, disabled ones included."""
        return iter(self._entries.values())

    def __len__(self) -> int:
        """Return the number of all entries, disabled ones included: they show that the feature exists."""
        return len(self._entries)

    def changed(self) -> None:
        """Notify the clients that the list has changed, for example because ``visible=`` now returns something else."""
        self._in_loop(self._tell)

    def _tell(self) -> None:
        self._changed()
        for mirror in self.mirrors:
            mirror.changed()

    def page(self, cursor: str | None, size: int | None) -> Page[Any]:
        """Return the page of descriptions that a list request asks for (PAGE-01)."""
        if self._offered is None:
            self._offered = [(self._numbers[key], entry) for key, entry in self._entries.items() if entry.enabled]
        page = page_of(self.noun, self._offered, cursor, size)
        return Page([entry.description for entry in page.items], page.next_cursor)

    def _changed(self) -> None:
        self._offered = None
        self._notify_changed()

    def _get(self, key: str) -> T:
        try:
            return self._entries[key]
        except KeyError:
            raise KeyError(f"there is no {self.noun} {key!r}") from None
