"""How events of sessions that outlive the process get out: stored before they are sent, and bounded."""

from __future__ import annotations

from typing import Any

import pytest
from httpsite import note, tool_call
from keptsite import KeptSite

from mcpio.engine.limits import Limits
from mcpio.errors import OutputFull
from mcpio.http.model import HttpOptions
from mcpio.types import CustomRequest, ListRootsRequest, LoggingMessageNotification, ToolListChangedNotification


def started(site: KeptSite, session: str, id: Any = 1) -> tuple[Any, Any]:
    """Call a tool and report progress: a stream begins."""
    exchange = site.post(tool_call(id, progressToken=id), session)
    event = site.requests()[-1]
    progress(site, event, 1)
    return exchange, event


def progress(site: KeptSite, event: Any, *values: float) -> None:
    for value in values:
        site.session().connection.send_progress(event.id, value)
    site.touch(site.session())


def log(site: KeptSite, data: str) -> None:
    site.session().connection.send_notification(LoggingMessageNotification("info", data))
    site.touch(site.session())


def said(exchange: Any) -> list[Any]:
    """Return what came of messages, in short."""
    found: list[Any] = []
    for each in exchange.new_messages():
        params = each.get("params", {})
        found.append(params.get("progress", params.get("data", each.get("method", "answer"))))
    return found


@pytest.mark.req("HTTP-28", "RESUME-02")
def test_general_messages_wait_in_the_store_for_a_listener() -> None:
    site = KeptSite()
    session = site.open()
    log(site, "one")
    assert site.session().connection.snapshot(0.0)
    site.post(note("x"), session)
    site = site.next_process()
    listener = site.listen(session)
    assert said(listener) == ["one"]
    log(site, "two")
    assert said(listener) == ["two"]
    site.reset(listener)
    log(site, "three")
    assert said(site.listen(session, listener.last_event_id)) == ["three"]


def test_received_events_are_not_repeated_even_if_not_stored() -> None:
    site = KeptSite()
    session = site.open()
    exchange, event = started(site, session)
    progress(site, event, 2)
    progress(site, event, 3)
    events = exchange.new_events()
    assert [each.id for each in events] == ["3-1", "3-2", "3-3", "3-4"]
    for place, each in enumerate(events):
        other = site.next_process()
        rest = other.listen(session, each.id)
        assert [more.id for more in rest.new_events()] == [later.id for later in events[place + 1 :]]


def test_future_last_event_id_still_gets_all_events() -> None:
    site = KeptSite()
    session = site.open()
    exchange, event = started(site, session)
    site.is_late = True
    progress(site, event, 2)
    assert exchange.new_events()
    rest = site.listen(session, "3-3")
    site.answer_store()
    assert said(rest) == [2]


@pytest.mark.req("HTTP-19", "HTTP-20")
def test_interrupt_waits_until_the_first_event_is_stored() -> None:
    site = KeptSite()
    session = site.open()
    site.is_late = True
    exchange = site.post(tool_call(1), session)
    (event,) = site.requests()
    via = event.context.via
    assert site.machine.interrupt(site.session(), via, site.now, retry=2.0)
    site.settle()
    assert (exchange.status, exchange.is_over) == (200, False)
    site.answer_store()
    assert (said(exchange), exchange.last_event_id, exchange.is_over) == ([], "3-1", True)
    assert b"retry: 2000" in exchange.data
    site.answer(event)
    site.answer_store()
    assert said(site.listen(session, "3-1")) == ["answer"]


def test_interrupt_after_a_stored_event_cuts_at_once() -> None:
    site = KeptSite()
    session = site.open()
    exchange, event = started(site, session)
    via = event.context.via
    assert site.machine.interrupt(site.session(), via, site.now)
    site.settle()
    assert exchange.is_over
    assert not site.machine.interrupt(site.session(), via, site.now)


def test_interrupt_does_nothing_for_older_clients() -> None:
    site = KeptSite()
    session = site.open("2025-06-18")
    _, event = site.call(session)
    assert not site.machine.interrupt(site.session(), event.context.via, site.now)


def test_slow_reader_has_a_bounded_number_of_events_in_memory() -> None:
    site = KeptSite()
    session = site.open()
    exchange, event = started(site, session)
    exchange.new_events()
    site.stalled.add(site.name(exchange))
    for value in range(2, 30):
        progress(site, event, value)
    name = site.name(exchange)
    items = site.machine.responses_to_send(name, 200)
    assert 0 < len(items[0].data) < 600  # type: ignore[union-attr]  # the first of them is a body
    assert site.machine.next_ready() == name


@pytest.mark.parametrize("limits", [Limits(replay_events=3), Limits(replay_bytes=400)])
def test_optional_messages_are_dropped_when_too_much_waits(limits: Limits) -> None:
    site = KeptSite(limits=limits)
    session = site.open()
    for number in range(10):
        log(site, str(number))
    waiting = site.session().undelivered
    assert waiting >= 6
    site.post(note("x"), session)
    stored = site.store.session(session)
    assert stored is not None
    assert len(stored.events) == 10 - waiting
    assert said(site.listen(session)) == [str(number) for number in range(10 - waiting)]


def test_unread_requests_of_the_server_are_bounded() -> None:
    site = KeptSite(limits=Limits(queued_bytes=2000))
    site.open(capabilities={"roots": {}})
    connection = site.session().connection
    while connection.has_room:
        connection.send_request(ListRootsRequest(), now=site.now)
        site.touch(site.session())
    with pytest.raises(OutputFull):
        connection.send_request(ListRootsRequest(), now=site.now)
    assert site.machine.sessions


@pytest.mark.req("RESUME-05")
def test_unresumed_stream_is_deleted_from_the_store() -> None:
    site = KeptSite(options=HttpOptions(resume_within=10))
    session = site.open()
    exchange, event = started(site, session)
    site.reset(exchange)
    progress(site, event, 2)
    stored = site.store.session(session)
    assert stored is not None
    assert len(stored.events) == 3
    site.advance(11)
    site.answer(event)
    site.post(note("x"), session)
    site.open()
    log_of = site.session(session)
    log_of.connection.send_notification(ToolListChangedNotification())
    site.touch(log_of)
    stored = site.store.session(session)
    assert stored is not None
    assert [each.stream for each in stored.events] == [0]


def test_streams_of_a_restored_session_wait_for_their_clients() -> None:
    options = HttpOptions(resume_within=10)
    site = KeptSite(options=options)
    session = site.open()
    started(site, session)
    site.listen(session)
    log(site, "x")
    for window in (options, HttpOptions(resume_within=None)):
        other = site.next_process(window)
        other.post(note("x"), session)
        assert sorted(other.session().streams) == [0, 3]
        other.advance(11)
        assert sorted(other.session().streams) == ([0] if window is options else [0, 3])


def test_remaining_output_of_a_session_is_sent_at_its_end() -> None:
    site = KeptSite()
    session = site.open()
    exchange, event = started(site, session)
    exchange.new_events()
    site.is_late = True
    progress(site, event, 2)
    assert said(exchange) == []
    site.ask("DELETE", mcp_session_id=session)
    assert (said(exchange), exchange.is_over) == ([2], True)


def test_sessions_of_unstorable_principals_work_without_a_journal() -> None:
    site = KeptSite()
    session = site.open(principal=("a", "tuple"))
    exchange = site.post(tool_call(1, progressToken=1), session, principal=("a", "tuple"))
    event = site.requests()[-1]
    progress(site, event, 1)
    log(site, "x")
    assert said(exchange) == [1]
    assert site.machine.interrupt(site.session(), event.context.via, site.now)
    rest = site.listen(session, exchange.last_event_id, principal=("a", "tuple"))
    site.answer(event)
    assert said(rest) == ["answer"]
    site.advance(100)
    assert site.session().replay is None
    assert site.ask("DELETE", mcp_session_id=session, principal=("a", "tuple")).status == 204


def test_request_that_cannot_reach_the_client_fails() -> None:
    site = KeptSite()
    session = site.open()
    _, event = site.call(session)
    site.session().connection.send_request(CustomRequest("x/y", {}), now=site.now, related_to=event.id)
    site.touch(site.session())
    assert site.session().connection.pending.outgoing
