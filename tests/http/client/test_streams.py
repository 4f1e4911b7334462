"""The HTTP client machine: streams that break and are taken up again, and sessions that the server forgets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from webtalk import CALL, NOTE, RESULT, Asked, WebTalk, hello

from mcpio.errors import ConnectionLost, RequestTimeout, UnexpectedResponse
from mcpio.events import CancelReceived, CloseReason, ConnectionClosed, Negotiated, NotificationReceived, OutgoingId
from mcpio.http.client import HttpClientOptions, ListeningEnded, ListeningResumed, MessageRefused, SessionLost
from mcpio.http.model import End
from mcpio.types import (
    ClientCapabilities,
    CustomNotification,
    ListRootsResult,
    PingRequest,
    RootsCapability,
)

QUICK = HttpClientOptions(reconnect_after=1.0, reconnect_at_most=4.0, reconnect_tries=3)


def result(id: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": RESULT}


def streaming(*lines: str, **options: Any) -> tuple[WebTalk, OutgoingId, Asked]:
    """Return a talk with a request whose answer is a stream with one event."""
    talk = WebTalk(**options)
    talk.open(session="s-1")
    id = talk.ask(CALL)
    asked = talk.requests[-1]
    talk.stream(asked)
    talk.event(asked, None, *lines)
    return talk, id, asked


# Taking up


@pytest.mark.req("HTTP-21", "HTTP-22", "HTTP-39", "RESUME-03", "RESUME-07")
def test_closed_stream_is_resumed_after_the_servers_retry_time() -> None:
    talk, id, asked = streaming("id: e-1", "retry: 500", "data:")
    assert talk.end(asked) == []
    assert talk.advance(0.5 - 2**-12) == []
    (resumed,) = talk.advance(2**-12)
    assert (resumed.method, resumed.target, resumed.body) == ("GET", "/mcp", b"")
    assert resumed.headers["last-event-id"] == "e-1"
    assert resumed.headers["mcp-session-id"] == "s-1"
    assert resumed.headers["mcp-protocol-version"] == "2025-11-25"
    talk.stream(resumed)
    talk.event(resumed, result(id))
    assert talk.has_result(id)
    talk.end(resumed)
    assert talk.machine.next_deadline() is None


@pytest.mark.req("HTTP-19", "RESUME-06")
@pytest.mark.parametrize("breaks", [True, False])
def test_resumption_without_a_retry_time_backs_off_and_gives_up(breaks: bool) -> None:
    talk, id, asked = streaming("id: 1", "data:", http=QUICK)
    for delay in (1.0, 2.0, 4.0):
        if breaks:
            talk.reset(asked, OSError("broken"))
        else:
            talk.end(asked)
        assert talk.advance(delay - 0.5) == []
        (asked,) = talk.advance(0.5)
        if not breaks:
            talk.stream(asked)
    talk.reset(asked, OSError("broken"))
    error = talk.error(id)
    assert isinstance(error, ConnectionLost)
    assert isinstance(error.__cause__, OSError)


def test_stream_ended_at_once_is_resumed_after_a_minimum_delay() -> None:
    talk, _, asked = streaming("id: 1", "retry: 0", "data:", http=QUICK)
    for number in range(20):
        talk.end(asked)
        assert talk.advance(0.0625) == []
        (asked,) = talk.advance(0.0625)
        talk.stream(asked)
        talk.event(asked, None, f"id: {number}", "retry: 0", "data:")


def test_unreachable_server_is_retried_with_growing_delays() -> None:
    talk, id, asked = streaming("id: 1", "retry: 250", "data:", http=QUICK)
    for delay in (0.25, 1.0, 2.0):
        talk.reset(asked, OSError("refused"))
        assert talk.advance(delay - 0.125) == []
        (asked,) = talk.advance(0.125)
    talk.reset(asked, OSError("refused"))
    assert isinstance(talk.error(id), ConnectionLost)


def test_new_event_on_a_stream_resets_the_attempts() -> None:
    talk, id, asked = streaming("id: 1", "data:", http=QUICK)
    for number in range(20):
        talk.end(asked)
        (asked,) = talk.advance(1.0)
        talk.stream(asked)
        talk.event(asked, NOTE, f"id: {number}")
    talk.event(asked, result(id))
    assert talk.has_result(id)
    assert len(talk.found(NotificationReceived)) == 20


def test_stream_that_was_open_for_long_resets_the_attempts() -> None:
    talk, _, asked = streaming("id: 1", "data:", http=QUICK)
    for _ in range(10):
        talk.advance(4.0)
        talk.reset(asked)
        assert talk.advance(0.75) == []
        (asked,) = talk.advance(0.25)
        talk.stream(asked)


@pytest.mark.req("RESUME-06")
@pytest.mark.parametrize("said", [[], ["id: 1", "id"], ["id: a\x01b"], ["id: " + "x" * 2000]])
def test_stream_without_a_usable_event_id_is_not_resumed(said: list[str]) -> None:
    talk, id, asked = streaming(*said, "data:")
    assert talk.end(asked) == []
    assert isinstance(talk.error(id), ConnectionLost)
    assert talk.machine.next_deadline() is None


@pytest.mark.req("RESUME-06")
@pytest.mark.parametrize("status", [400, 405, 410])
def test_refused_resumption_fails_the_request(status: int) -> None:
    talk, id, asked = streaming("id: 1", "data:")
    talk.end(asked)
    (resumed,) = talk.advance(1.0)
    talk.answer(resumed, status, "text/plain", b"no")
    error = talk.error(id)
    assert isinstance(error, ConnectionLost)
    assert isinstance(error.__cause__, UnexpectedResponse)


@pytest.mark.parametrize("media_type", ["application/json", "text/html"])
def test_stream_resumed_with_another_content_type_fails_the_request(media_type: str) -> None:
    talk, id, asked = streaming("id: 1", "data:")
    talk.end(asked)
    (resumed,) = talk.advance(1.0)
    talk.answer(resumed, 200, media_type, b"{}")
    assert isinstance(talk.error(id), ConnectionLost)


def test_resumption_is_retried_after_503_and_429() -> None:
    talk, id, asked = streaming("id: 1", "data:")
    talk.end(asked)
    (resumed,) = talk.advance(1.0)
    talk.answer(resumed, 503)
    (resumed,) = talk.advance(2.0)
    talk.answer(resumed, 429)
    (resumed,) = talk.advance(4.0)
    assert resumed.headers["last-event-id"] == "1"
    talk.stream(resumed)
    talk.event(resumed, result(id))
    assert talk.has_result(id)


def test_an_id_that_is_not_complete_does_not_count() -> None:
    talk, _, asked = streaming("id: 1", "data:")
    talk.body(asked, b"id: 2\ndata: {}")
    talk.reset(asked)
    (resumed,) = talk.advance(1.0)
    assert resumed.headers["last-event-id"] == "1"


def test_stream_without_waiting_calls_is_not_resumed() -> None:
    talk, id, asked = streaming("id: 1", "data:")
    talk.end(asked)
    talk.connection.cancel_request(id)
    (cancelled,) = talk.step()
    talk.answer(cancelled, 202)
    assert talk.advance(60.0) == []
    assert talk.machine.next_deadline() is None


def test_a_request_that_times_out_while_its_stream_is_away_has_one_outcome() -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL, timeout=3.0)
    asked = talk.requests[-1]
    talk.stream(asked)
    talk.event(asked, None, "id: 1", "retry: 10000", "data:")
    talk.end(asked)
    (cancelled,) = talk.advance(20.0)
    assert cancelled.json["method"] == "notifications/cancelled"
    assert isinstance(talk.error(id), RequestTimeout)


@pytest.mark.parametrize("closing", [True, False])
def test_closing_client_resumes_no_stream(closing: bool) -> None:
    talk, _, asked = streaming("id: 1", "data:", capabilities=ClientCapabilities(roots=RootsCapability()))
    if closing:
        talk.event(asked, {"jsonrpc": "2.0", "id": 1, "method": "roots/list"})
        talk.connection.close(0.0)
        talk.step()
        talk.reset(asked)
        assert talk.advance(4.0) == []
    else:
        talk.end(asked)
        talk.connection.close(0.0)
        (farewell,) = talk.step()
        talk.answer(farewell, 200)
        assert talk.advance(60.0) == []
        assert talk.machine.closed


def test_stream_of_initialize_is_resumed() -> None:
    talk = WebTalk()
    hi = talk.begin()
    talk.stream(hi, mcp_session_id="s-1")
    talk.event(hi, None, "id: 1", "data:")
    talk.end(hi)
    (resumed,) = talk.advance(1.0)
    assert resumed.headers["mcp-session-id"] == "s-1"
    talk.stream(resumed)
    (initialized,) = talk.event(resumed, {"jsonrpc": "2.0", "id": 1, "result": hello()})
    assert initialized.headers["mcp-session-id"] == "s-1"


@pytest.mark.req("RESUME-04")
@pytest.mark.parametrize("cut", range(0, 260, 7))
def test_a_stream_cut_anywhere_gives_everything_once(cut: int) -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL)
    asked = talk.requests[-1]
    messages = [{"jsonrpc": "2.0", "method": "notifications/a", "params": {"n": n}} for n in range(2)] + [result(id)]
    events = [b"id: 0\ndata:\n\n"]
    for number, message in enumerate(messages, 1):
        events.append(b"id: %d\ndata: %s\n\n" % (number, json.dumps(message).encode()))
    talk.stream(asked)
    talk.body(asked, b"".join(events)[:cut])
    talk.step()
    resumed = [each for each in (*talk.reset(asked), *talk.advance(1.0)) if each.method == "GET"]
    if resumed:
        seen = int(resumed[0].headers["last-event-id"])
        talk.stream(resumed[0])
        talk.body(resumed[0], b"".join(events[seen + 1 :]))
        talk.end(resumed[0])
    if cut < len(events[0]):
        assert isinstance(talk.error(id), ConnectionLost)
    else:
        assert talk.has_result(id)
        assert [each.raw["params"]["n"] for each in talk.found(NotificationReceived)] == [0, 1]


# Listening again


@pytest.mark.req("HTTP-29")
def test_listening_resumes_after_the_last_event() -> None:
    talk = WebTalk()
    listening = talk.open(listen=True)
    assert listening is not None
    talk.event(listening, NOTE, "id: a", "retry: 100")
    talk.end(listening)
    (again,) = talk.advance(0.1)
    assert (again.method, again.headers["last-event-id"]) == ("GET", "a")
    talk.stream(again)
    talk.reset(again)
    (again,) = talk.advance(1.0)
    assert again.headers["last-event-id"] == "a"


def test_listening_without_event_ids_restarts() -> None:
    talk = WebTalk()
    listening = talk.open(listen=True)
    assert listening is not None
    talk.reset(listening)
    (again,) = talk.advance(1.0)
    assert "last-event-id" not in again.headers


def talk_without_stream() -> WebTalk:
    """Return a conversation whose listening stream was lost, and given up."""
    talk = WebTalk(http=QUICK)
    listening = talk.open(listen=True)
    assert listening is not None
    for _ in range(3):
        talk.reset(listening, OSError("refused"))
        (listening,) = talk.advance(4.0)
    talk.reset(listening, OSError("refused"))
    return talk


def test_failed_listening_is_reported_and_retried_after_the_next_answer() -> None:
    talk = talk_without_stream()
    (ended,) = talk.found(ListeningEnded)
    assert isinstance(ended.error, ConnectionLost)
    assert talk.advance(100.0) == []
    talk.ask(PingRequest())
    (again,) = talk.result(talk.requests[-1], {})
    assert again.method == "GET"
    assert ended.is_lost
    assert talk.found(ListeningResumed) == []
    talk.stream(again)
    talk.step()
    assert len(talk.found(ListeningResumed)) == 1
    talk.reset(again)
    (again,) = talk.advance(1.0)
    talk.stream(again)
    talk.step()
    assert len(talk.found(ListeningResumed)) == 1  # it was not given up


@pytest.mark.req("HTTP-27")
@pytest.mark.parametrize(("status", "attempts"), [(405, 1), (503, 4)])
def test_listening_that_was_lost_is_refused_or_given_up_again(status: int, attempts: int) -> None:
    talk = talk_without_stream()
    talk.ask(PingRequest())
    (again,) = talk.result(talk.requests[-1], {})
    for _ in range(attempts):
        talk.answer(again, status)
        again = (talk.advance(4.0) or [again])[0]
    assert [each.is_lost for each in talk.found(ListeningEnded)] == [True, status == 503]
    assert talk.advance(100.0) == []
    # A server that offers no stream is not asked for one again.
    talk.ask(PingRequest())
    assert len(talk.result(talk.requests[-1], {})) == (status == 503)


def test_listening_that_finds_no_connection_is_tried_again_after_the_next_answer() -> None:
    talk = WebTalk(http=QUICK)
    (initialized,) = talk.result(talk.begin(), hello("2025-11-25"))
    (listening,) = talk.answer(initialized, 202)
    for _ in range(3):
        talk.reset(listening, OSError("refused"))
        (listening,) = talk.advance(4.0)
    talk.reset(listening, OSError("refused"))
    assert [each.is_lost for each in talk.found(ListeningEnded)] == [True]
    talk.ask(PingRequest())
    (again,) = talk.result(talk.requests[-1], {})
    assert again.method == "GET"


def test_refused_listening_is_reported() -> None:
    talk = WebTalk()
    listening = talk.open(listen=True)
    assert listening is not None
    talk.end(listening)
    (again,) = talk.advance(1.0)
    assert talk.answer(again, 405) == []
    assert len(talk.found(ListeningEnded)) == 1
    assert talk.advance(100.0) == []


# Sessions that the server forgets


def lost(error: Any) -> ConnectionLost:
    assert isinstance(error, ConnectionLost)
    return error


@pytest.mark.req("SESS-06", "SESS-05")
def test_expired_session_is_reopened_and_only_calls_in_flight_fail() -> None:
    talk = WebTalk(capabilities=ClientCapabilities(roots=RootsCapability()))
    listening = talk.open(listen=True, session="old")
    assert listening is not None
    talk.event(listening, {"jsonrpc": "2.0", "id": 1, "method": "roots/list"})
    first, second = talk.ask(CALL), talk.ask(CALL)
    assert talk.answer(talk.requests[-1], 404, "text/plain", b"session not found") == []
    assert not lost(talk.error(first)).unprocessed
    assert lost(talk.error(second)).unprocessed
    assert talk.found(SessionLost) == [SessionLost(0.0)]
    assert len(talk.cut) == 2
    (given_up,) = talk.found(CancelReceived)
    talk.connection.send_result(given_up.id, ListRootsResult(()))
    hi = talk.begin()
    assert hi.json["method"] == "initialize"
    assert "mcp-session-id" not in hi.headers
    assert "mcp-protocol-version" not in hi.headers
    talk.open(session="new", hi=hi)
    third = talk.ask(CALL)
    assert talk.requests[-1].headers["mcp-session-id"] == "new"
    talk.result(talk.requests[-1], RESULT)
    assert talk.has_result(third)
    assert len(talk.found(Negotiated)) == 2


@pytest.mark.req("SESS-06")
def test_any_request_with_the_session_id_may_find_it_expired() -> None:
    talk = WebTalk()
    listening = talk.open(listen=True, session="s")
    assert listening is not None
    talk.end(listening)
    (again,) = talk.advance(1.0)
    talk.answer(again, 404)
    assert len(talk.found(SessionLost)) == 1
    talk.open(session="t", hi=talk.begin())
    talk.connection.send_notification(CustomNotification("a/b"))
    talk.connection.send_notification(CustomNotification("c/d"))
    (told,) = talk.step()
    talk.answer(told, 404)
    assert len(talk.found(SessionLost)) == 2
    assert talk.found(MessageRefused) == []
    talk.advance(5.0)
    talk.open(session="u", hi=talk.begin())
    id = talk.ask(CALL)
    asked = talk.requests[-1]
    talk.stream(asked)
    talk.event(asked, None, "id: 1", "data:")
    talk.end(asked)
    (resumed,) = talk.advance(1.0)
    talk.answer(resumed, 404)
    assert len(talk.found(SessionLost)) == 3
    assert not lost(talk.error(id)).unprocessed  # it was accepted


@pytest.mark.req("SESS-07")
def test_404_without_a_session_is_an_error_like_others() -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL)
    talk.answer(talk.requests[-1], 404)
    assert isinstance(talk.error(id), UnexpectedResponse)
    assert talk.found(SessionLost) == []


@pytest.mark.req("SESS-06")
def test_client_without_reinitialize_ends_with_its_session() -> None:
    talk = WebTalk(http=HttpClientOptions(reinitialize=False))
    talk.open(session="s")
    id = talk.ask(CALL)
    talk.answer(talk.requests[-1], 404)
    assert isinstance(talk.error(id), ConnectionLost)
    (closed,) = talk.found(ConnectionClosed)
    assert closed.reason is CloseReason.LOST
    assert talk.found(SessionLost) == [SessionLost(None)]
    assert talk.machine.closed


def test_repeatedly_lost_sessions_back_off_and_end_the_client() -> None:
    talk = WebTalk(http=QUICK)
    talk.open(session="s")
    for wait in (0.0, 1.0, 2.0):
        talk.connection.send_notification(CustomNotification("a/b"))
        (told,) = talk.step()
        talk.answer(told, 404)
        assert talk.found(SessionLost)[-1] == SessionLost(wait)
        talk.open(session="s", hi=talk.begin())
    talk.connection.send_notification(CustomNotification("a/b"))
    (told,) = talk.step()
    talk.answer(told, 404)
    assert talk.found(SessionLost)[-1] == SessionLost(None)
    assert talk.machine.closed


@pytest.mark.parametrize("answered", [True, False])
def test_used_session_resets_the_backoff_of_new_sessions(answered: bool) -> None:
    talk = WebTalk(http=QUICK)
    talk.open(session="s")
    for _ in range(6):
        if answered:
            talk.ask(CALL)
            talk.result(talk.requests[-1], RESULT)
        else:
            talk.advance(4.0)
        talk.connection.send_notification(CustomNotification("a/b"))
        (told,) = talk.step()
        talk.answer(told, 404)
        assert talk.found(SessionLost)[-1] == SessionLost(0.0)
        talk.open(session="s", hi=talk.begin())


def test_session_that_expires_before_its_first_message() -> None:
    talk = WebTalk()
    (initialized,) = talk.result(talk.begin(), hello(), mcp_session_id="s")
    talk.answer(initialized, 404)
    assert talk.found(SessionLost) == [SessionLost(0.0)]
    hi = talk.begin()
    assert hi.json["id"] == 2


def test_404_while_closing_is_not_reported() -> None:
    talk = WebTalk()
    talk.open(session="s")
    talk.connection.send_notification(CustomNotification("a/b"))
    talk.connection.close(0.0)
    (told,) = talk.step()
    assert talk.answer(told, 404) == []
    assert talk.machine.closed


def test_received_answer_counts_before_the_session_is_lost() -> None:
    talk = WebTalk()
    talk.open(session="s")
    first, second = talk.ask(CALL), talk.ask(CALL)
    one, two = talk.requests[-2:]
    talk.head(one, 200, "application/json")
    talk.body(one, json.dumps(result(first)).encode())
    talk.machine.receive(End(one.number), 0.0)
    talk.answer(two, 404)
    assert talk.has_result(first)
    assert isinstance(talk.error(second), ConnectionLost)
