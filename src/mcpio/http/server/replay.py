"""The events of streams: those that wait to be sent, and those kept for clients that resume.

A client whose connection broke names the last event that it saw, and gets the events after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from mcpio.engine.ledger import Held

__all__ = ["EVENT_COST", "EventQueue", "ReplayBuffer", "SentEvent", "event_id", "parse_event_id"]

EVENT_COST: Final = 200
"""Bytes of memory that an event takes in addition to its data."""

Forgotten = Callable[["SentEvent"], None]
"""Called with an event that is no longer kept."""


class Counter(Protocol):
    """The session that counts the bytes of its events."""

    held: Held
    unwritten: int


class SentEvent:
    """One server-sent event, encoded."""

    __slots__ = ("data", "number", "sent_at", "stream")

    stream: int
    """The number of its stream."""
    number: int
    """Its place among the events of the stream, from 1; 0 for an event without an id."""
    data: bytes
    """Its bytes."""
    sent_at: float
    """When an exchange took the last of its bytes, on the caller's clock."""

    def __init__(self, stream: int, number: int, data: bytes, sent_at: float = float("-inf")) -> None:
        self.stream = stream
        self.number = number
        self.data = data
        self.sent_at = sent_at

    @property
    def size(self) -> int:
        """Bytes of memory that it takes."""
        return len(self.data) + EVENT_COST


_NONE: Final[deque[SentEvent]] = deque()
"""Shared by the streams without events: most are answered in one piece."""


class EventQueue:
    """The events of one stream in order: those that were sent and are kept, then those that wait.

    The session counts the bytes of both.
    """

    __slots__ = ("_events", "_held", "_kept", "_offset", "_session", "unsent_bytes")

    unsent_bytes: int
    """Size in memory of the events that wait."""

    def __init__(self, session: Counter) -> None:
        self._session = session
        self._held = session.held
        self._events = _NONE
        self._kept = 0  # how many of them were sent
        self._offset = 0  # how much of the next one
        self.unsent_bytes = 0

    def append(self, event: SentEvent) -> None:
        """Append an event to those that wait."""
        self._own().append(event)
        self._wait(event.size)

    def put_back(self, events: list[SentEvent]) -> None:
        """Insert events before the waiting ones. No sent events may be kept here."""
        for event in reversed(events):
            self._own().appendleft(event)
            self._wait(event.size)

    def append_sent(self, event: SentEvent) -> None:
        """Append an event to those that were sent and are kept."""
        self._own().insert(self._kept, event)
        self._kept += 1
        self._held.replay += event.size

    def take(self, max_bytes: float) -> tuple[bytes, SentEvent | None]:
        """Return the next piece of the events that wait, with the event that it completes. Some event waits."""
        event = self._events[self._kept]
        begin, size = self._offset, len(event.data)
        if size - begin > max_bytes:
            self._offset = begin + int(max_bytes)
            return event.data[begin : self._offset], None
        self._offset = 0
        self._kept += 1
        self._wait(-event.size)
        self._held.replay += event.size
        return event.data[begin:], event

    def drop(self, event: SentEvent) -> None:
        """Forget the event that was sent last."""
        self._kept -= 1
        del self._events[self._kept]
        self._held.replay -= event.size

    def rewind(self, number: int | None = None) -> None:
        """Queue the events after ``number`` again, and the one that was sent in part."""
        self._offset = 0
        while number is not None and self._kept and self._events[self._kept - 1].number > number:
            self._kept -= 1
            size = self._events[self._kept].size
            self._held.replay -= size
            self._wait(size)

    def forget_sent(self, forgotten: Forgotten, now: float | None = None, window: float = 0.0) -> bool:
        """Forget the events that were sent; with ``now`` those sent ``window`` seconds ago or earlier.

        Returns whether there were any.
        """
        found = False
        # Written as the deadline is: ``sent_at <= now - window`` rounds otherwise, and could be false when it comes.
        while self._kept and (now is None or self._events[0].sent_at + window <= now):
            event = self._events.popleft()
            self._kept -= 1
            self._held.replay -= event.size
            forgotten(event)
            found = True
        return found

    def clear(self) -> Sequence[SentEvent]:
        """Remove and return all events."""
        events, self._events = tuple(self._events), _NONE
        self._wait(-self.unsent_bytes)
        for index in range(self._kept):
            self._held.replay -= events[index].size
        self._kept = self._offset = 0
        return events

    @property
    def oldest(self) -> float | None:
        """When the oldest kept event was sent; ``None`` if none is kept."""
        return self._events[0].sent_at if self._kept else None

    def _own(self) -> deque[SentEvent]:
        if self._events is _NONE:
            self._events = deque()
        return self._events

    def _wait(self, size: int) -> None:
        self.unsent_bytes += size
        self._session.unwritten += size


class ReplayBuffer:
    """The newest events of streams that are over, and of the listening stream; the oldest are dropped first (P6)."""

    __slots__ = ("_events", "_forgotten", "_held", "_most", "_most_bytes", "size")

    size: int
    """Size in memory of the events."""

    def __init__(self, most: int, most_bytes: int, held: Held, forgotten: Forgotten) -> None:
        """Keep at most ``most`` events of ``most_bytes`` in total; ``forgotten`` is called with each dropped one."""
        self._events: deque[SentEvent] = deque()
        self._most = most
        self._most_bytes = most_bytes
        self._held = held
        self._forgotten = forgotten
        self.size = 0

    def extend(self, events: Sequence[SentEvent]) -> None:
        """Keep events of one stream, in the order of their numbers.

        An event that does not fit is dropped with all earlier ones of its stream: a client can only resume from an
        unbroken run of events. Other streams keep theirs.
        """
        size = first = 0
        for index in reversed(range(len(events))):
            size += events[index].size
            if size > self._most_bytes or len(events) - index > self._most:
                first = index + 1
                break
        for event in events[:first]:
            self._forgotten(event)
        if first:
            for event in self.take(events[0].stream):
                self._forgotten(event)
        for event in events[first:]:
            self._append(event)

    def _append(self, event: SentEvent) -> None:
        self._events.append(event)
        self._count(event.size)
        while len(self._events) > self._most or self.size > self._most_bytes:
            self._forget()

    def __contains__(self, stream: int) -> bool:
        return any(event.stream == stream for event in self._events)

    def take(self, stream: int, number: int = 0) -> list[SentEvent]:
        """Remove and return the events of a stream after ``number``."""
        found = [event for event in self._events if event.stream == stream and event.number > number]
        if found:
            taken = set(map(id, found))
            self._events = deque(event for event in self._events if id(event) not in taken)
            self._count(-sum(event.size for event in found))
        return found

    def expire(self, now: float, window: float = 0.0) -> None:
        """Forget the events sent ``window`` seconds ago or earlier."""
        while self._events and self._events[0].sent_at + window <= now:  # see ``EventQueue.forget_sent``
            self._forget()

    def clear(self) -> None:
        """Forget all events."""
        while self._events:
            self._forget()

    @property
    def oldest(self) -> float | None:
        """When the oldest event was sent; ``None`` without events."""
        return self._events[0].sent_at if self._events else None

    def __iter__(self) -> Iterator[SentEvent]:
        return iter(self._events)

    def _count(self, size: int) -> None:
        self.size += size
        self._held.replay += size

    def _forget(self) -> None:
        event = self._events.popleft()
        self._count(-event.size)
        self._forgotten(event)


def event_id(stream: int, number: int) -> str:
    """Return the id of an event: its stream and its number (RESUME-01, RESUME-02)."""
    return f"{stream}-{number}"


def parse_event_id(text: str) -> tuple[int, int] | None:
    """Return the stream and the number in an event id; ``None`` if this server did not make the id."""
    stream, _, number = text.partition("-")
    digits = stream + number
    # Bounded: reading a number from text takes quadratic time.
    if len(digits) > _MOST_DIGITS or not (stream and number and digits.isascii() and digits.isdigit()):
        return None
    return int(stream), int(number)


_MOST_DIGITS = 40
