"""The interface of a child process that ``posix`` and ``windows`` both implement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mcpio.trio._fd_streams import FdReader, FdWriter

__all__ = ["Child"]


class Child(Protocol):
    """A child process of the platform."""

    pid: int
    stdin: FdWriter
    stdout: FdReader
    stderr: FdReader | None

    async def wait(self) -> int:
        """Wait for its exit, and return its status, negative for a signal."""
        ...

    def terminate(self) -> None:
        """Ask its process group to end, unless it was waited for and left no process behind."""
        ...

    def kill(self) -> None:
        """Kill its process group, under the same condition."""
        ...

    def group_left(self) -> bool:
        """Return whether a process of its group is alive, after it was waited for."""
        ...

    def take_stdout(self) -> FdReader | None:
        """Close ``stdout`` for its reader, and return a reader of the rest; ``None`` where there cannot be one."""
        ...

    def end_stdout(self) -> None:
        """End ``stdout`` once it is empty: no process of the group is alive, but another may hold it open."""
        ...
