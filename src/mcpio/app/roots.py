"""The client's roots, as its server caches them and compares paths with them.

The file system is not used: paths are compared as text. Resolve symbolic links first, and open the path that was
compared (ROOT-05).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes, urlsplit

if TYPE_CHECKING:
    from mcpio.types.roots import ListRootsResult, Root

__all__ = ["RootList", "root_of"]


def root_of(target: str, roots: Iterable[Root]) -> Root | None:
    """Return the root that contains a ``file://`` URI or an absolute path, the innermost of several; else ``None``.

    Percent-encoding is decoded, and ``.`` and ``..`` are resolved, as text. No root contains a relative path, a URI of
    another scheme, one with a query, or one that encodes ``/`` or NUL. Paths with a drive letter are compared without
    regard to case.
    """
    wanted = _place(target) or ()
    found: Root | None = None
    depth = 0
    for root in roots:
        place = (_place(root.uri) if root.uri.startswith(_SCHEME) else None) or ()
        if len(place) > depth and wanted[: len(place)] == place:
            found, depth = root, len(place)
    return found


class RootList:
    """The cached roots of a client that reports changes."""

    __slots__ = ("_roots", "_version")

    def __init__(self) -> None:
        self._roots: tuple[Root, ...] | None = None
        self._version = 0

    @property
    def current(self) -> tuple[Root, ...] | None:
        """The cached roots; ``None`` if the client has to be asked."""
        return self._roots

    def forget(self) -> None:
        """Drop the cache, since the roots changed."""
        self._roots = None
        self._version += 1

    async def fill(self, asked: Awaitable[ListRootsResult]) -> tuple[Root, ...]:
        """Await the client's answer, and cache it unless a change came in between."""
        version = self._version
        roots = (await asked).roots
        if version == self._version:
            self._roots = roots
        return roots


_SCHEME: Final = "file://"
_DRIVE: Final = re.compile(r"/?([A-Za-z]):(?=[/\\]|$)")


def _place(target: str) -> tuple[str, ...] | None:
    """Return the host or drive of a path or URI, then the names on the way; ``None`` if it is not absolute."""
    host, path = "", target
    if target.startswith(_SCHEME):
        try:
            host, path = _parts(target)
        except ValueError:
            return None
    if "\0" in path:
        return None
    drive = _DRIVE.match(path)
    if drive is not None:
        path = path[drive.end() :].replace("\\", "/").lower()
        start = drive[1].lower() + ":"
    elif path.startswith("/") or host:
        start = "" if host == "localhost" else host
    else:
        return None
    names: list[str] = []
    for name in path.split("/"):
        if name == "..":
            del names[-1:]
        elif name not in ("", "."):
            names.append(name)
    return start, *names


def _parts(uri: str) -> tuple[str, str]:
    """Return the host and path of a URI. Raises ValueError if two programs might read it differently."""
    parts = urlsplit(uri)
    if _AMBIGUOUS.search(uri) or parts.query or parts.fragment:
        raise ValueError("not one path")
    return parts.hostname or "", unquote_to_bytes(parts.path).decode()


# Encoded separators and NUL, and characters that some URL parsers drop or cut at.
_AMBIGUOUS: Final = re.compile(r"%(?:2[fF]|5[cC]|00)|[\x00-\x1f\x7f]")
