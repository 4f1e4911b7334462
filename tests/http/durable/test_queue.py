"""What the machine asks its store, and what the answers let happen."""

from __future__ import annotations

import json
from typing import Any

import pytest
from httpsite import initialize, note, tool_call
from keptsite import KeptSite

from mcpio.auth.grant import Grant
from mcpio.engine.limits import Limits
from mcpio.http.model import HttpOptions
from mcpio.http.sessions import SessionDelete, SessionLoad, SessionSave, SessionSweep

UNKNOWN = "ab" * 16
FULL = OSError("the disk is full")


def started(site: KeptSite, session: str, id: Any = 1) -> tuple[Any, Any]:
    """Call a tool and report progress: a stream begins."""
    exchange = site.post(tool_call(id, progressToken=id), session)
    event = site.requests()[-1]
    site.session(session).connection.send_progress(event.id, 1)
    site.touch(site.session(session))
    return exchange, event


def progress(site: KeptSite, event: Any, value: float) -> None:
    site.session().connection.send_progress(event.id, value)
    site.touch(site.session())


# What is asked


def test_store_gets_each_event_once_before_the_client() -> None:
    site = KeptSite()
    session = site.open()
    assert site.said() == ["Sweep", "Save", "Save"]
    # Nothing of what a quick answer rests on has changed.
    exchange, event = site.call(session)
    site.answer(event)
    assert (exchange.status, site.said()) == (200, [])
    exchange, event = started(site, session)
    (save,) = site.effects
    assert isinstance(save, SessionSave)
    # The beginning of the stream and the progress, with the request that is served.
    assert [(each.stream, each.number) for each in save.events] == [(4, 1), (4, 2)]
    assert [each["wire_id"] for each in json.loads(save.record)["saved"]["engine"]["incoming"]] == [1]
    site.said()
    site.answer(event)
    assert site.said() == ["Save"]
    assert exchange.is_over


def test_changes_during_a_write_go_together() -> None:
    site = KeptSite()
    session = site.open()
    exchange, event = started(site, session)
    exchange.new_events()
    site.said()
    site.is_late = True
    for value in (2, 3, 4):
        progress(site, event, value)
    assert (len(site.effects), exchange.new_events()) == (1, [])
    site.answer_store()
    assert len(exchange.new_events()) == 1
    assert [type(each) for each in site.effects] == [SessionSave, SessionSave]
    site.answer_store()
    assert len(exchange.new_events()) == 2


def test_answer_to_unknown_token_is_ignored() -> None:
    site = KeptSite()
    site.machine.store_done(77, None, 0.0)
    site.open()
    site.machine.store_done(1, FULL, 0.0)
    assert site.session().connection.revision is not None


def test_session_in_use_is_refreshed() -> None:
    site = KeptSite(options=HttpOptions(session_idle=100))
    session = site.open()
    first = [each.at for each in site.effects if isinstance(each, SessionSave)]
    assert first == [1000, 1000]
    site.said()
    site.advance(20)
    exchange, event = site.call(session)
    site.answer(event)
    assert (exchange.status, site.said()) == (200, [])
    site.advance(10)
    exchange, event = site.call(session, 2)
    site.answer(event)
    (save,) = site.effects
    assert isinstance(save, SessionSave)
    assert save.at == 1030
    # One that only listens, too.
    site.listen(session)
    site.said()
    site.advance(210)
    assert site.said().count("Save") >= 1


def test_abandoned_sessions_are_swept_at_the_start() -> None:
    site = KeptSite(options=HttpOptions(session_idle=100), limits=Limits(sessions=7))
    site.settle()
    assert site.effects == []
    site.ask("GET", "/")
    assert site.effects == [SessionSweep(1, 800, 7)]
    site = KeptSite(options=HttpOptions(session_idle=None))
    site.ask("GET", "/")
    assert site.effects == [SessionSweep(1, None, 10_000)]


# The end of a session


@pytest.mark.req("SESS-08")
def test_delete_is_answered_when_the_store_has_deleted() -> None:
    site = KeptSite()
    session = site.open()
    site.said()
    site.is_late = True
    ended = site.ask("DELETE", mcp_session_id=session)
    assert (ended.status, [type(each) for each in site.effects]) == (0, [SessionDelete])
    site.answer_store()
    assert (ended.status, len(site.store)) == (204, 0)
    assert site.next_process().listen(session).status == 404


def test_failed_delete_is_answered_with_503() -> None:
    site = KeptSite()
    session = site.open()
    site.error = FULL
    assert site.ask("DELETE", mcp_session_id=session).status == 503


def test_expired_and_evicted_sessions_are_deleted() -> None:
    site = KeptSite(options=HttpOptions(session_idle=100), limits=Limits(sessions=1))
    site.open()
    site.said()
    second = site.open()
    assert site.said() == ["Delete", "Save", "Save"]
    site.advance(101)
    assert (site.said(), len(site.store)) == (["Delete"], 0)
    assert site.listen(second).status == 404


# Finding a session


def test_request_waits_for_the_store_to_find_its_session() -> None:
    site = KeptSite()
    session = site.open()
    site = site.next_process()
    site.is_late = True
    first = site.post(tool_call(1), session)
    second = site.ask("GET", body=None, accept="text/event-stream", mcp_session_id=session)
    gone = site.post(tool_call(3), session)
    too_long = site.post(b" " * (16 * 1024 * 1024 + 1), session)
    site.reset(gone)
    assert (first.status, second.status, too_long.status) == (0, 0, 413)
    assert [type(each) for each in site.effects] == [SessionSweep, SessionLoad]
    site.answer_store()
    assert [event.context.via for event in site.requests()] == [3]
    assert second.status == 0
    site.complete(second)
    site.answer_store()
    assert second.status == 200


@pytest.mark.req("SESS-05")
@pytest.mark.parametrize("name", ["", "x", "AB" * 16, "é" * 32, "ab" * 17, UNKNOWN])
def test_unknown_id_gets_404(name: str) -> None:
    site = KeptSite()
    assert site.post(tool_call(), name).status == 404
    assert ("Load" in site.said()) == (name == UNKNOWN)
    # It is asked again: another process may have begun it.
    assert site.listen(name).status == 404


@pytest.mark.req("SESS-09")
def test_stored_session_of_another_principal_gets_404() -> None:
    site = KeptSite()
    session = site.open(principal="ann")
    site.said()
    assert site.post(tool_call(), session, principal="bob").status == 404
    assert (site.said(), len(site.machine.sessions)) == ([], 1)
    site = site.next_process()
    assert site.post(tool_call(), session, principal="bob").status == 404
    assert site.post(tool_call(), session).status == 404
    exchange, event = site.call(session, principal="ann")
    site.answer(event)
    assert (exchange.status, event.context.principal) == (200, "ann")


@pytest.mark.req("SESS-09", "SEC-04")
def test_stored_session_continues_with_another_token_of_the_same_identity() -> None:
    site = KeptSite()
    session = site.open(principal=Grant("https://id", "ann", "app", frozenset({"read"}), claims={"jti": "canary"}))
    site = site.next_process()
    assert site.post(tool_call(), session, principal=Grant("https://id", "bob", "app")).status == 404
    new = Grant("https://id", "ann", "app", frozenset({"write"}))
    exchange, event = site.call(session, principal=new)
    site.answer(event)
    assert (exchange.status, event.context.principal is new) == (200, True)


def test_requests_are_refused_if_the_store_does_not_answer_in_time() -> None:
    site = KeptSite()
    session = site.open()
    site = site.next_process()
    site.is_late = True
    exchange = site.post(tool_call(), session)
    other = site.post(tool_call(), UNKNOWN)
    site.advance(9)
    assert exchange.status == 0
    site.answer_store()
    assert (exchange.status, other.status) == (0, 404)
    site = site.next_process()
    site.is_late = True
    exchange = site.post(tool_call(), session)
    site.advance(10)
    assert (exchange.status, exchange.headers["retry-after"]) == (503, "1")
    # Its answer comes too late, and the next one asks again.
    site.answer_store()
    assert site.machine.sessions == ()
    exchange = site.post(tool_call(), session)
    site.answer_store()
    assert len(site.machine.sessions) == 1


def test_late_answer_of_the_store_is_not_given_to_a_later_request() -> None:
    site = KeptSite()
    session = site.open()
    site = site.next_process()
    site.is_late = True
    assert site.post(tool_call(), session).status == 0
    site.advance(10)
    # Another process deletes the session, after the first look-up has read it.
    late, now = site.store.session(session), None
    again = site.post(tool_call(), session)
    first, second = [effect.token for effect in site.effects if isinstance(effect, SessionLoad)]
    for token, found in ((first, late), (second, now)):
        site.machine.store_done(token, found, site.now)
        site.settle()
        assert site.machine.sessions == ()
    assert again.status == 404


def test_unasked_store_turns_requests_away_in_time() -> None:
    site = KeptSite()
    session = site.open()
    site = site.next_process()
    site.machine.next_effect = lambda: None  # type: ignore[method-assign]  # a driver that has too much to do
    exchange = site.post(tool_call(), session)
    site.advance(10)
    assert exchange.status == 503


def test_failing_store_turns_requests_away() -> None:
    site = KeptSite()
    session = site.open()
    site = site.next_process()
    site.error = FULL
    assert site.listen(session).status == 503
    site.error = None
    assert site.listen(session).status == 200


def test_stored_session_idle_for_too_long_gets_404() -> None:
    site = KeptSite(options=HttpOptions(session_idle=100))
    session = site.open()
    options = HttpOptions(session_idle=100)
    assert site.next_process(options, epoch=1101).listen(session).status == 404
    assert site.next_process(options, epoch=1099).listen(session).status == 200
    assert site.next_process(HttpOptions(session_idle=None), epoch=1e6).listen(session).status == 200


@pytest.mark.parametrize(
    "record", [b"", b"[]", b'{"format":2}', b'{"format":1,"owner":null,"next_stream":1,"streams":[],"saved":{}}']
)
def test_invalid_record_is_reported_and_gets_404(record: bytes) -> None:
    site = KeptSite()
    session = site.open()
    site.store.write([SessionSave(0, session, record, 1000, (), ())])
    site = site.next_process()
    assert site.listen(session).status == 404
    (report,) = site.reports
    assert report.startswith(("a stored session cannot be read", "a stored session cannot be taken up"))
    assert session not in report


def test_lookups_of_a_hanging_store_are_bounded() -> None:
    site = KeptSite(limits=Limits(exchanges=3, sessions=2))
    site.is_late = True
    for number in range(9):
        exchange = site.post(tool_call(), f"{number:032x}")
        assert exchange.status == (503 if number > 2 else 0)
        if exchange.status == 0:
            site.reset(exchange)
    for _ in range(9):
        site.reset(site.post(initialize()))
    assert len(site.machine.sessions) == 2
    assert site.said() == ["Sweep", "Load", "Load", "Load", "Save"] + ["Save", "Delete"] * 7 + ["Save"]
    site.answer_store()
    assert site.post(tool_call(), UNKNOWN).status == 0


def test_unstored_session_needs_no_delete() -> None:
    site = KeptSite(limits=Limits(sessions=1))
    site.machine.next_effect = lambda: None  # type: ignore[method-assign]  # a driver that has too much to do
    for _ in range(5):
        exchange = site.post(initialize())
        site.reset(exchange)
    assert len(site.machine.sessions) == 1
    del site.machine.next_effect
    site.settle()
    assert site.said() == ["Sweep", "Save"]


# A store that fails


def test_unstorable_session_does_not_begin() -> None:
    site = KeptSite()
    site.error = FULL
    exchange = site.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO})
    assert (exchange.status, exchange.json["error"]["code"]) == (503, -32603)
    assert "mcp-session-id" not in exchange.headers
    assert site.machine.sessions == ()


def test_failing_store_holds_back_streams_and_requests() -> None:
    site = KeptSite()
    session = site.open()
    stream, event = started(site, session)
    stream.new_events()
    answer, waiting = site.call(session, 2)
    site.error = FULL
    told = site.post(note("roots/list_changed"), session)
    site.answer(waiting)
    progress(site, event, 2)
    assert (told.status, answer.status, stream.new_events()) == (503, 0, [])
    # It is not asked again at each turn.
    site.said()
    progress(site, event, 3)
    assert site.said() == []
    assert (site.post(tool_call(3), session).status, site.listen(session).status) == (503, 503)
    site.advance(1)
    assert (site.said(), answer.status, stream.new_events()) == (["Save"], 503, [])
    site.error = None
    site.advance(1)
    assert len(stream.new_events()) == 2
    site.answer(event)
    assert stream.is_over
    assert site.call(session, 4)[0].status == 0


def test_answer_to_a_client_that_left_is_not_replaced() -> None:
    site = KeptSite()
    session = site.open()
    site.is_late = True
    site.unsayable = "changed"
    answer, waiting = site.call(session)
    site.answer(waiting)
    assert answer.status == 0
    site.reset(answer)
    site.error = FULL
    site.answer_store()
    # A rejection would count as unwritten for as long as the session lasts: no adapter takes it.
    assert (answer.status, site.session().unwritten) == (0, 0)


def test_unstorable_json_answer_becomes_503() -> None:
    site = KeptSite()
    session = site.open()
    stream, event = started(site, session)
    site.is_late = True
    progress(site, event, 2)
    answer, waiting = site.call(session, 2)
    site.answer(waiting)
    assert answer.status == 0
    site.error = FULL
    site.answer_store()
    assert answer.status == 503
    # It can end all the same.
    assert site.ask("DELETE", mcp_session_id=session).status == 0
    site.error = None
    site.answer_store()
    assert stream.is_over


def test_session_that_ends_while_its_store_fails_is_not_saved() -> None:
    site = KeptSite()
    session = site.open()
    _, event = started(site, session)
    site.error = FULL
    progress(site, event, 2)
    site.machine.end_session(site.session(), site.now)
    site.settle()
    site.said()
    site.advance(5)
    assert site.said() == []


def test_session_inexpressible_in_json_is_reported_and_retried() -> None:
    site = KeptSite()
    session = site.open()
    stream, event = started(site, session)
    stream.new_events()
    site.unsayable = {1, 2}
    progress(site, event, 2)
    assert (len(site.reports), stream.new_events()) == (1, [])
    site.unsayable = None
    site.advance(1)
    assert len(stream.new_events()) == 1


def test_closing_session_is_not_stored() -> None:
    site = KeptSite()
    session = site.open()
    stream, event = started(site, session)
    site.said()
    site.session().connection.close(site.now)
    site.touch(site.session())
    site.answer(event)
    assert stream.is_over
    assert site.said() == ["Delete"]
    assert len(site.store) == 0


def test_answers_of_closing_session_need_not_wait() -> None:
    site = KeptSite()
    session = site.open()
    first, one = site.call(session, 1)
    second, two = site.call(session, 2)
    site.said()
    site.session().connection.close(site.now)
    site.touch(site.session())
    site.answer(one)
    assert (first.status, site.said()) == (200, [])
    site.answer(two)
    assert (second.status, site.said()) == (200, ["Delete"])


def test_end_of_session_waits_for_its_own_delete() -> None:
    site = KeptSite()
    session = site.open()
    _, event = started(site, session)
    site.is_late = True
    progress(site, event, 2)
    ended = site.ask("DELETE", mcp_session_id=session)
    effects = site.said()
    assert effects[-2:] == ["Save", "Delete"]
    site._answer()
    site.is_late = False
    super(KeptSite, site).settle()
    assert ended.status == 0
    assert not site.machine.closed
    site.answer_store()
    assert ended.status == 204
    site.machine.close(site.now)
    site.settle()
    assert site.machine.closed


def test_session_of_unstorable_principal_is_not_durable() -> None:
    site = KeptSite()
    session = site.open(principal=("cn", "ann"))
    assert site.said() == ["Sweep"]
    exchange, event = site.call(session, principal=("cn", "ann"))
    site.answer(event)
    assert exchange.status == 200
    assert site.ask("DELETE", mcp_session_id=session, principal=("cn", "ann")).status == 204
    assert site.said() == []


HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
