from __future__ import annotations

import itertools
from functools import partial

import pytest
from counting import processor_seconds
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpio.framing.sse import ServerSentEvent, SseParser, encode_comment, encode_event


def read(*pieces: bytes, limit: int = 1000) -> list[ServerSentEvent]:
    parser = SseParser(limit)
    return [event for piece in pieces for event in parser.receive(piece)]


@pytest.mark.req("RESUME-07")
@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [ServerSentEvent("a")]),
        (b"data: a\r\rdata: b\r\n\r\n", [ServerSentEvent("a"), ServerSentEvent("b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [ServerSentEvent("a")]),
        (b"data: \xef\xbb\xbfa\n\n", [ServerSentEvent("\ufeffa")]),
        (b": a comment\n:\n\ndata:a\n\n", [ServerSentEvent("a")]),
        (b"data: a\ndata:  b\ndata\n\n", [ServerSentEvent("a\n b\n")]),
        (b"colour: red\nDATA: a\n data: b\n\n", []),
        (b"data\n\n", [ServerSentEvent("")]),
        (b"data:\n\n", [ServerSentEvent("")]),
        (b"event: x\n\ndata: a\n\n", [ServerSentEvent("a")]),
        (b"event: x\nevent: y\ndata: a\n\n", [ServerSentEvent("a", "y")]),
        (b"event:\ndata: a\n\n", [ServerSentEvent("a", "message")]),
        (b"id: 1\ndata: a\n\ndata: b\n\n", [ServerSentEvent("a", id="1"), ServerSentEvent("b", id="1")]),
        (b"id: 1\ndata: a\n\nid\ndata: b\n\n", [ServerSentEvent("a", id="1"), ServerSentEvent("b", id="")]),
        (b"id: 1\ndata: a\nid: 2\0\n\n", [ServerSentEvent("a", id="1")]),
        (b"id: 1\n\ndata: a\n\n", [ServerSentEvent("a", id="1")]),
        (b"retry: 20\n\n", [ServerSentEvent(None, retry=20)]),
        (b"retry: 20\ndata: a\n\ndata: b\n\n", [ServerSentEvent("a", retry=20), ServerSentEvent("b")]),
        (b"retry: 1e3\nretry: -1\nretry: +1\nretry:\nretry: \xd9\xa1\ndata: a\n\n", [ServerSentEvent("a")]),
        (b"retry: " + b"9" * 5000 + b"\ndata: a\n\n", [ServerSentEvent("a")]),
        (b"data: \xff\xfe\n\n", [ServerSentEvent("\ufffd\ufffd")]),
        (b"data: a\xe2\x80\xa8b\xc2\x85c\x0bd\n\n", [ServerSentEvent("a\u2028b\x85c\x0bd")]),
        (b"data: cut off", []),
        (b"data: cut off\n", []),
    ],
)
def test_stream_is_parsed_as_in_the_standard(stream: bytes, events: list[ServerSentEvent]) -> None:
    assert read(stream, limit=10_000) == events
    assert read(*(stream[at : at + 1] for at in range(len(stream))), limit=10_000) == events


@pytest.mark.req("RESUME-07")
def test_an_id_counts_when_its_event_is_complete_even_without_data() -> None:
    parser = SseParser()
    ids = [parser.last_id]
    for piece in (b"id: 1\n", b"\n", b"id\n", b"\n"):
        assert parser.receive(piece) == []
        ids.append(parser.last_id)
    assert ids == [None, None, "1", "1", ""]


PIECES = st.sampled_from(
    ["data: a", "data", "data:é\u2028", "id: 7", "event: x", "retry: 5", ": c", "", "\ufeff", "\0"]
)
ENDS = st.sampled_from(["\n", "\r", "\r\n"])


@given(st.lists(st.tuples(PIECES, ENDS), max_size=12), st.lists(st.integers(0, 200), max_size=8))
@settings(deadline=None, max_examples=examples(150))
def test_any_split_gives_the_same_events(lines: list[tuple[str, str]], cuts: list[int]) -> None:
    stream = "".join(line + end for line, end in lines).encode()
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[start:end] for start, end in itertools.pairwise(places)]
    assert read(*pieces) == read(stream)


def test_an_event_that_is_too_large_ends_the_reading() -> None:
    for stream in (b"data: " + b"x" * 100, b"data: x\n" * 20, b"data: a\n\n" + b"id: " + b"1" * 100 + b"\ndata: b\n\n"):
        parser = SseParser(100)
        events = parser.receive(stream)
        assert parser.is_too_large
        assert events == ([ServerSentEvent("a")] if b"data: a\n\n" in stream else [])
        assert parser.receive(b"\n\ndata: c\n\n") == []
    parser = SseParser(100)
    assert len(parser.receive(b"data: " + b"x" * 80 + b"\n\n" + b"data: " + b"x" * 80 + b"\n\n")) == 2
    assert not parser.is_too_large


def test_comments_are_not_part_of_an_event() -> None:
    parser = SseParser(max_event_bytes=100)
    for _ in range(1000):
        assert parser.receive(b": here\n") == []
    assert [event.data for event in parser.receive(b"data: x\n\n")] == ["x"]
    assert parser.receive(b":" + b"x" * 100) == []
    assert parser.is_too_large


def test_time_is_linear_in_the_number_of_pieces() -> None:
    def work(count: int) -> None:
        parser = SseParser()
        for _ in range(count):
            parser.receive(b"data: x")

    few, many = (processor_seconds([partial(work, count)] * 3) for count in (5_000, 50_000))
    assert many < 40 * max(few, 0.001)


# Writing


@pytest.mark.req("RESUME-07")
def test_encoded_events_are_parsed_back() -> None:
    stream = (
        encode_comment("hello")
        + encode_event(b'{"a": 1}', id="s-1")
        + encode_event(b"", id="s-2", retry=3000)
        + encode_comment()
        + encode_event(b"one\ntwo\r\nthree\r", type="note")
    )
    assert read(stream) == [
        ServerSentEvent('{"a": 1}', id="s-1"),
        ServerSentEvent("", id="s-2", retry=3000),
        ServerSentEvent("one\ntwo\nthree\n", "note", "s-2"),
    ]


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\0b"])
def test_event_that_would_break_the_stream_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="id must have no line end and no NUL, not "):
        encode_event(b"", id=text)
    with pytest.raises(ValueError, match="event must have no line end"):
        encode_event(b"", type=text)
    with pytest.raises(ValueError, match="text must have no line end and no NUL, not "):
        encode_comment(text)
