"""Reads HTTP/2 frames ahead of h2, so that oversized and abusive ones never reach it.

h2 parses as many frames as it is given, buffers a frame of any announced length before it looks at that length, and
answers pings and settings as often as they come. So h2 is given one frame at a time, and only while the client's budget
lasts.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import attrs
from h2.errors import ErrorCodes

__all__ = ["FRAME_BYTES", "PREFACE", "ConnectionFault", "Frame", "FrameBudget", "FrameReader", "Kind", "cost"]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of every client (RFC 9113 section 3.4)."""

FRAME_BYTES: Final = 16384
"""The most bytes in a frame. This is the initial value of SETTINGS_MAX_FRAME_SIZE; this server never offers more."""

SHORT: Final = 256
"""DATA frames with fewer bytes are charged to the budget, unless they end the request: they cost more than they
bring."""

_HEADER = 9
_END_STREAM = 0x1
_END_HEADERS = 0x4


class Kind(IntEnum):
    """The frame types that are treated differently here (RFC 9113 section 6)."""

    DATA = 0
    HEADERS = 1
    GOAWAY = 7
    CONTINUATION = 9


@attrs.frozen
class Frame:
    """One frame."""

    kind: int
    """A ``Kind``, or any other number."""
    flags: int
    data: bytes
    """The whole frame, header included."""

    @property
    def is_last(self) -> bool:
        """Whether a DATA or HEADERS frame ends its request."""
        return bool(self.flags & _END_STREAM)


class ConnectionFault(Exception):
    """A fault of the client that ends the connection."""

    def __init__(self, code: ErrorCodes, message: str) -> None:
        super().__init__(message)
        self.code = code


class FrameReader:
    """Splits the bytes after the preface into frames. It buffers less than one frame besides the last read."""

    is_in_head: bool
    """Whether a head is incomplete, so that only its CONTINUATION frames may follow."""

    def __init__(self, head_bytes: int) -> None:
        """Reject heads with more than ``head_bytes`` of compressed fields."""
        self.is_in_head = False
        self._head_bytes = head_bytes
        self._head_size = 0
        self._preface = PREFACE
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Store received bytes."""
        self._data += data

    def next_frame(self) -> Frame | None:
        """Return the next frame; ``None`` means "feed me". Raises ConnectionFault."""
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
            raise ConnectionFault(ErrorCodes.PROTOCOL_ERROR, "the client does not speak HTTP/2")
        self._preface = self._preface[len(seen) :]
        del self._data[: len(seen)]

    def _follow_head(self, kind: int, flags: int, size: int) -> None:
        """Bound a head over all its CONTINUATION frames, which h2 would collect without a limit (CVE-2024-27316)."""
        if kind not in (Kind.HEADERS, Kind.CONTINUATION):
            return
        self._head_size = size if kind == Kind.HEADERS else self._head_size + size
        if self._head_size > self._head_bytes:
            raise ConnectionFault(ErrorCodes.ENHANCE_YOUR_CALM, "the head of a request is too long")
        self.is_in_head = not flags & _END_HEADERS


def cost(frame: Frame) -> int:
    """Return the cost of a frame in the budget.

    Frames that make or continue a request are free, since other limits bound requests. All others cost 1:
    resets, pings, settings, priorities, window updates, unknown frames, and short pieces of bodies.
    """
    if frame.kind == Kind.DATA:
        return 0 if frame.is_last or len(frame.data) >= _HEADER + SHORT else 1
    return 0 if frame.kind in (Kind.HEADERS, Kind.CONTINUATION) else 1


class FrameBudget:
    """Token bucket of frames that request nothing, refilled by time and by the data that the client reads.

    The budget stops the attacks that no limit on open requests stops: requests that are reset at once
    (CVE-2023-44487), floods of pings, settings and empty frames (CVE-2019-9512, 9515 and 9518), and windows opened
    byte by byte (CVE-2019-9511).
    """

    MOST: Final = 1000.0
    RATE: Final = 33.0
    """Frames a second."""

    def __init__(self, now: float) -> None:
        self._left = self.MOST
        self._since = now

    def spend(self, count: int, now: float) -> bool:
        """Subtract ``count`` from the budget; return whether it sufficed."""
        if not count:
            return True
        self._left = min(self.MOST, self._left + (now - self._since) * self.RATE) - count
        self._since = now
        return self._left >= 0

    def earn(self) -> None:
        """Refill for a full or last frame of a response: the client answers it with two window updates."""
        self._left += 2
