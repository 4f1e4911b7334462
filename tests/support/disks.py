"""A disk that becomes full."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

__all__ = ["filling_disk"]


def filling_disk(room: int) -> Callable[[int, Any], int]:
    """Return an ``os.write`` that takes two bytes at a time, and fails when ``room`` bytes are written."""

    def write(fd: int, data: Any) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = os.write(fd, data[: min(2, room)])
        room -= written
        return written

    return write
