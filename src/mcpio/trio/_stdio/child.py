"""A child process as a platform gives it: what ``_posix`` and ``_windows`` both provide."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mcpio.trio._fd_streams import FdReader, FdWriter

__all__ = ["Child", "Stderr"]


class Stderr(enum.Enum):
    """Where a child's standard error goes."""

    INHERIT = "inherit"
    DISCARD = "discard"
    PIPE = "pipe"


class Child(Protocol):
    """A child process as the platform gives it."""

    pid: int
    stdin: FdWriter
    stdout: FdReader
    stderr: FdReader | None

    async def wait(self) -> int:
        """Wait for its exit and give its status, negative for a signal."""
        ...

    def terminate(self) -> None:
        """Ask all of its group to end, while it has not been waited for or left others behind."""
        ...

    def kill(self) -> None:
        """End all of its group, under the same condition."""
        ...

    def group_left(self) -> bool:
        """Whether a process of its group lives, once it has been waited for."""
        ...

    def take_stdout(self) -> FdReader | None:
        """Close ``stdout`` for whoever reads it and give what reads the rest, or ``None`` where nothing can."""
        ...

    def end_stdout(self) -> None:
        """Let ``stdout`` end with what is in it, once no process of the group lives: a stranger may hold it open."""
        ...
