from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpio.http.replay import ReplayBuffer, SentEvent, event_id, parse_event_id


def buffer(*events: tuple[int, int, float], most: int = 100, most_bytes: int = 10_000) -> ReplayBuffer:
    kept = ReplayBuffer(most, most_bytes)
    for stream, number, sent_at in events:
        kept.append(SentEvent(stream, number, b"x" * 10, sent_at))
    return kept


def places(events: list[SentEvent]) -> list[tuple[int, int]]:
    return [(event.stream, event.number) for event in events]


@pytest.mark.req("RESUME-02", "RESUME-04")
def test_what_came_after_an_event_on_its_stream_comes_again_and_nothing_else() -> None:
    kept = buffer((1, 1, 0), (2, 1, 0), (1, 2, 0), (1, 3, 0), (2, 2, 0))
    assert places(kept.after(1, 1)) == [(1, 2), (1, 3)]
    assert places(kept.after(2, 1)) == [(2, 2)]
    assert kept.after(1, 3) == kept.after(3, 1) == []


@pytest.mark.req("RESUME-05")
def test_the_oldest_go_when_there_are_too_many_or_too_much() -> None:
    many = buffer(*((1, number, 0) for number in range(1, 11)), most=3)
    assert places(list(many)) == places(many.after(1, 2)) == [(1, 8), (1, 9), (1, 10)]
    much = buffer(*((1, number, 0) for number in range(1, 11)), most_bytes=35)
    assert places(list(much)) == [(1, 8), (1, 9), (1, 10)]
    assert much.size == 30


@pytest.mark.req("RESUME-05")
def test_what_was_sent_long_ago_goes() -> None:
    kept = buffer((1, 1, 0.1), (1, 2, 5.0), (1, 3, 9.0))
    kept.expire(5.1, 5.0)
    assert places(list(kept)) == [(1, 2), (1, 3)]
    assert kept.oldest == 5.0
    kept.expire(14.0, 5.0)
    assert list(kept) == []
    assert kept.size == 0


def test_an_empty_buffer_has_no_oldest() -> None:
    assert buffer().oldest is None


@given(st.integers(0, 10**9), st.integers(1, 10**9))
def test_an_id_names_the_stream_and_the_place(stream: int, number: int) -> None:
    assert parse_event_id(event_id(stream, number)) == (stream, number)


@pytest.mark.req("RESUME-01")
@pytest.mark.parametrize(
    "text", ["", "1", "-", "1-", "-1", "1-2-3", "a-1", "1-\u0661", "+1-1", " 1-1", "1" * 50 + "-1"]
)
def test_what_is_no_id_of_ours_names_nothing(text: str) -> None:
    assert parse_event_id(text) is None


@given(st.text())
def test_no_text_does_harm(text: str) -> None:
    found = parse_event_id(text)
    assert found is None or all(place >= 0 for place in found)
