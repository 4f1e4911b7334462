from __future__ import annotations

import gc
import json
import tracemalloc

import pytest
from httpsite import Site, initialize, note, tool_call
from weighing import IDLE, weight

from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.table import Phase
from mcpio.events import RequestFailed
from mcpio.http.model import HttpOptions
from mcpio.revisions import REV_2025_11_25
from mcpio.types import PingRequest, ToolListChangedNotification


@pytest.mark.req("SESS-01")
def test_session_events_come_in_order_from_opened_to_closed() -> None:
    site = Site()
    session = site.open()
    exchange, event = site.call(session)
    site.answer(event)
    site.machine.close(site.now)
    site.settle()
    assert exchange.is_over
    assert site.kinds() == [
        "SessionOpened",
        "Negotiated",
        "Initialized",
        "RequestReceived",
        "ConnectionClosed",
        "SessionClosed",
    ]


@pytest.mark.req("SESS-05")
def test_unused_session_ends_after_session_idle() -> None:
    site = Site(HttpOptions(session_idle=100))
    session = site.open()
    site.advance(60)
    assert site.post(note("x"), session).status == 202
    site.advance(99)
    assert site.machine.sessions
    site.advance(2)
    assert site.machine.sessions == ()
    assert site.post(note("x"), session).status == 404
    assert site.machine.next_deadline() is None


def test_session_with_open_exchange_outlives_session_idle() -> None:
    site = Site(HttpOptions(session_idle=100, keep_alive=None))
    listened, called = site.open(), site.open()
    listening = site.listen(listened)
    _, event = site.call(called)
    site.advance(1000)
    assert site.post(note("x"), called).status == 202
    site.reset(listening)
    site.answer(event)
    site.advance(99)
    assert {session.id for session in site.machine.sessions} == {listened, called}
    site.advance(101)
    assert site.machine.sessions == ()


def test_session_is_idle_from_when_its_client_left() -> None:
    site = Site(HttpOptions(session_idle=100, keep_alive=None))
    session = site.open()
    exchange, event = site.call(session)
    site.advance(500)
    site.reset(exchange)
    site.advance(99)
    assert site.session().connection.is_pending(event.id)
    site.advance(2)
    assert site.machine.sessions == ()
    assert site.post(note("x"), session).status == 404


def test_session_without_idle_limit_stays() -> None:
    site = Site(HttpOptions(session_idle=None))
    site.open()
    assert site.machine.next_deadline() is None
    site.advance(10**9)
    assert len(site.machine.sessions) == 1


@pytest.mark.req("SEC-10")
def test_idlest_session_ends_to_make_room() -> None:
    site = Site(limits=Limits(sessions=3))
    first, second, third = site.open(), site.open(), site.open()
    site.post(note("x"), first)
    site.call(second)
    fourth = site.open()
    assert [session.id for session in site.machine.sessions] == [first, second, fourth]
    assert site.post(note("x"), third).status == 404


def left_running(site: Site, *, after: float = 0.0) -> str:
    """Open a session whose client calls a tool and leaves; return its id."""
    session = site.open()
    exchange, _ = site.call(session)
    site.reset(exchange)
    site.advance(after)
    return session


def ids(site: Site) -> list[str | None]:
    return [session.id for session in site.machine.sessions]


@pytest.mark.req("SEC-10")
def test_session_whose_client_left_for_good_goes_before_idle_ones() -> None:
    site = Site(HttpOptions(resume_within=60), limits=Limits(sessions=4))
    idle = site.open()
    first, second = left_running(site, after=1), left_running(site, after=58)
    listening = site.open()
    site.listen(listening)
    site.advance(1)  # the client of the second session may still come back
    assert ids(site) == [idle, first, second, listening]
    third = site.open()
    assert ids(site) == [idle, second, listening, third]
    site.advance(1)
    fourth = site.open()
    assert ids(site) == [idle, listening, third, fourth]


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize("window", [60.0, None])
def test_session_whose_client_may_come_back_goes_in_its_turn(window: float | None) -> None:
    site = Site(HttpOptions(resume_within=window), limits=Limits(sessions=2))
    left, idle = left_running(site), site.open()
    assert ids(site) == [left, idle]
    new = site.open()
    assert ids(site) == [idle, new]


@pytest.mark.req("SEC-10")
def test_session_whose_client_came_back_is_not_abandoned() -> None:
    site = Site(HttpOptions(resume_within=60), limits=Limits(sessions=3))
    idle = site.open()
    answered, busy = left_running(site), left_running(site)
    site.answer(site.requests()[0])
    site.listen(busy)
    site.advance(100)
    new = site.open()
    assert ids(site) == [answered, busy, new]
    assert site.post(note("x"), idle).status == 404


@pytest.mark.req("SEC-10")
def test_sessions_that_cannot_be_resumed_are_abandoned_at_once() -> None:
    site = Site(HttpOptions(resumable=False), limits=Limits(sessions=2))
    idle, left = site.open(), left_running(site)
    new = site.open()
    assert ids(site) == [idle, new]
    assert left not in ids(site)


def test_rejected_client_ends_no_idle_session() -> None:
    limits = Limits(sessions=1)
    site = Site(limits=limits, engine=Options(limits=limits, revisions=(REV_2025_11_25,)))
    session = site.open()
    rejected = site.post(initialize("2025-06-18"), mcp_protocol_version="2025-06-18")
    assert (rejected.status, rejected.json["error"]["message"]) == (
        400,
        "Invalid request: revision 2025-06-18 is not served here",
    )
    assert [each.id for each in site.machine.sessions] == [session]


@pytest.mark.req("SEC-10")
def test_new_client_is_refused_when_no_session_is_idle() -> None:
    site = Site(limits=Limits(sessions=2))
    for _ in range(2):
        site.listen(site.open())
    refused = site.post(initialize())
    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    assert len(site.machine.sessions) == 2


def test_engine_deadline_becomes_a_deadline_of_the_server() -> None:
    site = Site(HttpOptions(keep_alive=None))
    session = site.open()
    site.listen(session)
    connection = site.session().connection
    connection.send_request(PingRequest(), now=site.now, timeout=5)
    site.touch(site.session())
    site.touch(site.session())
    assert site.machine.next_deadline() == 5
    site.advance(6)
    assert [type(event) for _, event in site.events][-1] is RequestFailed
    assert site.machine.next_deadline() == 60


def test_touching_a_closed_session_does_nothing() -> None:
    site = Site()
    session = site.open()
    old = site.session()
    site.ask("DELETE", mcp_session_id=session)
    site.kinds()
    site.machine.touch(old, site.now)
    assert site.kinds() == []
    assert old.connection.can_reach is None


def test_deadlines_of_closed_sessions_do_nothing() -> None:
    site = Site(HttpOptions(session_idle=10))
    sessions = [site.open(), site.open()]
    for session in sessions:
        site.listen(session)
    site.call(sessions[0])
    for each in site.machine.sessions:
        each.connection.close(site.now, grace=10)
        site.machine.touch(each, site.now)
    site.advance(100)
    assert site.machine.sessions == ()


def test_second_of_two_deadlines_does_nothing_after_the_first_ends_the_session() -> None:
    site = Site(HttpOptions(sse_after=2.0))
    session = site.open()
    exchange, _ = site.call(session)
    site.session().connection.close(site.now, grace=2.0)
    site.machine.touch(site.session(), site.now)
    site.now = 2.0
    site.machine.handle_timeout(2.0)
    site.settle()
    assert (exchange.status, exchange.is_over) == (500, True)
    assert site.machine.sessions == ()


def test_earlier_now_does_not_turn_time_back() -> None:
    site = Site(HttpOptions(session_idle=10))
    site.now = 100.0
    site.open()
    site.machine.handle_timeout(50.0)
    site.machine.touch(site.session(), 50.0)
    assert site.machine.next_deadline() == 110.0


def test_request_of_ended_session_ends_when_cut_off() -> None:
    site = Site()
    session = site.open()
    exchange, event = site.call(session)
    found = site.session()
    found.connection.abort(ValueError("a handler's fault"))
    site.touch(found)
    assert (exchange.status, found.connection.phase) == (500, Phase.CLOSED)
    found.connection.send_result(event.id, None)
    site.touch(found)


# Small and bounded


@pytest.mark.req("SEC-10")
def test_abandoned_sessions_leave_no_memory() -> None:
    site = Site(HttpOptions(session_idle=100), limits=Limits(sessions=100))

    def open_many() -> int:
        tracemalloc.reset_peak()
        for _ in range(200):
            site.open()
        site.events.clear()
        site._responses.clear()
        assert len(site.machine.sessions) == 100
        peak = tracemalloc.get_traced_memory()[1]
        site.advance(200)
        site.events.clear()
        return peak

    tracemalloc.start()
    try:
        open_many()
        first = open_many()
        gc.collect()
        base = tracemalloc.get_traced_memory()[0]
        second = open_many()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < base + 50_000
        assert second < first * 1.05
    finally:
        tracemalloc.stop()
    assert site.machine.sessions == ()
    assert site.machine.next_deadline() is None


@pytest.mark.parametrize("options", [HttpOptions(), HttpOptions(answers="sse", resume_within=1)])
def test_idle_session_is_small_and_has_one_deadline(options: HttpOptions) -> None:
    site = Site(options)
    session = site.open()
    for number in range(50):
        exchange = site.post(tool_call(number, progressToken=number), session)
        event = site.requests()[-1]
        site.session().connection.send_progress(event.id, 1)
        site.touch(site.session())
        if number % 5 == 0:
            site.reset(exchange)
        site.answer(event)
    site.advance(100)
    found = site.session()
    assert (found.streams, found.replay) == ({}, None)
    assert deadlines(site) == 1
    handshake = found.connection._handshake
    shared = {id(found.connection._admission), id(handshake and handshake._offered)}
    assert weight(found.connection, set(shared)) <= IDLE
    assert weight(found, shared) <= IDLE + 1024


def deadlines(site: Site) -> int:
    """Return how many deadlines there are."""
    return len(site.machine._timers._deadlines or ())


# What flush sees to


@pytest.mark.req("HTTP-10", "CANC-10")
def test_engine_events_are_passed_on_with_violations() -> None:
    site = Site()
    session = site.open()
    exchange, _ = site.call(session)
    assert site.post({"jsonrpc": "2.0", "id": 99, "result": {}}, session).status == 400
    assert site.post(note("cancelled", requestId=1), session).status == 202
    assert exchange.is_over
    assert site.kinds()[-2:] == ["ProtocolViolated", "CancelReceived"]


def test_closing_session_with_running_request_stays_until_its_grace() -> None:
    site = Site()
    session = site.open()
    exchange, event = site.call(session)
    site.session().connection.close(site.now, grace=5.0)
    site.touch(site.session())
    assert site.machine.sessions
    site.answer(event)
    assert exchange.is_over
    assert site.machine.sessions == ()


def test_session_of_one_request_ends_with_it() -> None:
    site = Site(HttpOptions(sessions=False))
    exchange, event = site.call(None)
    site.touch(site.session())
    site.answer(event)
    assert exchange.is_over
    assert site.machine.sessions == ()


def test_legacy_session_ends_with_its_listening_stream() -> None:
    site = Site(HttpOptions(legacy=("/sse", "/messages")))
    stream = site.ask("GET", "/sse")
    site.reset(stream)
    assert site.kinds() == ["SessionOpened", "ConnectionClosed", "SessionClosed"]


def test_server_without_store_has_no_effects() -> None:
    site = Site()
    assert site.machine.next_effect() is None
    site.machine.store_done(1, None, site.now)
    site.machine.close(site.now)
    assert site.machine.closed


def test_answer_without_a_stream_is_counted_as_undelivered() -> None:
    site = Site()
    site.open()
    connection = site.session().connection
    connection.receive_message(json.dumps(tool_call()).encode(), site.now, via="elsewhere")
    site.touch(site.session())
    site.answer(site.requests()[0])
    assert site.session().undelivered == 1


def test_closing_session_waits_for_slow_listener() -> None:
    site = Site()
    listening = site.listen(site.open())
    site.stall(listening)
    found = site.session()
    found.connection.send_notification(ToolListChangedNotification())
    found.connection.close(site.now, grace=5.0)
    site.touch(found)
    assert site.machine.sessions == (found,)
    site.unstall(listening)
    assert listening.new_messages()[-1]["method"] == "notifications/tools/list_changed"
    assert listening.is_over
