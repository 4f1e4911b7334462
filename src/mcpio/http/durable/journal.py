"""The journal of a durable session: its stored state, and output that is stored before it is sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from mcpio.http.server.replay import EVENT_COST
from mcpio.http.session_records import SessionRecord, StoredEvent, StreamRecord, dump_session

if TYPE_CHECKING:
    from mcpio.engine.limits import Limits
    from mcpio.http.server.sessions import Exchange, HttpSession, Stream

__all__ = ["HeldEvent", "Journal", "Lane", "journal_of"]

EVERYTHING: Final = 1 << 62
"""A mark after all others."""


@attrs.frozen
class HeldEvent:
    """An event that no exchange has taken."""

    event: StoredEvent
    mark: int
    """The mark that the store must reach before the event may be sent."""


class Lane:
    """The events of one stream that no exchange has taken, in order."""

    __slots__ = ("held", "leaves", "retry", "sent")

    def __init__(self, sent: int = 0) -> None:
        self.held: deque[HeldEvent] = deque()
        self.sent: int = sent
        """The number of the last event that an exchange took."""
        self.leaves: bool = False
        """Whether the exchange ends as soon as the client has an event to resume from."""
        self.retry: float | None = None
        """Seconds that the client is to wait then."""


class Journal:
    """The stored state of one session. Output has a mark, and may be sent once the store has reached it."""

    __slots__ = (
        "_changed",
        "_forgotten",
        "_held_bytes",
        "_held_count",
        "_lanes",
        "_limits",
        "_mark",
        "_saved_at",
        "_saved_value",
        "_session",
        "_unstored",
        "_writing",
        "gated",
        "is_failing",
        "is_new",
        "stored",
    )

    stored: int
    """The mark that the store has reached."""
    gated: dict[Exchange, None]
    """Exchanges whose JSON responses wait for the store."""
    is_new: bool
    """Whether the store does not know the session yet."""
    is_failing: bool
    """Whether the last write failed."""

    def __init__(self, session: HttpSession, changed: Callable[[], None], limits: Limits, *, is_new: bool) -> None:
        """Call ``changed`` when something must be stored. ``session`` counts the waiting bytes."""
        self._session = session
        self._changed = changed
        self._limits = limits
        self._mark = self.stored = 0
        self._lanes: dict[int, Lane] = {}
        self._held_count = self._held_bytes = 0
        self._unstored: deque[StoredEvent] = deque()
        self._forgotten: dict[tuple[int, int], None] = {}
        self._writing: tuple[int, int, tuple[tuple[int, int], ...]] | None = None
        self._saved_value: Any = None
        self._saved_at = float("-inf")
        self.gated = {}
        self.is_new = is_new
        self.is_failing = False

    # The session

    def mark(self) -> int:
        """Return the mark for output that depends on the present state of the session."""
        self._mark += 1
        self._changed()
        return self._mark

    def lane(self, stream: Stream) -> Lane:
        """Return the lane of a stream."""
        found = self._lanes.get(stream.number)
        if found is None:
            found = self._lanes[stream.number] = Lane()
        return found

    def put(self, stream: Stream, data: bytes) -> None:
        """Append an event, which waits for the store and for an exchange."""
        event = StoredEvent(stream.number, stream.next_number, data)
        stream.next_number += 1
        self._unstored.append(event)
        self.put_again(stream, event, self.mark())

    def put_again(self, stream: Stream, event: StoredEvent, mark: int = 0) -> None:
        """Append an event that was loaded from the store."""
        self.lane(stream).held.append(HeldEvent(event, mark))
        self._count(1, event)

    def first(self, stream: Stream) -> StoredEvent | None:
        """Return the next event of a stream, if it may be sent."""
        held = self.lane(stream).held
        return held[0].event if held and held[0].mark <= self.stored else None

    def take(self, stream: Stream) -> StoredEvent | None:
        """Remove and return the next event of a stream, if it may be sent."""
        event = self.first(stream)
        if event is not None:
            lane = self.lane(stream)
            lane.held.popleft()
            lane.sent = event.number
            self._count(-1, event)
        return event

    def drop(self, stream: Stream) -> None:
        """Drop the waiting events of a stream that has ended."""
        for each in self._lanes.pop(stream.number, Lane()).held:
            self._count(-1, each.event)
            self.forget(each.event.stream, each.event.number)

    def forget(self, stream: int, number: int) -> None:
        """Mark an event to be dropped from the store with the next write."""
        self._forgotten[stream, number] = None

    @property
    def has_room(self) -> bool:
        """Whether optional messages are still accepted (P6)."""
        return self._held_count < self._limits.replay_events and self._held_bytes < self._limits.replay_bytes

    def _count(self, sign: int, event: StoredEvent) -> None:
        size = sign * (len(event.data) + EVENT_COST)
        self._held_count += sign
        self._held_bytes += size
        self._session.unwritten += size

    # The store

    @property
    def is_writing(self) -> bool:
        """Whether a write is under way."""
        return self._writing is not None

    @property
    def has_more(self) -> bool:
        """Whether something is not stored yet."""
        return self._mark > self.stored

    def write(
        self, session: HttpSession, saved: Mapping[str, Any], moment: float, refresh: float
    ) -> tuple[bytes, tuple[StoredEvent, ...], tuple[tuple[int, int], ...]] | None:
        """Return the record to write, events to append and events to drop; ``None`` if the store is up to date.

        ``saved`` is the session as JSON. An unchanged record is written again ``refresh`` seconds after the last time.
        Raises LocalProtocolError if JSON cannot express it.
        """
        # A stream without events cannot be resumed.
        streams = tuple(
            StreamRecord(each.number, each.next_number, self.lane(each).sent)
            for each in session.streams.values()
            if each.next_number > 1
        )
        # Without ``sent``, which every event changes: ``DurableStreams.listen`` makes up for one that is too low.
        value = (_lasting(saved), [(each.number, each.next_number) for each in streams])
        if not self._unstored and value == self._saved_value and moment - self._saved_at < refresh:
            self.reach(self._mark)
            return None
        owner: Any = session.principal  # one that can be stored, or there would be no journal
        text = dump_session(SessionRecord(owner, session.next_stream, streams, saved))
        # Both stay until ``written``: a write that fails is repeated with all of them.
        events, forgotten = tuple(self._unstored), tuple(self._forgotten)
        self._writing = (self._mark, len(events), forgotten)
        self._saved_value, self._saved_at = value, moment
        return text, events, forgotten

    def written(self) -> None:
        """Record that the store has what ``write`` returned last."""
        if self._writing is not None:
            mark, count, forgotten = self._writing
            self._writing = None
            for _ in range(count):
                self._unstored.popleft()
            for each in forgotten:
                self._forgotten.pop(each, None)
            self.is_new = self.is_failing = False
            self.reach(mark)

    def failed(self) -> None:
        """Record that the write failed or that its outcome is unknown."""
        self._writing = self._saved_value = None  # the store may have either state: the next write is a whole one
        self.is_failing = True

    def reach(self, mark: int = EVERYTHING) -> None:
        """Release the output up to a mark."""
        self.stored = max(self.stored, mark)

    def let_events_go(self) -> None:
        """Release all events: the session has ended, so no client can resume their streams."""
        for lane in self._lanes.values():
            lane.held = deque(HeldEvent(each.event, 0) for each in lane.held)


def journal_of(session: HttpSession) -> Journal | None:
    """Return the journal of a session, which the server knows only in part."""
    journal: Any = session.journal
    found: Journal | None = journal
    return found


def _lasting(saved: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a session as JSON without the counters that change with each request and may restart."""
    engine = saved.get("engine")
    if not isinstance(engine, Mapping):
        return saved
    return {**saved, "engine": {name: value for name, value in engine.items() if name not in _COUNTERS}}


_COUNTERS: Final = frozenset({"next_incoming", "answered"})
