"""What is held for clients over HTTP is counted, by its size in memory, and bounded: for each and for all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from httpsaid import asked, log, progress, said
from httpsite import BOTH, Site, initialize, note, tool_call
from keptsite import KeptSite

from mcpio.engine.limits import Ledger, Limits
from mcpio.engine.options import Options
from mcpio.events import CancelReceived, CloseReason, ConnectionClosed, MessageIgnored, RequestReceived
from mcpio.http.model import Body, HttpOptions, RequestHead, Reset, ResponseHead
from mcpio.http.server import HttpServer
from mcpio.http.sessions import EXCHANGE_COST, SESSION_COST, HttpSession
from mcpio.revisions import REV_2025_11_25
from mcpio.types import CallToolResult, TextContent

KIB = 1024


def stalled_call(site: Site, session: str, id: int = 1, size: int = 0) -> Any:
    """Call a tool, answer if a size is given, and read nothing of the response."""
    exchange = site.ask("POST", body=None, content_type="application/json", accept=BOTH, mcp_session_id=session)
    site.stall(exchange)
    before = len(site.requests())
    site.complete(exchange, json.dumps(tool_call(id)).encode())
    if size:
        (event,) = site.requests()[before:]
        site.answer(event, "x" * size)
    return exchange


# Output


def test_unread_answer_counts_until_its_last_byte_is_taken() -> None:
    site = Site()
    session = site.open()
    exchange = stalled_call(site, session, size=100 * KIB)
    held = site.session().connection.held
    assert 100 * KIB < held.unwritten < 101 * KIB
    name = site.name(exchange)
    sizes = []
    while items := site.machine.responses_to_send(name, 32 * KIB):
        for item in items:
            exchange.take(item)
        sizes.append(sum(len(item.data) for item in items if isinstance(item, Body)))
    assert (sizes[:3], len(sizes), held.unwritten) == ([32 * KIB] * 3, 4, 0)
    assert len(exchange.json["result"]["content"][0]["text"]) == 100 * KIB
    assert exchange.is_over


@pytest.mark.parametrize("waiting", [0, 1])
def test_session_is_reported_whenever_its_output_becomes_less(waiting: int) -> None:
    reported: list[HttpSession] = []
    site = Site(limits=Limits(high_water=10 * KIB), on_room=reported.append)
    session = site.open()
    exchange = stalled_call(site, session, size=40 * KIB)
    for id in range(waiting):
        stalled_call(site, session, id + 2)
    for size in (8 * KIB, 64 * KIB):
        reported.clear()
        for item in site.machine.responses_to_send(site.name(exchange), size):
            exchange.take(item)
        assert set(reported) == {site.session()}
    site.unstall(exchange)
    assert exchange.is_over


def test_large_answer_stays_ready_until_all_of_it_is_taken() -> None:
    site = Site()
    exchange, event = site.call(site.open())
    site.answer(event, "x" * 300 * KIB)
    assert (exchange.is_over, len(exchange.data)) == (True, len(exchange.data))
    assert len(exchange.json["result"]["content"][0]["text"]) == 300 * KIB


def test_large_event_is_pulled_in_pieces() -> None:
    site = Site()
    session = site.open()
    exchange, event = asked(site, session)
    progress(site, event, 1)
    site.stall(exchange)
    site.answer(event, "x" * 100 * KIB)
    name = site.name(exchange)
    pieces = 0
    while items := site.machine.responses_to_send(name, 10 * KIB):
        assert sum(len(item.data) for item in items if isinstance(item, Body)) <= 10 * KIB
        for item in items:
            exchange.take(item)
        pieces += 1
    assert (pieces, exchange.is_over) == (11, True)
    assert said(exchange.new_messages()) == [1, "answer"]


def test_pull_takes_no_more_of_a_stream_than_there_is_room_for_beside_what_waits() -> None:
    site = Site(HttpOptions(keep_alive=15))
    session = site.open()
    exchange, event = asked(site, session)
    progress(site, event, 1)
    site.stall(exchange)
    site.advance(16)
    progress(site, event, 2)
    name = site.name(exchange)
    comment, piece = site.machine.responses_to_send(name, 10)
    assert [len(item.data) for item in (comment, piece) if isinstance(item, Body)] == [3, 7]
    assert site.machine._exchanges[name].size == 0


def test_requests_wait_while_answers_are_unread() -> None:
    site = Site(limits=Limits(high_water=10 * KIB))
    session = site.open()
    first = stalled_call(site, session, 1, size=20 * KIB)
    waiting = [site.post(tool_call(id), session) for id in (2, 3, 4)]
    assert [exchange.status for exchange in waiting] == [0, 0, 0]
    assert len(site.requests()) == 1
    # What makes no work passes.
    assert site.post(note("x"), session).status == 202
    site.unstall(first)
    assert len(site.requests()) == 4
    for event in site.requests()[1:]:
        site.answer(event)
    assert [exchange.json["id"] for exchange in waiting] == [2, 3, 4]


def test_deferred_requests_begin_one_at_a_time() -> None:
    site = Site(limits=Limits(high_water=10 * KIB, queued_bytes=40 * KIB))
    session = site.open()
    first = stalled_call(site, session, 1, size=20 * KIB)
    waiting = [stalled_call(site, session, id) for id in range(2, 20)]
    machine, name = site.machine, site.name(first)
    while items := machine.responses_to_send(name):
        for item in items:
            first.take(item)
    begun = 0
    while (found := machine.next_event()) is not None:
        # The handler is a plain function, and its answer is large.
        site.events.append(found)
        begun += 1
        _, event = found
        assert isinstance(event, RequestReceived)
        found[0].connection.send_result(event.id, _result(8 * KIB))
        machine.touch(found[0], 0.0)
    assert begun == 2
    site.settle()
    site.stalled.clear()
    while len(site.requests()) < 19 or not all(exchange.is_over for exchange in waiting):
        before = len(site.requests())
        for exchange in waiting:
            site.unstall(exchange)
        for event in site.requests()[before:]:
            site.answer(event, "x" * 8 * KIB)
    assert [exchange.json["id"] for exchange in waiting] == list(range(2, 20))


def _result(size: int) -> Any:
    return CallToolResult((TextContent("x" * size),))


@pytest.mark.parametrize("answers", ["auto", "sse"])
def test_deferred_request_may_be_streamed_and_cancelled(answers: Any) -> None:
    site = Site(HttpOptions(answers=answers), limits=Limits(high_water=10 * KIB))
    session = site.open()
    first = stalled_call(site, session, 1, size=20 * KIB)
    second, third = (site.post(tool_call(id), session) for id in (2, 3))
    site.advance(1)
    # They are streams by now, and wait.
    assert [(each.status, each.is_over) for each in (second, third)] == [(200, False)] * 2
    assert site.post(note("cancelled", requestId=2), session).status == 202
    assert (second.is_over, third.is_over, second.new_messages()) == (True, False, [])
    assert any(isinstance(event, MessageIgnored) for _, event in site.events)
    site.unstall(first)
    assert not any(isinstance(event, CancelReceived) for _, event in site.events)
    site.answer(site.requests()[-1])
    assert said(third.new_messages()) == ["answer"]


def test_unread_answers_end_the_session_and_are_dropped() -> None:
    site = Site(limits=Limits(high_water=100 * KIB, queued_bytes=100 * KIB))
    session = site.open()
    exchanges = [stalled_call(site, session, id, size=30 * KIB) for id in range(4)]
    assert site.machine.sessions
    site.advance(100)
    ends = [event for _, event in site.events if isinstance(event, ConnectionClosed)]
    assert [end.reason for end in ends] == [CloseReason.SLOW_CONSUMER]
    for exchange in exchanges:
        site.unstall(exchange)
    assert [exchange.status for exchange in exchanges] == [404] * 4


def test_answers_read_in_time_may_exceed_queued_bytes() -> None:
    site = Site(limits=Limits(high_water=100 * KIB, queued_bytes=100 * KIB))
    session = site.open()
    calls = [stalled_call(site, session, id) for id in range(10)]
    for event in site.requests():
        site.answer(event, "x" * 30 * KIB)
    for exchange in calls:
        site.advance(20)
        site.unstall(exchange)
    assert [exchange.json["id"] for exchange in calls] == list(range(10))


def test_begun_answer_is_reset_when_its_session_is_dropped() -> None:
    site = Site(limits=Limits(high_water=200 * KIB, queued_bytes=200 * KIB))
    session = site.open()
    first = stalled_call(site, session, 1, size=150 * KIB)
    (head, *_) = site.machine.responses_to_send(site.name(first), 10)
    assert isinstance(head, ResponseHead)
    stalled_call(site, session, 2, size=100 * KIB)
    site.advance(200)
    assert site.machine.responses_to_send(site.name(first)) == [Reset(site.name(first))]


# What is kept


@pytest.mark.req("RESUME-03", "RESUME-04")
def test_answer_cut_off_in_the_middle_is_resumed_at_any_size() -> None:
    site = Site(limits=Limits(replay_bytes=KIB))
    session = site.open()
    other, kept = asked(site, session)
    progress(site, kept, 1)
    site.answer(kept)
    exchange, event = asked(site, session)
    progress(site, event, 1)
    assert said(exchange.new_messages()) == [1]
    last = exchange.last_event_id
    site.stall(exchange)
    site.answer(event, "x" * 200 * KIB)
    site.machine.responses_to_send(site.name(exchange), 100 * KIB)
    site.reset(exchange)
    again = site.listen(session, last)
    assert (said(again.new_messages()), again.is_over) == (["answer"], True)
    # It is over and does not fit, which costs other streams nothing.
    assert site.listen(session, last).status == 410
    assert said(site.listen(session, "3-1").new_messages()) == [1, "answer"]
    assert other.is_over


def test_repeated_resumption_counts_kept_events_once() -> None:
    site = Site()
    session = site.open()
    again, event = asked(site, session)
    progress(site, event, 1)
    site.answer(event, "x" * 100 * KIB)
    before = site.session().connection.held.total
    assert before > 100 * KIB
    for _ in range(50):
        again = site.ask("GET", body=None, accept="text/event-stream", mcp_session_id=session, last_event_id="3-1")
        site.stall(again)
        site.complete(again)
    assert site.session().connection.held.total < before + 2 * KIB
    assert len(site.session().streams) == 1
    site.unstall(again)
    assert (said(again.new_messages()), again.is_over) == ([1, "answer"], True)
    assert said(site.listen(session, "3-1").new_messages()) == [1, "answer"]


def test_resuming_after_the_last_event_gets_the_end() -> None:
    site = Site()
    session = site.open()
    exchange, event = asked(site, session)
    progress(site, event, 1)
    site.answer(event)
    assert said(exchange.new_messages()) == [1, "answer"]
    again = site.listen(session, exchange.last_event_id)
    assert (again.status, again.data, again.is_over) == (200, b"", True)


@pytest.mark.parametrize("id", ["3-0", "3-99"])
def test_unknown_event_of_open_stream_gets_410(id: str) -> None:
    site = Site()
    session = site.open()
    _, event = asked(site, session)
    progress(site, event, 1)
    assert site.listen(session, id).status == 410


def test_sent_events_of_open_stream_are_forgotten_in_time() -> None:
    site = Site(HttpOptions(resume_within=10, keep_alive=None))
    session = site.open()
    _, event = asked(site, session)
    progress(site, event, 1)
    site.advance(6)
    progress(site, event, 2)
    assert site.session().held.replay > 0
    site.advance(6)
    assert said(site.listen(session, "3-1").new_messages()) == [2]
    site.advance(11)
    assert site.session().held.replay == 0
    site.answer(event)


def test_ended_session_leaves_no_deadline_for_its_sent_events() -> None:
    site = Site(HttpOptions(resume_within=10, keep_alive=None, session_idle=None))
    session = site.open()
    _, event = asked(site, session)
    for number in (1, 2):
        progress(site, event, number)
        site.advance(6)
    assert site.machine.next_deadline() == 16
    site.ask("DELETE", mcp_session_id=session)
    assert site.machine.next_deadline() is None


def test_each_sent_event_of_an_open_stream_is_forgotten_in_time() -> None:
    site = Site(HttpOptions(resume_within=10, keep_alive=None))
    session = site.open()
    _, event = asked(site, session)
    held = []
    for number, seconds in ((1, 6), (2, 6), (None, 5)):
        if number is not None:
            progress(site, event, number)
        held.append(site.session().held.replay)
        site.advance(seconds)
    assert 0 < held[0] < held[1] > held[2] > 0 == site.session().held.replay


def test_sent_events_of_broken_stream_are_kept_while_it_can_be_resumed() -> None:
    site = Site(HttpOptions(resume_within=10, keep_alive=None))
    session = site.open()
    exchange, event = asked(site, session)
    progress(site, event, 1)
    site.advance(6)
    site.reset(exchange)
    site.advance(6)
    assert said(site.listen(session, "3-1").new_messages()) == [1]


# Bodies, and all together


def body_begun(site: Site, size: int, session: str | None = None) -> Any:
    """Begin a POST, and send so much of its body."""
    headers = {} if session is None else {"mcp_session_id": session, "mcp_protocol_version": "2025-11-25"}
    exchange = site.ask("POST", body=None, content_type="application/json", accept=BOTH, **headers)
    site.machine.receive(Body(site.name(exchange), b" " * size), site.now)
    site.settle()
    return exchange


def ledger_of(site: Site) -> Ledger:
    found: Ledger = site.machine._ledger
    return found


def test_bodies_count_with_their_session_or_alone() -> None:
    site = Site()
    ledger, session = ledger_of(site), site.open()
    idle = ledger.total
    assert SESSION_COST <= idle < SESSION_COST + 16 * KIB
    in_session = body_begun(site, 50 * KIB, session)
    assert site.session().connection.held.bodies == 50 * KIB
    alone = body_begun(site, 30 * KIB)
    assert 80 * KIB <= ledger.total - idle <= 120 * KIB
    site.reset(alone)
    site.reset(in_session)
    assert ledger.total < idle + 16 * KIB
    assert site.session().connection.held.total == 0


@pytest.mark.parametrize("revisions", [None, [REV_2025_11_25]])
def test_requests_without_a_version_leave_nothing_behind_in_the_sum_of_their_session(revisions: Any) -> None:
    site = Site(engine=None if revisions is None else Options(revisions=revisions))
    session = site.open()
    idle = site.session(session).weight
    for id in range(3):
        _, called = site.call(session, id, mcp_x="y" * 4 * KIB)
        during = site.session(session).weight
        site.answer(called)
        assert site.session(session).weight == idle < during


def test_fields_of_a_request_of_an_open_version_count_until_its_body_is_there() -> None:
    site = Site()
    before = ledger_of(site).total
    fields = {"content_type": "application/json", "accept": BOTH, "mcp_param_x": "x" * 90 * KIB}
    begun = site.ask("POST", body=None, **fields)
    assert ledger_of(site).total - before >= 90 * KIB
    site.reset(begun)
    assert ledger_of(site).total == before


@pytest.mark.parametrize(("method", "version"), [("POST", "2025-11-25"), ("GET", "2025-11-25"), ("GET", None)])
def test_fields_of_a_request_that_is_of_a_session_by_its_head_are_not_held(method: str, version: str | None) -> None:
    machine = Site().machine
    fields = [(b"content-type", b"application/json"), (b"accept", BOTH.encode()), (b"mcp-param-x", b"x" * KIB)]
    fields += [] if version is None else [(b"mcp-protocol-version", version.encode())]
    exchange = machine._begin(RequestHead(1, method, "/mcp", fields))
    exchange.keep_fields()
    assert exchange.fields == ()


def test_exchange_of_an_ended_session_counts_until_its_response_is_taken() -> None:
    site = Site()
    session = site.open()
    _, event = site.call(session)  # counted alone until its body tells that it is of the session
    site.answer(event)
    unread = stalled_call(site, session, 2)
    site.ask("DELETE", mcp_session_id=session)
    assert ledger_of(site).total >= EXCHANGE_COST
    site.unstall(unread)
    assert (unread.status, ledger_of(site).total) == (500, 0)


def test_declaration_of_a_client_counts_as_long_as_its_session() -> None:
    site = Site()
    small, large = site.open(), site.open(capabilities={"experimental": {"a": {"b": "x" * 50 * KIB}}})
    assert site.session(large).weight - site.session(small).weight >= 50 * KIB


def test_body_beyond_peer_bytes_is_refused() -> None:
    site = Site(limits=Limits(peer_bytes=100 * KIB))
    session = site.open()
    first = body_begun(site, 60 * KIB, session)
    second = body_begun(site, 60 * KIB, session)
    assert (first.status, second.status) == (0, 503)
    site.machine.receive(Body(site.name(first), b" " * KIB), site.now)
    site.complete(first, json.dumps(note("x")).encode())
    assert first.status == 202


def test_message_whose_values_exceed_peer_bytes_is_refused_unparsed() -> None:
    site = Site(limits=Limits(peer_bytes=100 * KIB))
    flood = json.dumps({"a": [{} for _ in range(2000)]}).encode()
    assert len(flood) < 10 * KIB
    assert site.post(flood).status == 413
    assert site.post(flood, site.open()).status == 413


def test_largest_exchange_is_refused_when_the_ledger_is_full() -> None:
    site = Site(limits=Limits(total_bytes=200 * KIB))
    small = body_begun(site, 10 * KIB)
    large = body_begun(site, 100 * KIB)
    third = body_begun(site, 80 * KIB)
    assert (small.status, large.status, third.status) == (0, 503, 0)
    assert large.headers["retry-after"] == "5"
    assert site.post(initialize()).status == 200


def test_new_clients_get_503_when_the_ledger_is_nearly_full() -> None:
    site = Site(limits=Limits(total_bytes=400 * KIB))
    session = site.open()
    body_begun(site, 360 * KIB, session)
    of_a_session = site.post(initialize(), mcp_protocol_version="2025-11-25")
    for refused in (site.post(initialize()), of_a_session, body_begun(site, 1)):
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    _, event = site.call(session, mcp_protocol_version="2025-11-25")
    site.answer(event)
    assert (site.machine.is_overloaded, Site().machine.is_overloaded) == (True, False)
    legacy = Site(HttpOptions(legacy=("/sse", "/messages")), limits=Limits(total_bytes=400 * KIB))
    body_begun(legacy, 360 * KIB)
    assert legacy.ask("GET", "/sse").status == 503


def test_largest_session_forgets_sent_events_and_then_ends() -> None:
    site = Site(limits=Limits(total_bytes=400 * KIB))
    heavy, light = site.open(), site.open()
    exchange = site.post(tool_call(1, progressToken="p"), heavy)
    event = site.requests()[-1]
    found = site.session(heavy)
    found.connection.send_progress(event.id, 1)
    site.touch(found)
    site.answer(event, "x" * 200 * KIB)
    assert exchange.is_over
    assert found.held.replay > 200 * KIB
    unread = stalled_call(site, light, 1, size=190 * KIB)
    assert found.held.replay == 0
    assert len(site.machine.sessions) == 2
    stalled_call(site, heavy, 2, size=200 * KIB)
    ends = [(session.id, event.reason) for session, event in site.events if isinstance(event, ConnectionClosed)]
    assert ends == [(heavy, CloseReason.OVERLOADED)]
    site.unstall(unread)
    assert unread.status == 200


def test_unread_output_of_closed_session_still_counts() -> None:
    site = Site(limits=Limits(total_bytes=400 * KIB))
    session = site.open()
    unread = stalled_call(site, session, 1, size=200 * KIB)
    assert site.ask("DELETE", mcp_session_id=session).status == 204
    ledger = ledger_of(site)
    assert 200 * KIB < ledger.total < 220 * KIB
    other = stalled_call(site, site.open(), 1, size=190 * KIB)
    site.unstall(unread)
    assert unread.status == 503
    site.unstall(other)
    assert other.status == 200
    assert ledger.total < 40 * KIB


def test_shared_ledger_calls_on_given_up() -> None:
    site = Site()
    told: list[int] = []
    ledger = Ledger(400 * KIB)
    site.machine = HttpServer(
        site.machine._connect,
        entropy=lambda size: b"x" * size,
        ledger=ledger,
        on_given_up=lambda: told.append(1),
    )
    session = site.open()
    stalled_call(site, session, 1, size=200 * KIB)
    ledger.settle("something else", 199 * KIB, lambda _: None)
    assert told == [1]
    site.settle()
    assert [event.reason for _, event in site.events if isinstance(event, ConnectionClosed)] == [CloseReason.OVERLOADED]
    assert ledger.total < 210 * KIB


def test_session_beyond_peer_bytes_forgets_sent_events() -> None:
    site = Site(limits=Limits(peer_bytes=150 * KIB))
    session = site.open()
    _, event = asked(site, session)
    progress(site, event, 1)
    site.answer(event, "x" * 100 * KIB)
    assert site.session().held.replay > 100 * KIB
    stalled_call(site, session, 2, size=60 * KIB)
    assert ledger_of(site).total < 100 * KIB
    assert (site.session().held.replay, site.listen(session, "3-1").status) == (0, 410)


def test_session_beyond_peer_bytes_forgets_events_of_a_stream_that_goes_on() -> None:
    site = Site(limits=Limits(peer_bytes=150 * KIB))
    session = site.open()
    stream, event = asked(site, session)
    site.session().connection.send_progress(event.id, 1, message="x" * 100 * KIB)
    site.touch(site.session())
    assert ledger_of(site).total > 100 * KIB
    stalled_call(site, session, 2, size=60 * KIB)
    assert ledger_of(site).total < 100 * KIB
    site.answer(event, "done")
    assert said(stream.new_messages())[-1] == "answer"


@pytest.mark.parametrize("by", ["answer", "listening"])
def test_event_that_was_read_is_held_once_or_not_at_all(by: str) -> None:
    site = Site(HttpOptions(resumable=by == "listening"))
    session = site.open()
    if by == "listening":
        site.listen(session)
        log(site, "x" * 100 * KIB)
    else:
        _, event = asked(site, session)
        site.session().connection.send_progress(event.id, 1, message="x" * 100 * KIB)
    site.touch(site.session())
    held = ledger_of(site).total
    assert 100 * KIB < held < 150 * KIB if by == "listening" else held < 50 * KIB


@pytest.mark.parametrize("is_whole", [True, False])
def test_body_that_waits_for_a_stored_session_is_held_until_its_message_is_read(is_whole: bool) -> None:
    site = KeptSite()
    session = site.open()
    following = site.next_process()
    following.is_late, following.is_whole = True, is_whole
    exchange = following.post(tool_call(1), session)
    assert following.requests() == []
    following.answer_store()
    (event,) = following.requests()
    assert following.session().held.bodies == 0
    following.is_late = False
    following.answer_store()
    following.answer(event)
    assert exchange.status == 200


def test_stored_session_is_not_restored_when_the_ledger_is_nearly_full() -> None:
    site = KeptSite()
    session = site.open()
    following = site.next_process(limits=Limits(total_bytes=400 * KIB))
    filler = body_begun(following, 360 * KIB)
    assert following.post(note("x"), session).status == 503
    following.reset(filler)
    assert following.post(note("x"), session).status == 202


def test_events_that_wait_for_the_store_count_as_output() -> None:
    site = KeptSite(limits=Limits(high_water=10 * KIB))
    session = site.open()
    exchange, event = asked(site, session)
    site.stalled.add(site.name(exchange))
    site.advance(1)
    site.session().connection.send_progress(event.id, 1, message="x" * 20 * KIB)
    site.touch(site.session())
    assert site.session().connection.held.unwritten > 20 * KIB
    second = site.post(tool_call(2), session)
    assert len(site.requests()) == 1
    site.unstall(exchange)
    assert len(site.requests()) == 2
    site.answer(site.requests()[1])
    assert second.json["id"] == 2
    assert site.session().connection.held.unwritten == 0


@pytest.mark.parametrize("kind", [Site, KeptSite])
def test_piece_that_ends_with_an_event_is_not_the_last(kind: Any) -> None:
    site = kind()
    session = site.open()
    exchange, event = asked(site, session)
    progress(site, event, 1)
    before = len(exchange.data)
    progress(site, event, 2)
    size = len(exchange.data) - before
    site.stall(exchange)
    progress(site, event, 3)
    site.answer(event)
    (body,) = site.machine.responses_to_send(site.name(exchange), size)
    exchange.take(body)
    assert len(body.data) == size
    site.unstall(exchange)
    assert (said(exchange.new_messages()), exchange.is_over) == ([1, 2, 3, "answer"], True)


def test_events_that_were_sent_on_open_streams_are_forgotten_to_free_memory() -> None:
    site = Site(HttpOptions(answers="sse"))
    session = site.open()
    exchange, event = site.call(session)
    found = site.session()
    assert site.machine.streams.forget_sent(found)
    assert not site.machine.streams.forget_sent(found)
    site.answer(event)
    assert exchange.is_over
