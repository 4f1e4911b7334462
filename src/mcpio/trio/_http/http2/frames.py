"""What an HTTP/2 client says, cut into frames before h2 reads it, so that nothing too long or too tiresome gets there.

h2 reads as many frames as it is fed, keeps whatever length a frame announces before it looks at that, and answers pings
and the like as often as they come. So it is fed one frame at a time, and only what is worth its work.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import attrs
from h2.errors import ErrorCodes

__all__ = ["FRAME_BYTES", "PREFACE", "ConnectionFault", "Frame", "FrameBudget", "FrameReader", "Kind", "cost"]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What every client says first (RFC 9113 section 3.4)."""

FRAME_BYTES: Final = 16384
"""The longest content of a frame. It is what HTTP/2 begins with, and this server never offers more."""

SHORT: Final = 256
"""A piece of a body that is shorter, and not the last, is worth less than the work that it makes."""

_HEADER = 9
_END_STREAM = 0x1
_END_HEADERS = 0x4


class Kind(IntEnum):
    """The kinds of frames that are told apart here (RFC 9113 section 6)."""

    DATA = 0
    HEADERS = 1
    GOAWAY = 7
    CONTINUATION = 9


@attrs.frozen
class Frame:
    """One frame."""

    kind: int
    """A ``Kind``, or another number."""
    flags: int
    """Its flags."""
    data: bytes
    """All of it, as it came."""

    @property
    def is_last(self) -> bool:
        """Whether nothing more comes of a request, for those kinds that say so."""
        return bool(self.flags & _END_STREAM)


class ConnectionFault(Exception):
    """What came ends the connection."""

    def __init__(self, code: ErrorCodes, message: str) -> None:
        super().__init__(message)
        self.code = code


class FrameReader:
    """Cuts bytes into frames, after the preface. It keeps less than one frame and what was fed last."""

    is_in_head: bool
    """Whether a head has begun that is not complete: nothing but the rest of it may come."""

    def __init__(self, head_bytes: int) -> None:
        """Refuse heads whose fields, packed as they come, have more than ``head_bytes``."""
        self.is_in_head = False
        self._head_bytes = head_bytes
        self._head_size = 0
        self._preface = PREFACE
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Take in what arrived."""
        self._data += data

    def next_frame(self) -> Frame | None:
        """Return the next frame; ``None`` for "feed me". Raises ``ConnectionFault``."""
        if self._preface:
            self._skip_preface()
        data = self._data
        if self._preface or len(data) < _HEADER:
            return None
        size, kind, flags = int.from_bytes(data[:3], "big"), data[3], data[4]
        if size > FRAME_BYTES:
            raise ConnectionFault(ErrorCodes.FRAME_SIZE_ERROR, "a frame is too long")
        if len(data) < _HEADER + size:
            return None
        self._follow_head(kind, flags, size)
        frame = Frame(kind, flags, bytes(data[: _HEADER + size]))
        del data[: _HEADER + size]
        return frame

    def _skip_preface(self) -> None:
        seen = bytes(self._data[: len(self._preface)])
        if not self._preface.startswith(seen):
            raise ConnectionFault(ErrorCodes.PROTOCOL_ERROR, "this is no HTTP/2")
        self._preface = self._preface[len(seen) :]
        del self._data[: len(seen)]

    def _follow_head(self, kind: int, flags: int, size: int) -> None:
        if kind not in (Kind.HEADERS, Kind.CONTINUATION):
            return
        self._head_size = size if kind == Kind.HEADERS else self._head_size + size
        if self._head_size > self._head_bytes:
            raise ConnectionFault(ErrorCodes.ENHANCE_YOUR_CALM, "the head of a request is too long")
        self.is_in_head = not flags & _END_HEADERS


def cost(frame: Frame) -> int:
    """Return what a frame takes of the allowance: those that ask for something are free, and have limits of their own.

    All others take one each: resets, pings, settings, priorities, windows, what nobody knows, and short pieces.
    """
    if frame.kind == Kind.DATA:
        return 0 if frame.is_last or len(frame.data) >= _HEADER + SHORT else 1
    return 0 if frame.kind in (Kind.HEADERS, Kind.CONTINUATION) else 1


class FrameBudget:
    """How many frames a client may send that ask for nothing: some at once, more as time passes, and for what it reads.

    It bounds what is not bounded by the requests that may be open at once: those that are reset as soon as they are
    made (CVE-2023-44487), floods of pings, settings and empty frames (CVE-2019-9512, 9515 and 9518), and windows
    that are opened byte by byte (CVE-2019-9511).
    """

    MOST: Final = 1000.0
    RATE: Final = 33.0

    def __init__(self, now: float) -> None:
        self._left = self.MOST
        self._since = now

    def spend(self, count: int, now: float) -> bool:
        """Take some of it; return whether there was enough."""
        if not count:
            return True
        self._left = min(self.MOST, self._left + (now - self._since) * self.RATE) - count
        self._since = now
        return self._left >= 0

    def earn(self) -> None:
        """Take note that a frame went out that is full, or ends what there was to say: clients open two windows."""
        self._left += 2
