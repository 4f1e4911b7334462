"""The events of a session's streams that were sent, kept for a while: a client whose connection broke asks for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import attrs

__all__ = ["ReplayBuffer", "SentEvent", "event_id", "parse_event_id"]


@attrs.frozen
class SentEvent:
    """One event as it went out."""

    stream: int
    """The stream that it belongs to."""
    number: int
    """Its place among the events of that stream, from 1."""
    data: bytes
    """Its bytes."""
    sent_at: float
    """When, on the caller's clock."""


class ReplayBuffer:
    """The newest events of one session, over all its streams. The oldest go first, of whatever stream (P6)."""

    __slots__ = ("_events", "_most", "_most_bytes", "size")

    size: int
    """Bytes that are kept."""

    def __init__(self, most: int, most_bytes: int) -> None:
        """Keep at most so many events, of so many bytes in all."""
        self._events: deque[SentEvent] = deque()
        self._most = most
        self._most_bytes = most_bytes
        self.size = 0

    def append(self, event: SentEvent) -> None:
        """Keep an event. Those of a stream come in the order of their numbers."""
        self._events.append(event)
        self.size += len(event.data)
        while len(self._events) > self._most or self.size > self._most_bytes:
            self._forget()

    def after(self, stream: int, number: int) -> list[SentEvent]:
        """Return the events of a stream after the one of that number, as far as they are here, in order."""
        found: list[SentEvent] = []
        for event in reversed(self._events):
            if event.stream == stream:
                if event.number <= number:
                    break
                found.append(event)
        return found[::-1]

    def expire(self, now: float, window: float) -> None:
        """Forget what was sent ``window`` seconds ago, or earlier."""
        while self._events and self._events[0].sent_at + window <= now:
            self._forget()

    @property
    def oldest(self) -> float | None:
        """When the oldest event was sent; ``None`` without any."""
        return self._events[0].sent_at if self._events else None

    def __iter__(self) -> Iterator[SentEvent]:
        return iter(self._events)

    def _forget(self) -> SentEvent:
        event = self._events.popleft()
        self.size -= len(event.data)
        return event


def event_id(stream: int, number: int) -> str:
    """Return the id of an event: it names the stream and the place in it (RESUME-01, RESUME-02)."""
    return f"{stream}-{number}"


def parse_event_id(text: str) -> tuple[int, int] | None:
    """Return the stream and the place that an id of ours names; ``None`` for what is none."""
    stream, _, number = text.partition("-")
    digits = stream + number
    if len(digits) > _MOST_DIGITS or not (stream and number and digits.isascii() and digits.isdigit()):
        return None
    return int(stream), int(number)


_MOST_DIGITS = 40
