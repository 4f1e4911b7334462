from __future__ import annotations

from typing import Any

import pytest
from httpsite import INFO

from mcpio.engine.limits import Limits
from mcpio.engine.server import ServerConnection
from mcpio.http.checks import ParsedRequest, Rejection
from mcpio.http.durable import Journal
from mcpio.http.model import Body, End, RequestHead, Reset, ResponseHead
from mcpio.http.sessions import EVENT_COST, LISTENING, Exchange, HttpSession, Response, SentEvent, Stream


def exchange(ready: dict[Any, None] | None = None, *headers: tuple[bytes, bytes]) -> Exchange:
    request = ParsedRequest(RequestHead("e", "POST", "/mcp", ()))
    return Exchange(
        "e", request, None, fields=(), headers=headers, answers="auto", ready={} if ready is None else ready
    )


def test_json_response_has_its_length_and_the_common_fields() -> None:
    ready: dict[Any, None] = {}
    found = exchange(ready, (b"vary", b"origin"))
    found.respond(200, ((b"x", b"y"),), b"body")
    head, body, end = found.items
    assert head == ResponseHead("e", 200, ((b"x", b"y"), (b"content-length", b"4"), (b"vary", b"origin")))
    assert (body, end) == (Body("e", b"body"), End("e"))
    assert (found.response is Response.ENDED, list(ready)) == (True, ["e"])


def test_response_without_body_has_length_zero_unless_204() -> None:
    for status, length in ((202, ((b"content-length", b"0"),)), (204, ())):
        found = exchange()
        found.respond(status, ())
        assert list(found.items) == [ResponseHead("e", status, length), End("e")]


def test_rejection_is_json() -> None:
    found = exchange()
    found.reject(Rejection(404, "no", headers=((b"x", b"y"),)))
    head = found.items[0]
    assert isinstance(head, ResponseHead)
    assert (head.status, head.headers[:2]) == (404, ((b"content-type", b"application/json"), (b"x", b"y")))


def test_stream_response_ends_when_finished() -> None:
    ready: dict[Any, None] = {}
    found = exchange(ready)
    found.begin_stream(())
    assert (found.response is Response.STREAMING, found.response is Response.ENDED, list(ready)) == (True, False, ["e"])
    found.send(b"x")
    found.finish()
    assert [type(item) for item in found.items] == [ResponseHead, Body, End]


@pytest.mark.req("SEC-10")
def test_waiting_events_are_counted() -> None:
    session = HttpSession(1, ServerConnection(INFO), "me", 5.0)
    stream = Stream(3, None, session)
    for number, data in enumerate((b"abc", b"de")):
        stream.events.append(SentEvent(3, number, data))
    assert stream.events.unsent_bytes == session.unwritten == 5 + 2 * EVENT_COST
    assert (stream.via, Stream(LISTENING, None, session).via) == (3, None)


def test_stream_of_finds_streams_by_the_name_of_the_engine() -> None:
    session = HttpSession(1, ServerConnection(INFO), "me", 5.0)
    listening, other = Stream(LISTENING, None, session), Stream(1, None, session)
    session.streams = {0: listening, 1: other}
    assert (session.stream_of(None), session.stream_of(1)) == (listening, other)
    assert (session.stream_of(2), session.stream_of("x")) == (None, None)


def test_session_without_exchanges_and_requests_is_idle() -> None:
    session = HttpSession(1, ServerConnection(INFO), None, 0.0)
    assert session.is_idle
    session.exchanges, session.id = {exchange(): None}, "x"
    assert not session.is_idle


def test_response_of_durable_session_is_held_until_stored() -> None:
    session = HttpSession(1, ServerConnection(INFO), None, 0.0)
    assert not session.is_stuck
    journal = session.journal = Journal(session, lambda: None, Limits(), is_new=True)
    found = exchange()
    found.session = session
    held = [found.is_held]
    found.respond(200, ())
    assert [*held, found.is_held] == [False, True]
    found.take_back()
    assert (found.is_held, found.response is Response.ENDED, list(found.items)) == (False, False, [])
    found.respond(200, ())
    journal.reach()
    journal.failed()
    assert (found.is_held, session.is_stuck) == (False, True)


def test_body_is_taken_once() -> None:
    found = exchange()
    for piece in (b"a", b"b"):
        found.add_to_body(piece)
    assert (found.take_body(), found.take_body()) == (b"ab", b"")


def test_response_is_taken_in_a_piece_and_its_rest_at_once() -> None:
    found = exchange()
    found.respond(200, (), b"abcdefgh")
    assert [type(item) for item in found.take(3)] == [ResponseHead, Body]
    assert [getattr(item, "data", b"") for item in found.take(100)] == [b"defgh", b""]
    assert (found.size, found.items) == (0, [])


def test_take_stops_at_max_bytes() -> None:
    found = exchange()
    found.begin_stream(())
    for data in (b"abc", b"def"):
        found.send(data)
    assert [getattr(item, "data", b"") for item in found.take(3)] == [b"", b"abc"]
    assert [getattr(item, "data", b"") for item in found.take(3)] == [b"def"]


def test_cut_after_the_head_resets_the_response() -> None:
    found = exchange()
    found.begin_stream(())
    found.take(100)
    found.send(b"more")
    found.cut(Rejection(503, "no"))
    assert found.items == [Reset("e")]
    assert found.response is Response.ENDED


def test_cut_before_the_head_replaces_the_response() -> None:
    found = exchange()
    found.begin_stream(())
    found.cut(Rejection(503, "no"))
    head = found.items[0]
    assert isinstance(head, ResponseHead)
    assert head.status == 503
