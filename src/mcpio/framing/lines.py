"""Bytes cut into lines, in linear time and bounded memory (STDIO-02, STDIO-03, SEC-10)."""

from __future__ import annotations

from collections import deque
from typing import Final

import attrs

__all__ = ["DEFAULT_MAX_LINE_BYTES", "LineFramer", "Overlong"]

DEFAULT_MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""Room for an image or a document in base64, while a peer that never ends its line costs no more than this."""

_HEAD_BYTES: Final = 200
# Pieces of an unfinished line smaller than this are gathered, so that a line that comes byte by byte costs its size.
_PIECE: Final = 64 * 1024
_NEWLINE: Final = b"\n"
_RETURN: Final = ord("\r")


@attrs.frozen
class Overlong:
    """A line longer than the limit; its bytes are not kept."""

    size_seen: int
    """Bytes read: one more than the limit, regardless of how the line was split."""
    head: bytes
    """Its first 200 bytes, or fewer where the limit is lower."""


class LineFramer:
    r"""Splits a stream of bytes into lines, independently of how the stream is split.

    A line ends in ``\n`` or ``\r\n``, which is not part of it. Lines of white space only are left out. Anything else,
    U+2028 and a lone ``\r`` included, is content. After a line longer than ``max_line_bytes`` the framer is finished
    and ignores its input, or with ``resync`` continues after the next ``\n``. ``skipping`` starts inside such a line,
    for a framer restored from a snapshot.

    An unfinished line never costs more memory than ``max_line_bytes``, one piece of input and 128 KiB.
    """

    __slots__ = (
        "_cut",
        "_eof",
        "_finished",
        "_max",
        "_partial",
        "_parts",
        "_pos",
        "_queue",
        "_ready",
        "_resync",
        "_skipping",
    )

    def __init__(
        self, max_line_bytes: int = DEFAULT_MAX_LINE_BYTES, *, resync: bool = False, skipping: bool = False
    ) -> None:
        self._max = max_line_bytes
        self._resync = resync
        self._skipping = skipping
        self._eof = self._cut = False
        self._finished = False
        # Whole lines: one block, read from _pos on, then the queue of later lines. Blocks (bytearray) end in a
        # newline. Queued bytes are a single long line without its newline: cutting that off would copy the line again.
        self._ready = b""
        self._pos = 0
        self._queue: deque[bytearray | bytes | Overlong] | None = None
        # The unfinished line after them, in pieces of _partial bytes in all.
        self._parts: list[bytes | bytearray] | None = None
        self._partial = 0

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Store bytes. Ignored after the end of input, and after an overlong line unless resynchronising."""
        if self._finished or self._eof:
            return
        if not isinstance(data, bytes):
            # A copy: the caller may reuse its buffer.
            data = bytes(data)
        if self._skipping:
            newline = data.find(_NEWLINE)
            if newline < 0:
                return
            self._skipping = False
            data = data[newline + 1 :]
        # One search from the end: everything up to the last newline is stored as one block, and cut when it is pulled.
        end = data.rfind(_NEWLINE) + 1
        if end:
            self._add_lines(data[:end])
            data = data[end:]
        if data:
            self._add_partial(data)

    def receive_eof(self) -> None:
        """Record the end of input. A last line without a newline counts as a line. Repeated calls do nothing."""
        if self._parts is not None:
            self._cut = True
            self._add_lines(_NEWLINE)
        self._eof = True

    def next_line(self) -> bytes | Overlong | None:
        """Return the next line without its end, an `Overlong` in place of one, or ``None`` if no line is complete."""
        while True:
            ready = self._ready
            start = self._pos
            end = ready.find(_NEWLINE, start)
            if end < 0:
                if self._queue is None:
                    self._ready = b""
                    self._pos = 0
                    return None
                if (item := self._next_item(self._queue)) is not None:
                    return item
                continue
            self._pos = end + 1
            # For an empty line this is the newline before it, or (index -1) the last byte: never a return.
            if ready[end - 1] == _RETURN:
                end -= 1
            if end - start > self._max:
                return self._too_long(ready[start : start + _HEAD_BYTES])
            line = ready[start:end]
            if line and not line.isspace():
                return line

    @property
    def pending(self) -> bool:
        """Whether complete lines are held; they may all turn out to be blank."""
        return self._pos < len(self._ready) or self._queue is not None

    @property
    def buffered(self) -> int:
        """The bytes held: complete lines and the unfinished one."""
        held = len(self._ready) - self._pos + self._partial
        if self._queue is not None:
            held += sum(len(item) for item in self._queue if not isinstance(item, Overlong))
        return held

    @property
    def unfinished(self) -> bytes:
        """The line that has no end yet, as received so far."""
        return b"".join(self._parts or ())

    @property
    def skipping(self) -> bool:
        """Whether the input is inside an overlong line, whose rest is discarded."""
        return self._skipping

    @property
    def is_cut(self) -> bool:
        """Whether the last line returned ended with the input, without a newline: it may not be whole."""
        return self._cut and not self.pending

    @property
    def at_end(self) -> bool:
        """Whether the input ended and every line was returned."""
        return self._eof and not self.pending

    def _add_lines(self, data: bytes) -> None:
        """Add bytes that end in a newline."""
        if self._parts is not None:
            if self._partial < _PIECE:
                data = b"".join([*self._parts, data])
            else:
                # A long line becomes an item of its own: joined with the lines after it, it would be copied once more.
                end = data.find(_NEWLINE)
                self._append(b"".join([*self._parts, data[:end]]))
                data = data[end + 1 :]
            self._parts = None
            self._partial = 0
        if self._queue is not None:
            last = self._queue[-1]
            if isinstance(last, bytearray):
                last += data
            elif data:
                self._queue.append(bytearray(data))
        elif self._pos < len(self._ready):
            self._append(bytearray(data))
        else:
            self._ready = data
            self._pos = 0

    def _append(self, item: bytearray | bytes | Overlong) -> None:
        if self._queue is None:
            self._queue = deque()
        self._queue.append(item)

    def _add_partial(self, data: bytes) -> None:
        size = self._partial + len(data)
        # A return at the end may be the first half of the line's end.
        if size > self._max + (data[-1] == _RETURN):
            self._give_up(data)
            return
        self._partial = size
        if self._parts is None:
            self._parts = []
        if len(data) >= _PIECE:
            self._parts.append(data)
        elif self._parts and isinstance(last := self._parts[-1], bytearray):
            last += data
            if len(last) >= _PIECE:
                # A growing bytearray takes an eighth more memory than its content.
                self._parts[-1] = bytes(last)
        else:
            self._parts.append(bytearray(data))

    def _give_up(self, data: bytes) -> None:
        """Replace the unfinished line, which ``data`` makes too long, by an `Overlong`."""
        head = b""
        for part in (*(self._parts or ()), data):
            # Only the first bytes of each part: together the parts are as large as the limit.
            head += part[:_HEAD_BYTES]
        self._parts = None
        self._partial = 0
        self._append(self._overlong(head))
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
        return self._overlong(head)

    def _overlong(self, head: bytes) -> Overlong:
        seen = self._max + 1
        return Overlong(seen, head[: min(seen, _HEAD_BYTES)])

    def _next_item(self, queue: deque[bytearray | bytes | Overlong]) -> bytes | Overlong | None:
        """Process the next item of the queue: prepare a block, or return a line or an `Overlong`."""
        item = queue.popleft()
        if not queue:
            self._queue = None
        self._ready = b""
        self._pos = 0
        if isinstance(item, Overlong):
            return item
        if isinstance(item, bytearray):
            self._ready = bytes(item)
            return None
        line = item.removesuffix(b"\r")
        if len(line) > self._max:
            return self._too_long(line[:_HEAD_BYTES])
        return None if line.isspace() else line
