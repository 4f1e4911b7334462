"""Server-sent events of the HTML standard, without I/O: bytes to events, and events to bytes.

Lines end with LF, CR or CRLF, however the bytes are split (RESUME-07). Time is linear in the input, and no event costs
more memory than the limit.
"""

from __future__ import annotations

import codecs
import re
import sys
from typing import Final

import attrs

__all__ = ["ServerSentEvent", "SseParser", "encode_comment", "encode_event"]

MIB: Final = 1024 * 1024


@attrs.frozen
class ServerSentEvent:
    """One event of a stream."""

    data: str | None = None
    """The data lines joined by LF, or ``None`` for an event that has only a ``retry``."""
    type: str = "message"
    """The type of the event."""
    id: str | None = None
    """The last event id of the stream so far, which may be ``""``; ``None`` before the first."""
    retry: int | None = None
    """How long to wait before reconnecting, in milliseconds, if the event sets it."""


class SseParser:
    """Parses the events of one stream."""

    __slots__ = (
        "_after_cr",
        "_buffer",
        "_data",
        "_decoder",
        "_event",
        "_held",
        "_id",
        "_is_first",
        "_limit",
        "_retry",
        "_size",
        "is_too_large",
        "last_id",
    )

    is_too_large: bool
    """Whether an event was longer than the limit: the rest of the stream is ignored."""

    last_id: str | None
    """The id of the last complete event, with or without data: the value for ``Last-Event-ID``."""

    def __init__(self, max_event_bytes: int = 16 * MIB) -> None:
        """``max_event_bytes`` bounds one event, and one line."""
        self._limit = max_event_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._buffer: list[str] = []
        self._size = 0
        self._held = 0
        self._after_cr = False
        self._is_first = True
        self._data: list[str] | None = None
        self._event = ""
        self._retry: int | None = None
        self._id: str | None = None
        self.last_id = None
        self.is_too_large = False

    @property
    def held_bytes(self) -> int:
        """The memory of the unfinished event and of the last id."""
        return self._held + sys.getsizeof(self._id) + sys.getsizeof(self._event)

    def receive(self, data: bytes) -> list[ServerSentEvent]:
        """Feed bytes; return the events that they complete."""
        text = "" if self.is_too_large else self._decoder.decode(data)
        if not text:
            return []
        if self._is_first:
            self._is_first = False  # a byte-order mark counts at the beginning of the stream only
            text = text.removeprefix("\ufeff")
        if self._after_cr:
            # The CR ended the line. An LF now is the second half of the same line end.
            self._after_cr = False
            text = text.removeprefix("\n")
        events: list[ServerSentEvent] = []
        self._after_cr = text.endswith("\r")
        *lines, rest = _LINE_END.split(text)
        for line in lines:
            self._take_line(line, events)
        self._hold(rest)
        return events

    def _take_line(self, line: str, events: list[ServerSentEvent]) -> None:
        self._hold(line)
        if self.is_too_large:
            return
        line = "".join(self._buffer)
        self._held -= sum(map(_held, self._buffer))
        self._buffer.clear()
        if not line:
            self._dispatch(events)
            return
        if line.startswith(":"):
            self._size -= len(line)  # nothing is kept of a comment, and pings of a quiet stream are comments
            return
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            if self._data is None:
                self._data = []
            self._data.append(value)
            self._held += _held(value)
        elif field == "event":
            self._event = value
        elif field == "id":
            # The standard ignores an id with NUL, other fields, and a retry with anything but digits.
            if "\0" not in value:
                self._id = value
        elif field == "retry" and value.isascii() and value.isdigit() and len(value) < _RETRY_DIGITS:
            self._retry = int(value)

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        data, retry = self._data, self._retry
        # Only now: an event that is cut off must be sent again, so its id does not count.
        self.last_id = self._id
        if data is not None or retry is not None:
            text = None if data is None else "\n".join(data)
            events.append(ServerSentEvent(text, self._event or "message", self._id, retry))
        self._data = self._retry = None
        self._event = ""
        self._size = self._held = 0

    def _hold(self, piece: str) -> None:
        """Store a piece of a line, within the limit."""
        self._size += len(piece)
        if self._size > self._limit:
            self.is_too_large = True
            self._buffer.clear()
            self._data = None
            self._held = 0
        elif piece:
            self._buffer.append(piece)
            self._held += _held(piece)


def _held(piece: str) -> int:
    """Return the memory of a piece of text and of its slot in a list. Texts of one character are shared."""
    return _LIST_SLOT + (sys.getsizeof(piece) if len(piece) > 1 else 0)


def encode_event(data: bytes, *, type: str | None = None, id: str | None = None, retry: int | None = None) -> bytes:
    """Return an event as bytes. ``data`` is UTF-8 text; line ends in it become several data lines.

    Raises ValueError for a type or an id that would break the stream.
    """
    parts = []
    for name, value in (("id", id), ("event", type)):
        if value is not None:
            if _BREAKS.search(value):
                raise ValueError(f"{name} must have no line end and no NUL, not {value!r:.100}")
            parts.append(f"{name}: {value}\n".encode())
    if retry is not None:
        parts.append(b"retry: %d\n" % retry)
    if b"\n" in data or b"\r" in data:
        parts.extend(b"data: " + line + b"\n" for line in _BYTES_LINE_END.split(data))
    else:
        parts.append(b"data: " + data + b"\n" if data else b"data:\n")
    parts.append(b"\n")
    return b"".join(parts)


def encode_comment(text: str = "") -> bytes:
    """Return a comment, which keeps a quiet stream alive. Raises ValueError if it contains a line end."""
    if _BREAKS.search(text):
        raise ValueError(f"text must have no line end and no NUL, not {text!r:.100}")
    return f": {text}\n\n".encode() if text else b":\n\n"


_LINE_END = re.compile(r"\r\n|\n|\r")
_BYTES_LINE_END = re.compile(rb"\r\n|\n|\r")
_BREAKS = re.compile(r"[\r\n\0]")
_RETRY_DIGITS: Final = 16
_LIST_SLOT: Final = 9
"""The bytes of a slot in a list, which grows by an eighth in advance."""
