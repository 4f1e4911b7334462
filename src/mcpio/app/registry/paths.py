"""Relative paths that came from somebody else, taken apart so that they cannot lead astray (RES-10)."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["PathClimbs", "UnsafePath", "path_segments"]


class UnsafePath(ValueError):
    """A path is no plain relative path."""


class PathClimbs(UnsafePath):
    """A path leads upwards."""


def path_segments(path: str, *, windows: bool = False) -> tuple[str, ...]:
    """Return the names in a decoded relative path, with ``/`` between them; a last ``/`` makes no difference.

    None of them is empty, ``.`` or ``..``, none has a backslash or a control character in it, and with ``windows``
    none means something else there: a drive, a stream, a device, or a file by its short name (``GIT~1``). What they
    name may still be a symbolic link.
    ``PathClimbs`` for one with ``..``, ``UnsafePath`` for others that are not like this. Decode once, before.
    """
    segments = tuple(path.removesuffix("/").split("/")) if path else ()
    if ".." in segments or ".." in path.replace("\\", "/").split("/"):
        raise PathClimbs(f"{path[:200]!r} leads upwards")
    for segment in segments:
        if segment in ("", ".") or _FORBIDDEN.search(segment) or (windows and _ODD_ON_WINDOWS.search(segment)):
            raise UnsafePath(f"{path[:200]!r} is no plain relative path")
    return segments


_FORBIDDEN: Final = re.compile(r"[\x00-\x1f\x7f\\]")
_ODD_ON_WINDOWS: Final = re.compile(
    r"[<>:\"|?*]|[. ]$|^(?:con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³]) *(?:\.|$)"
    r"|^[^.]{1,6}~[0-9]{1,6}(?:\.[^.]{0,3})?$",
    re.IGNORECASE,
)
