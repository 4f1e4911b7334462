"""Relative paths from untrusted sources, checked segment by segment (RES-10)."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["PathClimbs", "UnsafePath", "path_segments"]


class UnsafePath(ValueError):
    """The path is not a plain relative path."""


class PathClimbs(UnsafePath):
    """The path contains ``..``."""


def path_segments(path: str, *, windows: bool = False) -> tuple[str, ...]:
    """Return the names in a decoded relative path, separated by ``/``; a trailing ``/`` is ignored.

    No name is empty, ``.`` or ``..``, or contains a backslash or a control character. With ``windows``, names with a
    special meaning are refused too: drives, streams, devices, and short names (``GIT~1``). The path may still lead
    through symbolic links. Decode percent-encoding once, before.

    Raises PathClimbs for ``..``, and UnsafePath for other unsafe paths.
    """
    segments = tuple(path.removesuffix("/").split("/")) if path else ()
    if ".." in segments or ".." in path.replace("\\", "/").split("/"):
        raise PathClimbs(f"{path[:200]!r} leads upwards")
    for segment in segments:
        if segment in ("", ".") or _FORBIDDEN.search(segment) or (windows and _ODD_ON_WINDOWS.search(segment)):
            raise UnsafePath(f"{path[:200]!r} is not a plain relative path")
    return segments


_FORBIDDEN: Final = re.compile(r"[\x00-\x1f\x7f\\]")
_ODD_ON_WINDOWS: Final = re.compile(
    r"[<>:\"|?*]|[. ]$|^(?:con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³]) *(?:\.|$)"
    r"|^[^.]{1,6}~[0-9]{1,6}(?:\.[^.]{0,3})?$",
    re.IGNORECASE,
)
