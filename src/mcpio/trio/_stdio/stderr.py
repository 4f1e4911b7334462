"""A child's standard error, read to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from mcpio._drivers.stdio.stderr import StderrLines
from mcpio.trio._interrupts import interruptible

if TYPE_CHECKING:
    from mcpio.trio._fd_streams import FdReader

__all__ = ["StderrReader"]

interruptible(StderrLines._give)  # noqa: SLF001  # it calls a function of the user


class StderrReader(StderrLines):
    """Reads one child's standard error to its end; ``source`` is ``None`` if it is not captured."""

    def __init__(self, source: FdReader | None, sink: Callable[[str], object] | None) -> None:
        super().__init__(sink)
        self.ended = trio.Event()
        """Set when reading has ended."""
        self._source = source
        if source is None:
            self.ended.set()

    async def run(self) -> None:
        """Read until the end or a cancellation; then close the source."""
        if self._source is None:
            return
        try:
            while data := await self._source.receive_some():
                self.take(data)
        except trio.BrokenResourceError:
            pass
        finally:
            self.finish()
            self._source.close()
            self.ended.set()
