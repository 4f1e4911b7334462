"""A child's standard error: its tail kept, its lines passed to a sink (STDIO-07)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mcpio._drivers import report

__all__ = ["MAX_LINE", "TAIL_SIZE", "StderrLines"]

TAIL_SIZE: Final = 8192
"""Bytes kept for error messages."""

MAX_LINE: Final = 65536
"""Bytes after which a line without an end is passed on as it is."""


class StderrLines:
    """Collects a child's standard error.

    ``sink`` is called with each line. If it raises an Exception, that is logged, the sink is not called again, and
    reading continues. Any other BaseException propagates.
    """

    def __init__(self, sink: Callable[[str], object] | None) -> None:
        self._sink = sink
        self._tail = bytearray()
        self._cut = False
        self._line = bytearray()

    @property
    def tail(self) -> str:
        """The last ``TAIL_SIZE`` bytes, from the beginning of a line; undecodable bytes are replaced."""
        kept = bytes(self._tail[-TAIL_SIZE:])
        if self._cut or len(self._tail) > TAIL_SIZE:
            kept = kept.partition(b"\n")[2] or kept
        return kept.decode("utf-8", "replace")

    def take(self, data: bytes) -> None:
        """Process the next bytes."""
        self._tail += data
        if len(self._tail) > 2 * TAIL_SIZE:
            del self._tail[:-TAIL_SIZE]
            self._cut = True
        if self._sink is None:
            return
        first, *others = data.split(b"\n")
        self._line += first
        for other in others:
            self._give(bytes(self._line))
            self._line[:] = other
        if len(self._line) >= MAX_LINE:
            self._give(bytes(self._line))
            self._line.clear()

    def finish(self) -> None:
        """Pass on a last line that has no end."""
        if self._line:
            self._give(bytes(self._line))
            self._line.clear()

    def _give(self, line: bytes) -> None:
        sink, self._sink = self._sink, None
        if sink is None:
            return
        try:
            sink(line.removesuffix(b"\r").decode("utf-8", "replace"))
            self._sink = sink
        except Exception as error:
            report("the function for a server's standard error failed", error)
