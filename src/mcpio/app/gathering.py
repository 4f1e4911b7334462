"""The tools, prompts and resources of many servers behind one client: public names that cannot collide."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final, Generic, TypeVar

import attrs

__all__ = ["Gathered", "PublicNames"]

T = TypeVar("T")

MAX_NAME: Final = 64
"""The most characters of a public name, as the APIs of models accept."""

MAX_PREFIX: Final = 24
"""Length of a server's part of a public name."""


@attrs.frozen
class Gathered(Generic[T]):
    """A tool, prompt or resource of one of many servers."""

    name: str
    """The public name, such as ``files__read``; of at most 64 letters, digits, ``_`` and ``-``."""
    server: str
    """The server's name in the configuration."""
    item: T
    """As the server describes it, under the server's own name."""


class PublicNames:
    """Public names for the items of some servers, and the way back.

    A public name is the server's prefix, two underscores, and the item's name. A prefix has no two underscores in a row
    and ends in none, so that no server can claim a name of another's. An item's name that has other characters than
    letters, digits, ``_`` and ``-``, or is too long, is shortened and ends in a digest.
    """

    def __init__(self, servers: Iterable[str]) -> None:
        """``servers`` are all names; their order decides who keeps a prefix that two would get."""
        self._prefixes: dict[str, str] = {}
        self._servers: dict[str, str] = {}
        self._items: dict[str, dict[str, str]] = {}
        for server in servers:
            prefix = self._free_prefix(_prefix(server))
            self._prefixes[server], self._servers[prefix], self._items[server] = prefix, server, {}

    def public(self, server: str, name: str) -> str:
        """Return the public name of a server's item."""
        prefix = self._prefixes[server]
        room = MAX_NAME - len(prefix) - 2
        if len(name) > room or not _PLAIN.fullmatch(name) or _DIGEST.search(name):
            # A plain name that looks like one with a digest gets a digest too, so the two cannot meet.
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_SIZE]
            name = f"{_OTHER.sub('_', name)[: room - _DIGEST_SIZE - 1]}_{digest}"
        return f"{prefix}__{name}"

    def record(self, server: str, names: Iterable[str]) -> None:
        """Record the items that a server lists now."""
        self._items[server] = {self.public(server, name): name for name in names}

    def server_of(self, public: str) -> str:
        """Return the server that a public name belongs to. Raises LookupError for an unknown name."""
        server = self._servers.get(public.partition("__")[0])
        if server is None:
            raise LookupError(f"no server has the prefix of {public!r}; there are {', '.join(self._servers) or 'none'}")
        return server

    def find(self, public: str) -> str | None:
        """Return the server's own name of an item that it has listed, or ``None``."""
        return self._items[self.server_of(public)].get(public)

    def missing(self, public: str) -> LookupError:
        """Return the error for a name that its server does not list."""
        server = self.server_of(public)
        close = get_close_matches(public, list(self._items[server]), n=3, cutoff=0.75)
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        return LookupError(f"the server {server!r} lists nothing under the name {public!r}{hint}")

    def _free_prefix(self, wanted: str) -> str:
        found, number = wanted, 2
        while found in self._servers:
            found, number = f"{wanted}-{number}", number + 1
        return found


_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]+")
_DIGEST_SIZE: Final = 8
_DIGEST: Final = re.compile(r"_[0-9a-f]{8}\Z")


def _prefix(server: str) -> str:
    return re.sub(r"_{2,}", "_", _OTHER.sub("-", server))[:MAX_PREFIX].strip("-_") or "server"
