from __future__ import annotations

from typing import Any

import pytest
from httpsaid import ROOTS, asked, log, progress, said
from httpsite import Site, note, tool_call

from mcpio.engine.limits import Limits
from mcpio.errors import NoBackChannel
from mcpio.events import RequestFailed
from mcpio.http.model import HttpOptions
from mcpio.http.streams import TimerKind
from mcpio.types import (
    CallToolResult,
    CustomNotification,
    ListRootsRequest,
    PingRequest,
    ToolListChangedNotification,
)

# How a response begins


@pytest.mark.req("HTTP-11", "HTTP-15", "HTTP-16", "HTTP-17", "HTTP-23")
def test_notification_before_the_answer_makes_a_stream() -> None:
    site = Site()
    exchange, event = asked(site, site.open())
    assert exchange.status == 0
    progress(site, event, 1)
    assert (exchange.status, exchange.headers["content-type"]) == (200, "text/event-stream")
    assert exchange.headers["x-accel-buffering"] == "no"
    assert "no-transform" in exchange.headers["cache-control"]
    progress(site, event, 2)
    site.answer(event)
    assert said(exchange.new_messages()) == [1, 2, "answer"]
    assert exchange.is_over


@pytest.mark.req("HTTP-11")
def test_late_answer_becomes_a_stream_after_sse_after() -> None:
    site = Site(HttpOptions(sse_after=0.5))
    exchange, event = site.call(site.open())
    site.advance(0.4)
    assert exchange.status == 0
    site.advance(0.2)
    assert (exchange.status, exchange.is_over) == (200, False)
    site.answer(event)
    assert said(exchange.new_messages()) == ["answer"]


@pytest.mark.req("HTTP-11")
@pytest.mark.parametrize("options", [HttpOptions(sse_after=None), HttpOptions(answers="json")])
def test_json_only_answer_waits_without_limit(options: HttpOptions) -> None:
    site = Site(options)
    exchange, event = site.call(site.open())
    site.advance(100)
    assert exchange.status == 0
    site.answer(event)
    assert exchange.json["id"] == 1


@pytest.mark.req("HTTP-11")
def test_answers_sse_begins_the_stream_at_once() -> None:
    site = Site(HttpOptions(answers="sse"))
    session = site.open()
    exchange, event = site.call(session)
    assert exchange.headers["content-type"] == "text/event-stream"
    site.answer(event)
    assert said(exchange.new_messages()) == ["answer"]
    quick = site.post({"jsonrpc": "2.0", "id": 5, "method": "ping"}, session)
    assert ([each["id"] for each in quick.new_messages()], quick.is_over) == ([5], True)


@pytest.mark.req("HTTP-07")
@pytest.mark.parametrize(("accept", "kind"), [("application/json", "json"), ("text/event-stream", "event-stream")])
def test_client_that_accepts_one_form_gets_it(accept: str, kind: str) -> None:
    site = Site(HttpOptions(strict_accept=False))
    exchange, event = asked(site, site.open(), accept=accept)
    progress(site, event, 1)
    site.answer(event)
    assert exchange.headers["content-type"].endswith(kind)
    assert exchange.is_over


@pytest.mark.req("HTTP-34")
def test_each_message_is_sent_on_exactly_one_stream() -> None:
    site = Site()
    session = site.open()
    listening = site.listen(session)
    first, event = asked(site, session)
    second, other = asked(site, session)
    log(site, "all")
    log(site, "first", event)
    progress(site, other, 5)
    for each in (event, other):
        site.answer(each)
    assert said(listening.new_messages()) == ["all"]
    assert said(first.new_messages()) == ["first", "answer"]
    assert said(second.new_messages()) == [5, "answer"]


# JSON only


@pytest.mark.req("HTTP-28", "HTTP-37")
def test_notification_beside_json_answer_goes_to_the_listener() -> None:
    site = Site(HttpOptions(answers="json"))
    session = site.open(capabilities=ROOTS)
    exchange, event = asked(site, session)
    connection = site.session().connection
    with pytest.raises(NoBackChannel):
        connection.send_request(ListRootsRequest(), now=0.0, related_to=event.id)
    progress(site, event, 1)
    assert site.session().undelivered == 1
    listening = site.listen(session)
    progress(site, event, 2)
    connection.send_request(ListRootsRequest(), now=0.0, related_to=event.id)
    site.touch(site.session())
    site.answer(event)
    assert exchange.json["id"] == 1
    assert said(listening.new_messages()) == [2, "roots/list"]


@pytest.mark.req("HTTP-37")
def test_request_to_client_fails_when_its_listener_is_lost() -> None:
    site = Site(HttpOptions(answers="json"))
    session = site.open(capabilities=ROOTS)
    _, event = asked(site, session)
    listening = site.listen(session)
    site.session().connection.send_request(ListRootsRequest(), now=0.0, related_to=event.id, cookie="c")
    site.reset(listening)
    site.touch(site.session())
    (failed,) = [each for _, each in site.events if isinstance(each, RequestFailed)]
    assert isinstance(failed.error, NoBackChannel)
    assert failed.cookie == "c"


def test_listener_that_does_not_read_gets_a_bounded_share() -> None:
    site = Site(HttpOptions(answers="json"), limits=Limits(high_water=2000))
    session = site.open()
    listening = site.listen(session)
    site.stall(listening)
    exchange, event = asked(site, session)
    for number in range(200):
        progress(site, event, number + 1)
    assert 100 < site.session().undelivered < 200
    assert site.session().streams[0].events.unsent_bytes < 3000
    site.answer(event)
    site.unstall(listening)
    assert exchange.is_over
    assert 0 < len(listening.new_messages()) < 100


# Cancelled


@pytest.mark.req("CANC-10")
@pytest.mark.parametrize("answers", ["auto", "json", "sse"])
def test_stream_of_cancelled_request_ends_without_answer(answers: Any) -> None:
    site = Site(HttpOptions(answers=answers))
    session = site.open()
    exchange, event = site.call(session)
    other, going_on = site.call(session, 2)
    assert site.post(note("cancelled", requestId=1), session).status == 202
    assert (exchange.status, exchange.is_over, exchange.new_messages()) == (200, True, [])
    site.session().connection.send_result(event.id, CallToolResult(()))
    site.touch(site.session())
    site.answer(going_on)
    assert [each["id"] for each in (other.new_messages() if answers == "sse" else [other.json])] == [2]
    assert site.session().streams == {}


@pytest.mark.req("CANC-10")
def test_broken_stream_of_cancelled_request_ends_when_resumed() -> None:
    site = Site(HttpOptions(answers="sse"))
    session = site.open()
    exchange, _ = site.call(session)
    exchange.new_events()
    site.reset(exchange)
    site.post(note("cancelled", requestId=1), session)
    again = site.listen(session, exchange.last_event_id)
    assert (again.is_over, again.new_messages()) == (True, [])


# Listening


@pytest.mark.req("HTTP-26", "HTTP-27", "HTTP-29")
def test_second_listener_replaces_the_first() -> None:
    site = Site()
    session = site.open()
    first = site.listen(session)
    assert (first.status, first.headers["content-type"]) == (200, "text/event-stream")
    second = site.listen(session)
    assert (first.is_over, first.is_broken, second.is_over) == (True, False, False)
    log(site, "x")
    assert (said(first.new_messages()), said(second.new_messages())) == ([], ["x"])


@pytest.mark.req("HTTP-27")
def test_server_without_listening_refuses_get() -> None:
    site = Site(HttpOptions(listening=False))
    session = site.open()
    refused = site.listen(session)
    assert (refused.status, refused.headers["allow"]) == (405, "POST, DELETE")
    with pytest.raises(NoBackChannel):
        log(site, 1)
    exchange, event = asked(site, session)
    progress(site, event, 1)
    assert exchange.new_events()[0].id is None


@pytest.mark.req("HTTP-37")
def test_message_without_request_waits_for_a_listener() -> None:
    site = Site()
    session = site.open()
    for number in range(3):
        log(site, number)
        site.session().connection.send_notification(ToolListChangedNotification())
    site.touch(site.session())
    assert said(site.listen(session).new_messages()) == [0, 1, 2, "notifications/tools/list_changed"]


def test_quiet_stream_gets_keep_alive_comments() -> None:
    site = Site(HttpOptions(keep_alive=15))
    session = site.open()
    listening = site.listen(session)
    before = len(listening.data)
    site.advance(14)
    assert len(listening.data) == before
    site.advance(17)
    assert listening.data[before:] == b":\n\n" * 2
    site.stall(listening)
    site.advance(100)
    assert site.session().unwritten == 3
    site.reset(listening)
    assert site.session().unwritten == 0
    site.advance(100)
    silent = Site(HttpOptions(keep_alive=None))
    listening = silent.listen(silent.open())
    before = len(listening.data)
    silent.advance(1000)
    assert len(listening.data) == before


def test_resumed_stream_gets_keep_alive_comments() -> None:
    site = Site(HttpOptions(keep_alive=15))
    session = site.open()
    exchange, event = asked(site, session)
    progress(site, event, 1)
    assert said(exchange.new_messages()) == [1]
    site.reset(exchange)
    again = site.listen(session, exchange.last_event_id)
    before = len(again.data)
    site.advance(16)
    assert again.data[before:] == b":\n\n"


def test_active_stream_gets_no_comment() -> None:
    site = Site(HttpOptions(keep_alive=15))
    session = site.open()
    listening = site.listen(session)
    site.advance(10)
    log(site, 1)
    before = len(listening.data)
    site.advance(14)
    assert len(listening.data) == before
    site.advance(1)
    assert listening.data[before:] == b":\n\n"


# Slow readers


@pytest.mark.req("SEC-10")
def test_slow_client_affects_only_its_own_session() -> None:
    site = Site(limits=Limits(queued_bytes=10_000))
    slow, other = site.open(), site.open()
    listening = site.listen(slow)
    site.stall(listening)
    stuck = site.session(slow)
    for _ in range(20):
        if stuck.connection.phase.name != "CLOSED":
            stuck.connection.send_notification(CustomNotification("x", {"pad": "x" * 1000}))
        site.touch(stuck)
    assert site.post(tool_call(), slow).status == 404
    exchange, event = site.call(other)
    site.answer(event)
    assert exchange.status == 200
    site.unstall(listening)
    assert listening.is_over


def test_response_is_pulled_in_pieces() -> None:
    site = Site()
    session = site.open()
    listening = site.listen(session)
    site.stall(listening)
    for number in range(50):
        log(site, number)
    name = site.name(listening)
    pieces = []
    while items := site.machine.responses_to_send(name, 200):
        pieces.append(items)
        for item in items:
            listening.take(item)
    assert len(pieces) > 10
    assert said(listening.new_messages()) == list(range(50))


@pytest.mark.req("PING-01")
def test_ping_to_the_client_goes_to_the_listener() -> None:
    site = Site()
    session = site.open()
    listening = site.listen(session)
    site.session().connection.send_request(PingRequest(), now=0.0)
    site.touch(site.session())
    (ping,) = listening.new_messages()
    assert site.post({"jsonrpc": "2.0", "id": ping["id"], "result": {}}, session).status == 202
    assert site.kinds()[-1] == "ResponseReceived"


# The end


@pytest.mark.req("HTTP-17")
def test_waiting_events_are_sent_before_the_session_ends() -> None:
    site = Site(HttpOptions(keep_alive=15))
    session = site.open()
    listening = site.listen(session)
    other, _ = site.call(session)
    site.stall(listening)
    site.advance(16)
    site.reset(other)
    site.ask("DELETE", mcp_session_id=session)
    site.unstall(listening)
    assert listening.data.endswith(b":\n\n")
    assert listening.is_over


def test_streams_end_when_the_server_closes() -> None:
    site = Site()
    session = site.open()
    listening = site.listen(session)
    exchange, event = asked(site, session)
    gone, other = asked(site, session)
    for each in (event, other):
        progress(site, each, 1)
    site.reset(gone)
    site.answer(other)
    log(site, "last words")
    site.machine.close(site.now, grace=5.0)
    site.settle()
    assert not exchange.is_over
    site.answer(event)
    assert (said(exchange.new_messages()), exchange.is_over) == ([1, "answer"], True)
    assert (said(listening.new_messages()), listening.is_over) == (["last words"], True)
    assert site.machine.closed


def test_legacy_output_is_sent_on_one_stream_without_ids() -> None:
    site = Site(HttpOptions(legacy=("/sse", "/messages")))
    stream = site.ask("GET", "/sse")
    (endpoint,) = stream.new_events()
    assert (endpoint.type, endpoint.id) == ("endpoint", None)
    site.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, target=f"/{endpoint.data}")
    (answer,) = stream.new_events()
    assert (answer.type, answer.id) == ("message", None)
    assert not site.machine.interrupt(site.session(), 0, site.now)


def test_request_to_client_without_session_fails() -> None:
    site = Site(HttpOptions(sessions=False, answers="sse"))
    exchange, event = site.call(None)
    session = site.session()
    session.connection.send_request(PingRequest(), now=0.0, related_to=event.id)
    site.touch(session)
    assert isinstance(site.events[-1][1], RequestFailed)
    site.answer(event)
    assert said(exchange.new_messages()) == ["answer"]


def test_request_that_cannot_reach_the_client_fails_before_anything_is_pulled() -> None:
    site = Site(HttpOptions(sessions=False))
    _, event = site.call(None)
    session = site.session()
    session.connection.send_request(PingRequest(), now=0.0, related_to=event.id)
    site.machine.touch(session, 0.0)
    found = site.machine.next_event()
    assert found is not None
    assert isinstance(found[1], RequestFailed)


def test_close_drops_messages_without_listener_and_streams_without_exchange() -> None:
    site = Site()
    session = site.open()
    gone, event = asked(site, session)
    progress(site, event, 1)
    waiting, _ = site.call(session, 2)
    site.reset(gone)
    coming = site.ask("GET", body=None, accept="text/event-stream", mcp_session_id=session)
    site.reset(coming)
    log(site, "nobody hears")
    found = site.session()
    found.connection.close(site.now, grace=5.0)
    site.touch(found)
    assert found.undelivered == 1
    site.ask("DELETE", mcp_session_id=session)
    assert waiting.status == 500


@pytest.mark.parametrize("sent_at", [0.001, 0.004, 0.1, 0.25])
def test_deadline_of_sent_events_forgets_them_whatever_its_rounding(sent_at: float) -> None:
    site = Site(HttpOptions(resume_within=60, keep_alive=None, session_idle=None))
    session = site.open()
    exchange, event = asked(site, session)
    site.now = sent_at
    progress(site, event, 1)
    site.answer(event)
    assert exchange.is_over
    site.advance(61)
    assert site.machine.next_deadline() is None


def test_sent_events_are_forgotten_after_resume_within() -> None:
    site = Site(HttpOptions(resume_within=10, keep_alive=None))
    session = site.open()
    listening = site.listen(session)
    for number in range(3):
        log(site, number)
        site.advance(4)
    site.reset(listening)
    assert said(site.listen(session, "0-3").new_messages()) == [2]
    site.advance(20)
    assert site.session().replay is None


def test_each_sent_event_of_a_listening_stream_is_forgotten_in_time() -> None:
    site = Site(HttpOptions(resume_within=10, keep_alive=None))
    site.listen(site.open())
    for number in range(2):
        log(site, number)
        site.advance(6)
    assert site.session().replay is not None
    site.advance(5)
    assert site.session().replay is None


def test_deadlines_of_closed_streams_do_nothing() -> None:
    site = Site()
    session = site.open()
    site.reset(site.listen(session))
    found = site.session()
    found.replay = None
    for due in TimerKind:
        site.machine.streams.handle_timeout(due, found, 99)
    assert found.streams[0].events.unsent_bytes == 0
