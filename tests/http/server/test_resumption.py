from __future__ import annotations

import pytest
from httpsaid import ROOTS, asked, log, progress, said
from httpsite import Site

from mcpio.engine.limits import Limits
from mcpio.errors import NoBackChannel
from mcpio.events import RequestFailed
from mcpio.http.model import HttpOptions
from mcpio.types import (
    ListRootsRequest,
)

# Going on after a break


@pytest.mark.req("HTTP-18", "RESUME-01", "RESUME-02")
@pytest.mark.parametrize(("revision", "primed"), [("2025-11-25", True), ("2025-06-18", False), ("2025-03-26", False)])
def test_event_ids_name_their_stream_and_the_first_event_is_empty(revision: str, primed: bool) -> None:
    site = Site()
    session = site.open(revision)
    listening = site.listen(session)
    first, event = asked(site, session)
    second, other = asked(site, session)
    for each in (event, other):
        progress(site, each, 1)
        site.answer(each)
    log(site, "x")
    events = [exchange.new_events() for exchange in (listening, first, second)]
    ids = [event.id for each in events for event in each]
    assert len(set(ids)) == len(ids)
    assert len({id.partition("-")[0] for id in ids if id}) == 3
    assert [each[0].data == "" for each in events] == [primed] * 3


@pytest.mark.req("HTTP-24", "HTTP-25", "RESUME-03", "RESUME-04")
def test_resumed_stream_gives_the_rest_and_nothing_twice() -> None:
    site = Site()
    session = site.open()
    exchange, event = asked(site, session)
    _, other = asked(site, session)
    progress(site, event, 1, 2)
    progress(site, other, 10)
    seen = exchange.new_events()
    site.reset(exchange, OSError("gone"))
    progress(site, event, 3)
    site.answer(event)
    assert [each.id for each in seen] == ["3-1", "3-2", "3-3"]
    again = site.listen(session, "3-2")
    assert said(again.new_messages()) == [2, 3, "answer"]
    assert again.is_over
    assert again.last_event_id == "3-5"


@pytest.mark.req("RESUME-04")
def test_finished_stream_is_replayed() -> None:
    site = Site()
    session = site.open()
    _, event = asked(site, session)
    progress(site, event, 1)
    site.answer(event)
    again = site.listen(session, "3-1")
    assert (said(again.new_messages()), again.is_over) == ([1, "answer"], True)


@pytest.mark.req("RESUME-04", "HTTP-29")
def test_resuming_a_carried_stream_moves_it() -> None:
    site = Site()
    session = site.open()
    exchange, event = asked(site, session)
    progress(site, event, 1)
    again = site.listen(session, "3-1")
    assert exchange.is_over
    site.answer(event)
    assert said(exchange.new_messages()) == [1]
    assert said(again.new_messages()) == [1, "answer"]
    site.reset(again)
    assert site.session().streams == {}


@pytest.mark.req("RESUME-04")
def test_listener_resumes_after_its_last_event() -> None:
    site = Site()
    session = site.open()
    first = site.listen(session)
    log(site, "a")
    log(site, "b")
    site.reset(first)
    log(site, "c")
    second = site.listen(session, "0-2")
    assert said(second.new_messages()) == ["b", "c"]
    log(site, "d")
    assert [each.id for each in second.new_events()] == ["0-5"]


@pytest.mark.req("RESUME-05")
@pytest.mark.parametrize("id", ["0-99", "0-0", "x", "", "0-1-1"])
def test_unknown_last_event_id_starts_a_fresh_stream(id: str) -> None:
    site = Site()
    session = site.open()
    listening = site.listen(session, id)
    log(site, "x")
    assert (said(listening.new_messages()), listening.is_over) == (["x"], False)


@pytest.mark.req("RESUME-05")
def test_unknown_or_forgotten_stream_gets_410() -> None:
    site = Site(HttpOptions(resume_within=10))
    session = site.open()
    listening = site.listen(session)
    _, event = asked(site, session)
    progress(site, event, 1)
    site.answer(event)
    site.advance(11)
    for id in ("3-1", "99-1", f"{10**18}-1"):
        nothing = site.listen(session, id)
        assert (nothing.status, nothing.json["error"]["code"], nothing.is_over) == (410, -32600, True)
    assert not listening.is_over


@pytest.mark.req("RESUME-05")
def test_client_that_missed_more_than_is_kept_gets_the_kept_events_and_the_answer() -> None:
    site = Site(limits=Limits(replay_events=2))
    session = site.open()
    exchange, event = asked(site, session)
    progress(site, event, 1, 2, 3, 4)
    site.answer(event)
    assert exchange.is_over
    again = site.listen(session, "3-1")
    assert said(again.new_messages()) == [4, "answer"]
    assert again.is_over


@pytest.mark.req("RESUME-04")
def test_open_stream_keeps_all_of_its_events() -> None:
    site = Site(limits=Limits(replay_events=1, replay_bytes=1))
    session = site.open()
    exchange, event = asked(site, session)
    progress(site, event, 1, 2, 3, 4)
    site.reset(exchange)
    site.answer(event, "x" * 1000)
    again = site.listen(session, "3-2")
    assert said(again.new_messages()) == [2, 3, 4, "answer"]
    # It is over, and does not fit.
    assert site.session().held.replay == 0
    assert site.listen(session, "3-2").status == 410


def test_broken_stream_is_dropped_after_resume_within() -> None:
    site = Site(HttpOptions(resume_within=60, keep_alive=None))
    session = site.open(capabilities=ROOTS)
    exchange, event = asked(site, session)
    progress(site, event, 1)
    site.reset(exchange)
    connection = site.session().connection
    connection.send_request(ListRootsRequest(), now=site.now, timeout=1000, related_to=event.id)
    site.advance(59)
    assert connection.pending_exchanges() == [3]
    site.advance(2)
    (failed,) = [each for _, each in site.events if isinstance(each, RequestFailed)]
    assert isinstance(failed.error, NoBackChannel)
    with pytest.raises(NoBackChannel):
        connection.send_request(ListRootsRequest(), now=site.now, related_to=event.id)
    site.answer(event)
    assert (connection.pending_exchanges(), site.session().undelivered) == ([], 2)
    assert site.session().replay is None
    assert site.listen(session, "3-1").status == 410


def test_sent_events_without_limit_are_kept_as_long_as_the_session() -> None:
    site = Site(HttpOptions(resume_within=None, keep_alive=None, session_idle=None))
    session = site.open()
    exchange, event = asked(site, session)
    progress(site, event, 1)
    site.reset(exchange)
    site.answer(event)
    assert site.machine.next_deadline() is None
    site.advance(10**6)
    assert said(site.listen(session, "3-1").new_messages()) == [1, "answer"]


@pytest.mark.req("HTTP-24")
def test_unresumable_stream_is_dropped_and_its_handler_continues() -> None:
    site = Site(HttpOptions(resumable=False))
    session = site.open()
    exchange, event = asked(site, session)
    progress(site, event, 1)
    assert exchange.new_events()[0].id is None
    site.reset(exchange)
    assert site.session().connection.pending.incoming == (event.id,)
    site.answer(event)
    assert site.session().undelivered == 1
    silent, event = site.call(session)
    site.reset(silent)
    site.answer(event)
    assert site.session().undelivered == 2


# Polling


@pytest.mark.req("HTTP-19", "HTTP-20", "HTTP-22")
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("retry", [None, 2.5])
def test_interrupted_stream_is_resumed_for_the_rest(begun: bool, retry: float | None) -> None:
    site = Site()
    session = site.open()
    exchange, event = asked(site, session)
    if begun:
        progress(site, event, 1)
    assert site.machine.interrupt(site.session(), event.context.via, site.now, retry=retry)
    site.settle()
    assert exchange.is_over
    events = exchange.new_events()
    assert (events[-1].retry == 2500) is (retry is not None)
    assert not site.machine.interrupt(site.session(), event.context.via, site.now)
    site.answer(event)
    again = site.listen(session, exchange.last_event_id)
    assert (said(again.new_messages()), again.is_over) == (["answer"], True)
    assert not site.machine.interrupt(site.session(), event.context.via, site.now)
    assert not site.machine.interrupt(site.session(), None, site.now)


@pytest.mark.req("HTTP-19")
@pytest.mark.parametrize(
    ("revision", "options"),
    [
        ("2025-06-18", HttpOptions()),
        ("2025-11-25", HttpOptions(answers="json")),
        ("2025-11-25", HttpOptions(resumable=False)),
    ],
)
def test_interrupt_leaves_clients_that_cannot_resume(revision: str, options: HttpOptions) -> None:
    site = Site(options)
    exchange, event = asked(site, site.open(revision))
    assert not site.machine.interrupt(site.session(), event.context.via, site.now)
    assert exchange.status == 0
