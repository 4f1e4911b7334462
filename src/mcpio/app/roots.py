"""The client's roots, as its server has them: kept until the client says that they changed, and what lies in them.

Nothing here looks at a file system: a path is compared as text. Resolve symbolic links before, and open what was
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
    """Return the root that a ``file://`` URI or an absolute path lies in, the innermost of several; else ``None``.

    Percent signs are decoded, ``.`` and ``..`` followed, as text. What is no absolute path or no ``file://`` URI lies
    in no root, nor does a URI that hides a ``/`` or a NUL behind percent signs, or has a query. Paths with a drive
    letter are compared without regard to case.
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
    """The roots of one client that tells of changes."""

    __slots__ = ("_roots", "_version")

    def __init__(self) -> None:
        self._roots: tuple[Root, ...] | None = None
        self._version = 0

    @property
    def current(self) -> tuple[Root, ...] | None:
        """The roots, as far as is known; ``None`` when the client is to be asked."""
        return self._roots

    def forget(self) -> None:
        """Take note that they changed."""
        self._roots = None
        self._version += 1

    async def fill(self, asked: Awaitable[ListRootsResult]) -> tuple[Root, ...]:
        """Wait for the client's answer, and keep it unless it was overtaken by a change."""
        version = self._version
        roots = (await asked).roots
        if version == self._version:
            self._roots = roots
        return roots


_SCHEME: Final = "file://"
_DRIVE: Final = re.compile(r"/?([A-Za-z]):(?=[/\\]|$)")


def _place(target: str) -> tuple[str, ...] | None:
    """Return where a path or a URI leads: the host or drive, then each name on the way. ``None`` for nowhere."""
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
    """Return the host and the path of a URI. ``ValueError`` for what two programs might read in two ways."""
    parts = urlsplit(uri)
    if _AMBIGUOUS.search(uri) or parts.query or parts.fragment:
        raise ValueError("not one path")
    return parts.hostname or "", unquote_to_bytes(parts.path).decode()


# Separators and NUL behind percent signs, and what is cut off or left out by some who read a URI.
_AMBIGUOUS: Final = re.compile(r"%(?:2[fF]|5[cC]|00)|[\x00-\x1f\x7f]")
