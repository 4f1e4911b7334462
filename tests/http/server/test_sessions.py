from __future__ import annotations

from typing import Any

import pytest
from httpsite import INFO

from mcpio.engine.limits import Limits
from mcpio.engine.server import ServerConnection
from mcpio.http.checks import ParsedRequest, Rejection
from mcpio.http.durable.journal import Journal
from mcpio.http.model import Body, End, RequestHead, Reset, ResponseHead
from mcpio.http.server.replay import EVENT_COST, SentEvent
from mcpio.http.server.sessions import LISTENING, Exchange, HttpSession, Response, Stream


def exchange(ready: dict[Any, None] | None = None, *headers: tuple[bytes, bytes]) -> Exchange:
    request = ParsedRequest(RequestHead("e", "POST", "/mcp", ()))
    return Exchange("e", request, None, headers=headers, answers="auto", ready={} if ready is None else ready)


def test_an_answer_in_one_piece_has_its_length_and_the_fields_of_every_answer() -> None:
    ready: dict[Any, None] = {}
    found = exchange(ready, (b"vary", b"origin"))
    found.respond(200, ((b"x", b"y"),), b"body")
    head, body, end = found.items
    assert head == ResponseHead("e", 200, ((b"x", b"y"), (b"content-length", b"4"), (b"vary", b"origin")))
    assert (body, end) == (Body("e", b"body"), End("e"))
    assert (found.response is Response.ENDED, list(ready)) == (True, ["e"])


def test_an_answer_without_a_body_says_so_where_it_may() -> None:
    for status, length in ((202, ((b"content-length", b"0"),)), (204, ())):
        found = exchange()
        found.respond(status, ())
        assert list(found.items) == [ResponseHead("e", status, length), End("e")]


def test_a_refusal_is_json() -> None:
    found = exchange()
    found.reject(Rejection(404, "no", headers=((b"x", b"y"),)))
    head = found.items[0]
    assert isinstance(head, ResponseHead)
    assert (head.status, head.headers[:2]) == (404, ((b"content-type", b"application/json"), (b"x", b"y")))


def test_a_stream_of_events_goes_on_until_it_is_finished() -> None:
    ready: dict[Any, None] = {}
    found = exchange(ready)
    found.begin_stream(())
    assert (found.response is Response.STREAMING, found.response is Response.ENDED, list(ready)) == (True, False, ["e"])
    found.send(b"x")
    found.finish()
    assert [type(item) for item in found.items] == [ResponseHead, Body, End]


@pytest.mark.req("SEC-10")
def test_what_waits_on_a_stream_is_counted() -> None:
    session = HttpSession(1, ServerConnection(INFO), "me", 5.0)
    stream = Stream(3, None, session)
    for number, data in enumerate((b"abc", b"de")):
        stream.events.append(SentEvent(3, number, data))
    assert stream.events.unsent_bytes == session.unwritten == 5 + 2 * EVENT_COST
    assert (stream.via, Stream(LISTENING, None, session).via) == (3, None)


def test_a_session_knows_its_streams_as_the_engine_names_them() -> None:
    session = HttpSession(1, ServerConnection(INFO), "me", 5.0)
    listening, other = Stream(LISTENING, None, session), Stream(1, None, session)
    session.streams = {0: listening, 1: other}
    assert (session.stream_of(None), session.stream_of(1)) == (listening, other)
    assert (session.stream_of(2), session.stream_of("x")) == (None, None)


def test_a_session_is_idle_without_exchanges_and_requests() -> None:
    session = HttpSession(1, ServerConnection(INFO), None, 0.0)
    assert session.is_idle
    session.exchanges, session.id = {exchange(): None}, "x"
    assert not session.is_idle


def test_what_rests_on_a_session_in_a_store_waits_for_that() -> None:
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


def test_a_body_is_taken_once() -> None:
    found = exchange()
    for piece in (b"a", b"b"):
        found.add_to_body(piece)
    assert (found.take_body(), found.take_body()) == (b"ab", b"")


def test_response_is_taken_by_the_piece_and_its_rest_at_once() -> None:
    found = exchange()
    found.respond(200, (), b"abcdefgh")
    assert [type(item) for item in found.take(3)] == [ResponseHead, Body]
    assert [getattr(item, "data", b"") for item in found.take(100)] == [b"defgh", b""]
    assert (found.size, found.items) == (0, [])


def test_nothing_is_taken_beyond_the_bytes_that_were_asked_for() -> None:
    found = exchange()
    found.begin_stream(())
    for data in (b"abc", b"def"):
        found.send(data)
    assert [getattr(item, "data", b"") for item in found.take(3)] == [b"", b"abc"]
    assert [getattr(item, "data", b"") for item in found.take(3)] == [b"def"]


def test_response_that_has_begun_is_cut_by_a_reset() -> None:
    found = exchange()
    found.begin_stream(())
    found.take(100)
    found.send(b"more")
    found.cut(Rejection(503, "no"))
    assert found.items == [Reset("e")]
    assert found.response is Response.ENDED


def test_response_that_has_not_gone_out_is_replaced_when_it_is_cut() -> None:
    found = exchange()
    found.begin_stream(())
    found.cut(Rejection(503, "no"))
    head = found.items[0]
    assert isinstance(head, ResponseHead)
    assert head.status == 503
