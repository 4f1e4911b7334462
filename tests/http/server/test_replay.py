from __future__ import annotations

import pytest
from httpsite import INFO
from hypothesis import given
from hypothesis import strategies as st

from mcpio.engine.limits import Held
from mcpio.engine.server import ServerConnection
from mcpio.http.sessions import EVENT_COST, EventQueue, HttpSession, ReplayBuffer, SentEvent, event_id, parse_event_id

EVENT = EVENT_COST + 10
"""What an event of ten bytes takes."""


def buffer(
    *events: tuple[int, int, float], most: int = 100, most_bytes: int = 10_000
) -> tuple[ReplayBuffer, Held, list[SentEvent]]:
    """Return a buffer, what it counts, and what it forgot."""
    held, forgotten = Held(), list[SentEvent]()
    kept = ReplayBuffer(most, most_bytes, held, forgotten.append)
    for stream, number, sent_at in events:
        kept.extend([SentEvent(stream, number, b"x" * 10, sent_at)])
    return kept, held, forgotten


def places(events: list[SentEvent]) -> list[tuple[int, int]]:
    return [(event.stream, event.number) for event in events]


@pytest.mark.req("RESUME-02", "RESUME-04")
def test_take_removes_later_events_of_one_stream_only() -> None:
    kept, held, forgotten = buffer((1, 1, 0), (2, 1, 0), (1, 2, 0), (1, 3, 0), (2, 2, 0))
    assert (1 in kept, 3 in kept) == (True, False)
    assert kept.take(1, 3) == kept.take(3) == []
    assert places(kept.take(1, 1)) == [(1, 2), (1, 3)]
    assert places(list(kept)) == [(1, 1), (2, 1), (2, 2)]
    assert (held.replay, kept.size, forgotten) == (3 * EVENT, 3 * EVENT, [])


@pytest.mark.req("RESUME-05")
def test_oldest_events_are_dropped_beyond_the_limits() -> None:
    events = [(1, number, 0.0) for number in range(1, 11)]
    for bounds in ({"most": 3}, {"most_bytes": 3 * EVENT + 5}):
        kept, held, forgotten = buffer(*events, **bounds)
        assert places(list(kept)) == [(1, 8), (1, 9), (1, 10)]
        assert held.replay == kept.size == 3 * EVENT
        assert places(forgotten) == [(1, number) for number in range(1, 8)]


@pytest.mark.req("RESUME-05")
def test_oversized_event_displaces_no_other_stream() -> None:
    kept, held, forgotten = buffer((1, 1, 0), (2, 1, 0), most_bytes=2 * EVENT)
    kept.extend([SentEvent(2, 2, b"x", 0.0), SentEvent(2, 3, b"x" * 1000, 0.0)])
    assert places(list(kept)) == [(1, 1)]
    assert held.replay == EVENT
    assert places(forgotten) == [(2, 2), (2, 3), (2, 1)]
    kept.extend([SentEvent(1, 2, b"x" * 1000, 0.0)])
    assert (list(kept), places(forgotten[3:])) == ([], [(1, 2), (1, 1)])


@pytest.mark.req("RESUME-05")
def test_last_events_of_a_too_large_stream_are_kept() -> None:
    for bounds in ({"most": 2}, {"most_bytes": 2 * EVENT}):
        kept, _, forgotten = buffer(**bounds)
        kept.extend([SentEvent(1, number, b"x" * 10, 0.0) for number in range(1, 5)])
        assert places(list(kept)) == [(1, 3), (1, 4)]
        assert places(forgotten) == [(1, 1), (1, 2)]


@pytest.mark.req("RESUME-05")
def test_expire_drops_old_events() -> None:
    kept, held, _ = buffer((1, 1, 0.1), (1, 2, 5.0), (1, 3, 9.0))
    kept.expire(0.1)
    assert places(list(kept)) == [(1, 2), (1, 3)]
    assert kept.oldest == 5.0
    kept.expire(9.0)
    assert (list(kept), kept.size, held.replay) == ([], 0, 0)


def test_empty_buffer_has_no_oldest_event() -> None:
    kept, held, forgotten = buffer((1, 1, 0.1))
    kept.clear()
    assert (kept.oldest, held.replay, len(forgotten)) == (None, 0, 1)


def queue(*events: bytes) -> tuple[EventQueue, HttpSession]:
    """Return the queue of a stream with events that wait, and its session."""
    session = HttpSession(1, ServerConnection(INFO), None, 0.0)
    found = EventQueue(session)
    for number, data in enumerate(events, 1):
        found.append(SentEvent(1, number, data))
    return found, session


def taken(events: EventQueue, most: int = 100) -> list[bytes]:
    """Return all that waits, by the piece."""
    pieces = []
    while events.unsent_bytes:
        pieces.append(events.take(most)[0])
    return pieces


def test_events_are_taken_in_pieces_and_counted_until_the_last() -> None:
    events, session = queue(b"abcde", b"fg")
    assert (events.take(2), session.unwritten) == ((b"ab", None), 7 + 2 * EVENT_COST)
    assert events.take(2)[0] == b"cd"
    piece, event = events.take(2)
    assert (piece, event and event.number) == (b"e", 1)
    assert (session.unwritten, session.held.replay, events.oldest) == (2 + EVENT_COST, 5 + EVENT_COST, float("-inf"))
    assert taken(events) == [b"fg"]
    assert (session.unwritten, session.held.replay) == (0, 7 + 2 * EVENT_COST)


@pytest.mark.req("RESUME-04")
def test_rewind_makes_later_events_wait_again() -> None:
    events, session = queue(b"abc", b"def", b"ghi")
    events.take(10)
    events.take(10)
    events.take(1)
    events.rewind(1)
    assert session.unwritten == 2 * (3 + EVENT_COST)
    assert taken(events) == [b"def", b"ghi"]
    events.rewind(3)
    assert events.unsent_bytes == 0


def test_rewind_restarts_a_partly_sent_event() -> None:
    events, _ = queue(b"abc")
    events.take(1)
    events.rewind()
    assert taken(events) == [b"abc"]


def test_sent_events_are_forgotten_or_dropped() -> None:
    events, session = queue(b"a", b"b", b"c")
    forgotten: list[SentEvent] = []
    for moment in (1.0, 2.0):
        _, event = events.take(10)
        assert event is not None
        event.sent_at = moment
    assert not events.forget_sent(forgotten.append, 0.5)
    assert events.forget_sent(forgotten.append, 1.0)
    assert (places(forgotten), events.oldest) == ([(1, 1)], 2.0)
    _, event = events.take(10)
    assert event is not None
    events.drop(event)
    assert events.forget_sent(forgotten.append)
    assert (events.oldest, session.held.replay, session.unwritten) == (None, 0, 0)


def test_events_put_back_come_first() -> None:
    events, session = queue(b"b")
    events.put_back([SentEvent(1, 0, b"a")])
    events.append_sent(SentEvent(1, 0, b"sent"))
    assert (session.held.replay, session.unwritten) == (4 + EVENT_COST, 2 + 2 * EVENT_COST)
    assert [event.data for event in events.clear()] == [b"sent", b"a", b"b"]
    assert (session.held.replay, session.unwritten, events.unsent_bytes) == (0, 0, 0)


@given(st.integers(0, 10**9), st.integers(1, 10**9))
def test_event_id_names_stream_and_number(stream: int, number: int) -> None:
    assert parse_event_id(event_id(stream, number)) == (stream, number)


@pytest.mark.req("RESUME-01")
@pytest.mark.parametrize(
    "text", ["", "1", "-", "1-", "-1", "1-2-3", "a-1", "1-\u0661", "+1-1", " 1-1", "1" * 50 + "-1"]
)
def test_foreign_event_id_parses_to_none(text: str) -> None:
    assert parse_event_id(text) is None


@given(st.text())
def test_any_text_parses_without_raising(text: str) -> None:
    found = parse_event_id(text)
    assert found is None or all(place >= 0 for place in found)
