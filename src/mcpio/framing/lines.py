"""Bytes cut into lines, in linear time and bounded memory (STDIO-02, STDIO-03, SEC-10)."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["DEFAULT_MAX_LINE_BYTES", "LineFramer", "Overlong"]

DEFAULT_MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""Room for an image or a document in base64, while a peer that never ends its line costs no more than this."""

_HEAD_BYTES: Final = 200
# Pieces of an unfinished line smaller than this are gathered, so that a line that comes byte by byte costs its size.
_PIECE: Final = 64 * 1024


class Overlong:
    """A line longer than the limit; its bytes are not kept.

    ``size_seen`` is how much of it was looked at, in bytes: always one more than the limit, so that any split of the
    input gives the same value. ``head`` is its first 200 bytes at most.
    """

    __slots__ = ("head", "size_seen")
    __match_args__ = ("size_seen", "head")

    size_seen: int
    head: bytes

    def __init__(self, size_seen: int, head: bytes) -> None:
        object.__setattr__(self, "size_seen", size_seen)
        object.__setattr__(self, "head", head)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Overlong):
            return NotImplemented
        return self.size_seen == other.size_seen and self.head == other.head

    def __hash__(self) -> int:
        return hash((self.size_seen, self.head))

    def __repr__(self) -> str:
        return f"Overlong(size_seen={self.size_seen!r}, head={self.head!r})"


class LineFramer:
    r"""Gives out the lines of a stream of bytes, whatever pieces it comes in.

    A line ends in ``\n`` or ``\r\n``; the end is not part of it, and lines of white space only are left out.
    Anything else, U+2028 and a lone ``\r`` included, is content. ``max_line_bytes`` is the longest line accepted.
    After a longer one the framer is finished and ignores its input, or with ``resync`` goes on behind the next ``\n``.
    ``skipping`` starts it inside such a line (for a framer restored from a snapshot).

    An unfinished line never costs more memory than ``max_line_bytes`` and one piece of input.
    """

    __slots__ = ("_eof", "_finished", "_max", "_partial", "_parts", "_pos", "_queue", "_ready", "_resync", "_skipping")

    def __init__(
        self, max_line_bytes: int = DEFAULT_MAX_LINE_BYTES, *, resync: bool = False, skipping: bool = False
    ) -> None:
        self._max = max_line_bytes
        self._resync = resync
        self._skipping = skipping
        self._eof = False
        self._finished = False
        # Whole lines: one block being read out from _pos on, then what came meanwhile. Blocks end in a newline.
        self._ready = b""
        self._pos = 0
        self._queue: list[bytearray | Overlong] | None = None
        # The unfinished line after them, _partial bytes in all.
        self._parts: list[bytes | bytearray] | None = None
        self._partial = 0

    def receive(self, data: bytes) -> None:
        """Store bytes. Ignored after the end of input, and after an overlong line unless resynchronising."""
        if self._finished or self._eof:
            return
        if type(data) is not bytes:
            data = bytes(data)
        if self._skipping:
            newline = data.find(b"\n")
            if newline < 0:
                return
            self._skipping = False
            data = data[newline + 1 :]
        end = data.rfind(b"\n") + 1
        if end:
            self._add_lines(data[:end])
            data = data[end:]
        if data:
            self._add_partial(data)

    def receive_eof(self) -> None:
        """Note the end of input. A last line without its newline counts as a line. Repeated calls do nothing."""
        if self._parts is not None:
            self._add_lines(b"\n")
        self._eof = True

    def next_line(self) -> bytes | Overlong | None:
        """Return the next line without its end, or an `Overlong` in place of one; ``None`` when there is none yet."""
        while True:
            ready = self._ready
            start = self._pos
            end = ready.find(b"\n", start)
            if end < 0:
                overlong = self._next_block()
                if overlong is not None:
                    return overlong
                if not self._ready:
                    return None
                continue
            self._pos = end + 1
            if end > start and ready[end - 1] == 13:
                end -= 1
            if end - start > self._max:
                return self._too_long(ready[start : start + _HEAD_BYTES])
            line = ready[start:end]
            if line and not line.isspace():
                return line

    @property
    def buffered(self) -> int:
        """The bytes held: lines not given out yet and the unfinished one."""
        queued = sum(len(block) for block in self._queue if isinstance(block, bytearray)) if self._queue else 0
        return len(self._ready) - self._pos + queued + self._partial

    @property
    def unfinished(self) -> bytes:
        """The line that has no end yet, as far as it came."""
        return b"".join(self._parts) if self._parts is not None else b""

    @property
    def skipping(self) -> bool:
        """Whether the input is inside an overlong line, whose rest is thrown away."""
        return self._skipping

    @property
    def at_end(self) -> bool:
        """Whether the end of input was noted and every line given out."""
        return self._eof and self._pos == len(self._ready) and not self._queue

    def _add_lines(self, data: bytes) -> None:
        if self._parts is not None:
            data = b"".join([*self._parts, data])
            self._parts = None
            self._partial = 0
        if self._queue is not None:
            if isinstance(self._queue[-1], bytearray):
                self._queue[-1] += data
            else:
                self._queue.append(bytearray(data))
        elif self._pos == len(self._ready):
            self._ready = data
            self._pos = 0
        else:
            self._queue = [bytearray(data)]

    def _add_partial(self, data: bytes) -> None:
        size = self._partial + len(data)
        if size > self._max + (data[-1] == 13):
            self._give_up(data)
            return
        self._partial = size
        if self._parts is None:
            self._parts = [data if len(data) >= _PIECE else bytearray(data)]
            return
        last = self._parts[-1]
        if isinstance(last, bytearray) and len(data) < _PIECE:
            last += data
            if len(last) >= _PIECE:
                # A bytearray holds an eighth more than its size.
                self._parts[-1] = bytes(last)
        else:
            self._parts.append(data if len(data) >= _PIECE else bytearray(data))

    def _give_up(self, data: bytes) -> None:
        """Put an `Overlong` in place of the unfinished line, which ``data`` made too long."""
        head = b"".join([*(self._parts or ()), data[:_HEAD_BYTES]])[:_HEAD_BYTES]
        self._parts = None
        self._partial = 0
        if self._queue is None:
            self._queue = []
        self._queue.append(Overlong(self._max + 1, head[: self._max + 1]))
        self._skipping = self._resync
        self._finished = not self._resync

    def _too_long(self, head: bytes) -> Overlong:
        if not self._resync:
            self._finished = True
            self._ready = b""
            self._pos = 0
            self._queue = None
            self._parts = None
            self._partial = 0
        return Overlong(self._max + 1, head[: self._max + 1])

    def _next_block(self) -> Overlong | None:
        """Drop the block that is read out and take the next, or return the `Overlong` that comes next."""
        self._ready = b""
        self._pos = 0
        if self._queue is None:
            return None
        block: Any = self._queue.pop(0)
        if not self._queue:
            self._queue = None
        if isinstance(block, Overlong):
            return block
        self._ready = bytes(block)
        return None
