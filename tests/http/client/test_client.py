"""The HTTP client machine: the handshake, what goes out and in which order, and the end."""

from __future__ import annotations

import pytest
from webtalk import CALL, CAPABLE, NOTE, RESULT, WebTalk, hello

from mcpio.engine.client import ClientConnection
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.errors import (
    AuthorizationRequired,
    ConnectionLost,
    LocalProtocolError,
    OutputFull,
    RequestError,
    RequestTimeout,
    UnexpectedResponse,
)
from mcpio.events import (
    CloseReason,
    ConnectionClosed,
    Negotiated,
    NotificationReceived,
)
from mcpio.http.client import HttpClientOptions, MessageRefused
from mcpio.http.model import Body, End, Reset, ResponseHead
from mcpio.types import (
    CallToolRequest,
    CustomNotification,
    CustomRequest,
    ListRootsResult,
    RootsListChangedNotification,
)

# The handshake, and what goes out


@pytest.mark.req("HTTP-06", "HTTP-07", "HTTP-26", "HTTP-30", "HTTP-39", "SESS-03", "HTTP-35")
def test_every_message_is_posted_with_session_and_revision() -> None:
    talk = WebTalk(http=HttpClientOptions(headers={"Authorization": "Bearer x"}))
    hi = talk.begin()
    assert (hi.method, hi.target, hi.json["method"]) == ("POST", "/mcp", "initialize")
    assert hi.headers == {
        "authorization": "Bearer x",
        "content-type": "application/json",
        "content-length": str(len(hi.body)),
        "accept": "application/json, text/event-stream",
    }
    (initialized,) = talk.result(hi, hello(), mcp_session_id="s-1")
    assert initialized.json == {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert initialized.headers["mcp-session-id"] == "s-1"
    assert initialized.headers["mcp-protocol-version"] == "2025-11-25"
    (listening,) = talk.answer(initialized, 202)
    assert (listening.method, listening.target, listening.body) == ("GET", "/mcp", b"")
    assert listening.headers == {
        "authorization": "Bearer x",
        "accept": "text/event-stream",
        "cache-control": "no-store",
        "mcp-session-id": "s-1",
        "mcp-protocol-version": "2025-11-25",
    }
    assert talk.answer(listening, 405) == []
    id = talk.ask(CALL)
    assert talk.result(talk.requests[-1], RESULT) == []
    assert talk.has_result(id)
    talk.connection.close(0.0)
    (farewell,) = talk.step()
    assert (farewell.method, farewell.headers["mcp-session-id"]) == ("DELETE", "s-1")
    assert farewell.headers["authorization"] == "Bearer x"


@pytest.mark.req("LIFE-09")
def test_requests_wait_for_initialized_and_listening() -> None:
    talk = WebTalk()
    (initialized,) = talk.result(talk.begin(), hello())
    talk.ask(CALL)
    assert len(talk.requests) == 2
    (listening,) = talk.answer(initialized, 202)
    assert listening.method == "GET"
    # What the server says before it hears that we listen may be lost.
    talk.head(listening, 200, "text/event-stream")
    (asked,) = talk.step()
    assert asked.json["method"] == "tools/call"


def test_requests_wait_half_a_second_for_the_listening_stream() -> None:
    talk = WebTalk()
    (initialized,) = talk.result(talk.begin(), hello())
    (listening,) = talk.answer(initialized, 202)
    talk.ask(CALL)
    assert talk.advance(0.4) == []
    (asked,) = talk.advance(0.2)
    assert asked.json["method"] == "tools/call"
    talk.stream(listening)
    talk.event(listening, NOTE)
    assert len(talk.found(NotificationReceived)) == 1


def test_listen_false_opens_no_stream() -> None:
    talk = WebTalk(http=HttpClientOptions(listen=False))
    assert talk.open() is None
    talk.ask(CALL)
    assert [asked.method for asked in talk.requests] == ["POST"] * 3


@pytest.mark.req("PING-01")
def test_a_ping_before_the_handshake_is_done_is_answered_at_once() -> None:
    talk = WebTalk()
    hi = talk.begin()
    talk.stream(hi)
    (pong,) = talk.event(hi, {"jsonrpc": "2.0", "id": 5, "method": "ping"})
    assert pong.json == {"jsonrpc": "2.0", "id": 5, "result": {}}
    talk.event(hi, {"jsonrpc": "2.0", "id": 1, "result": hello()})
    assert len(talk.found(Negotiated)) == 1
    assert [asked.json for asked in talk.answer(pong, 202)] == [
        {"jsonrpc": "2.0", "method": "notifications/initialized"}
    ]


@pytest.mark.parametrize("status", [400, 500])
def test_refused_initialized_notification_is_reported_and_ignored(status: int) -> None:
    talk = WebTalk()
    (initialized,) = talk.result(talk.begin(), hello())
    (listening,) = talk.answer(initialized, status, "text/plain", b"what?")
    assert listening.method == "GET"
    (refused,) = talk.found(MessageRefused)
    assert isinstance(refused.error, UnexpectedResponse)
    assert (refused.error.status, refused.error.text) == (status, "what?")


@pytest.mark.parametrize(("status", "kind"), [(401, AuthorizationRequired), (500, UnexpectedResponse)])
def test_a_handshake_that_is_refused_ends_the_connection(status: int, kind: type[Exception]) -> None:
    talk = WebTalk()
    talk.answer(talk.begin(), status)
    assert isinstance(talk.error(1), kind)
    (closed,) = talk.found(ConnectionClosed)
    assert (closed.reason, closed.cause) == (CloseReason.LOST, talk.error(1))
    assert talk.machine.closed


def test_a_request_in_a_session_repeats_nothing_in_header_fields_whatever_its_meta_says() -> None:
    talk = WebTalk()
    talk.open(session="s-1")
    talk.ask(CallToolRequest("x", meta={"io.modelcontextprotocol/protocolVersion": "2026-07-28"}))
    asked = talk.requests[-1]
    assert (asked.headers["mcp-session-id"], asked.headers["mcp-protocol-version"]) == ("s-1", "2025-11-25")
    assert not {"mcp-method", "mcp-name"} & asked.headers.keys()


@pytest.mark.req("SESS-02")
@pytest.mark.parametrize("id", ["", "a b", "caf\xe9", "x\x7f"])
def test_invalid_session_id_ends_the_handshake(id: str) -> None:
    talk = WebTalk()
    hi = talk.begin()
    fields = [(b"content-encoding", b"gzip"), (b"mcp-session-id", id.encode("latin-1"))]
    talk.machine.receive(ResponseHead(hi.number, 200, fields), 0.0)
    talk.step()
    error = talk.error(1)
    assert isinstance(error, UnexpectedResponse)
    assert "not visible ASCII" in str(error)
    assert talk.cut == [hi.number]
    assert talk.machine.closed


@pytest.mark.req("SESS-03")
def test_saved_session_continues_in_another_client() -> None:
    talk = WebTalk(capabilities=CAPABLE)
    had_session = talk.machine.has_session
    talk.open(session="s-1")
    assert (had_session, talk.machine.has_session) == (False, True)
    assert talk.machine.save() == "s-1"
    connection = ClientConnection.restore(talk.connection.snapshot(0.0), 0.0)
    moved = WebTalk(connection=connection, session_id=talk.machine.save())
    (listening,) = moved.step()
    assert (listening.method, listening.headers["mcp-session-id"]) == ("GET", "s-1")
    moved.answer(listening, 405)
    id = moved.ask(CALL)
    assert moved.requests[-1].headers["mcp-session-id"] == "s-1"
    moved.result(moved.requests[-1], RESULT)
    assert moved.has_result(id)
    talk.connection.send_notification(RootsListChangedNotification())
    talk.step()
    with pytest.raises(LocalProtocolError, match="write the output"):
        talk.machine.save()


def test_events_wait_until_they_are_taken() -> None:
    talk = WebTalk()
    talk.open()
    found = [talk.machine.has_events]
    talk.connection.abort()
    while talk.machine.has_events:
        found.append(talk.machine.next_event() is not None)
    assert found == [False, True]
    assert talk.machine.next_event() is None


# Side by side, and one after the other


@pytest.mark.req("HTTP-33")
def test_requests_go_side_by_side_up_to_a_limit() -> None:
    talk = WebTalk(http=HttpClientOptions(max_requests=2))
    talk.open()
    ids = [talk.ask(CALL) for _ in range(4)]
    asked = talk.requests[3:]
    assert len(asked) == 2
    (third,) = talk.result(asked[1], RESULT)
    assert third.json["id"] == ids[2]
    talk.result(asked[0], RESULT)
    talk.result(third, RESULT)
    talk.result(talk.requests[-1], RESULT)
    assert all(talk.has_result(id) for id in ids)


def test_answers_do_not_wait_for_room_among_requests() -> None:
    talk = WebTalk(http=HttpClientOptions(max_requests=1), capabilities=CAPABLE)
    talk.open()
    talk.ask(CALL)
    asked = talk.requests[-1]
    talk.stream(asked)
    talk.event(asked, {"jsonrpc": "2.0", "id": 1, "method": "roots/list"})
    (request,) = talk.received()
    talk.connection.send_result(request.id, ListRootsResult(()))
    (answer,) = talk.step()
    assert answer.json == {"jsonrpc": "2.0", "id": 1, "result": {"roots": []}}


def test_notifications_and_answers_are_posted_in_order() -> None:
    talk = WebTalk(capabilities=CAPABLE)
    talk.open()
    for number in range(3):
        talk.connection.send_notification(CustomNotification("a/b", {"number": number}))
    (first,) = talk.step()
    (second,) = talk.answer(first, 202)
    talk.head(second, 202)
    # The head is all there is to know; a body that never ends holds up nothing.
    (third,) = talk.step()
    talk.body(second, b"x" * 100)
    assert [asked.json["params"]["number"] for asked in (first, second, third)] == [0, 1, 2]
    assert talk.answer(third, 204) == []
    talk.advance(2.0)
    assert talk.cut == [second.number]
    assert talk.found(MessageRefused) == []


@pytest.mark.req("HTTP-10")
def test_refused_notification_is_reported_and_the_next_one_is_sent() -> None:
    talk = WebTalk(http=HttpClientOptions(tell_timeout=3.0), capabilities=CAPABLE)
    talk.open()
    for number in range(5):
        talk.connection.send_notification(CustomNotification("a/b", {"number": number}))
    (first,) = talk.step()
    (second,) = talk.answer_json(first, {"jsonrpc": "2.0", "id": None, "error": {"code": -5, "message": "no"}}, 400)
    (third,) = talk.reset(second, OSError("broken"))
    (fourth,) = talk.reset(third, LocalProtocolError("cannot be encoded"))
    talk.head(fourth, 500)  # of which nothing more comes
    (fifth,) = talk.advance(3.0)
    assert talk.cut == [fourth.number]
    talk.head(fifth, 202)
    talk.reset(fifth)
    errors = [refused.error for refused in talk.found(MessageRefused)]
    assert [type(error) for error in errors] == [RequestError, ConnectionLost, LocalProtocolError, ConnectionLost]
    assert isinstance(errors[0].__cause__, UnexpectedResponse)
    assert isinstance(errors[1].__cause__, OSError)
    assert "3 s" in str(errors[3])


def test_server_that_accepts_no_messages_is_disconnected_beyond_queued_bytes() -> None:
    talk = WebTalk(options=Options(limits=Limits(queued_bytes=4000)))
    talk.open()
    for _ in range(4):
        talk.connection.send_notification(CustomNotification("a/b", {"x": "y" * 600}))
        talk.step()
    talk.connection.send_notification(CustomNotification("a/b", {"x": "y" * 600}))
    talk.step()
    (closed,) = talk.found(ConnectionClosed)
    assert closed.reason is CloseReason.SLOW_CONSUMER


def test_requests_that_wait_for_their_turn_count_as_output() -> None:
    talk = WebTalk(options=Options(limits=Limits(queued_bytes=4000)), http=HttpClientOptions(max_requests=1))
    talk.open()
    for _ in range(3):
        talk.ask(CustomRequest("x" * 600))
    assert talk.connection.held.own > 2000
    with pytest.raises(OutputFull):
        talk.ask(CustomRequest("x" * 600))
    talk.result(talk.requests[-1], {})
    talk.ask(CustomRequest("x" * 600))


# Giving up


@pytest.mark.req("CANC-10")
def test_cancelled_request_sends_a_cancellation_and_its_stream_ends() -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL)
    asked = talk.requests[-1]
    talk.stream(asked)
    talk.connection.cancel_request(id, "enough")
    (cancelled,) = talk.step()
    assert (cancelled.method, cancelled.json["method"]) == ("POST", "notifications/cancelled")
    assert cancelled.json["params"] == {"requestId": id, "reason": "enough"}
    talk.answer(cancelled, 202)
    assert talk.cut == []
    talk.advance(2.0)
    assert talk.cut == [asked.number]


@pytest.mark.req("TIME-01")
def test_timed_out_request_is_cancelled() -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL, timeout=5.0)
    asked = talk.requests[-1]
    (cancelled,) = talk.advance(5.0)
    assert cancelled.json["method"] == "notifications/cancelled"
    assert isinstance(talk.error(id), RequestTimeout)
    talk.advance(2.0)
    assert talk.cut == [asked.number]
    talk.result(asked, RESULT)


def test_call_cancelled_before_it_was_sent_is_not_sent() -> None:
    talk = WebTalk(http=HttpClientOptions(max_requests=1))
    talk.open()
    first, second, third = talk.ask(CALL), talk.ask(CALL), talk.ask(CALL)
    asked = talk.requests[-1]
    assert asked.json["id"] == first
    talk.connection.cancel_request(second)
    (cancelled,) = talk.step()
    talk.answer(cancelled, 202)
    (next_asked,) = talk.result(asked, RESULT)
    assert next_asked.json["id"] == third


def test_stream_that_continues_after_its_answer_is_cut_off() -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL)
    asked = talk.requests[-1]
    talk.stream(asked)
    talk.event(asked, asked.result)
    assert talk.has_result(id)
    assert talk.machine.next_deadline() == 2.0
    talk.advance(2.0)
    assert talk.cut == [asked.number]
    assert talk.machine.next_deadline() is None


# Input that belongs to nothing (P2)


def test_item_of_an_unknown_exchange_is_ignored() -> None:
    talk = WebTalk()
    hi = talk.begin()
    for exchange in (99, "x", None, (1, 2)):
        talk.machine.receive(Body(exchange, b"x"), 0.0)
        talk.machine.receive(End(exchange), 0.0)
        talk.machine.receive(Reset(exchange), 0.0)
    talk.body(hi, b"a body without a head")
    talk.end(hi)
    assert "broke off" in str(talk.error(1))


def test_earlier_and_early_timeouts_change_nothing() -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL, timeout=5.0)
    talk.machine.handle_timeout(4.0)
    talk.machine.handle_timeout(3.0)
    assert talk.machine.next_deadline() == 5.0
    talk.result(talk.requests[-1], RESULT)
    assert talk.has_result(id)


# The end


@pytest.mark.req("HTTP-30", "HTTP-39", "SESS-03")
@pytest.mark.parametrize("revision", ["2025-11-25", "2025-06-18", "2025-03-26"])
def test_every_request_after_the_handshake_names_session_revision_and_credentials(revision: str) -> None:
    talk = WebTalk(http=HttpClientOptions(headers={"Authorization": "Bearer t"}))
    listening = talk.open(listen=True, session="s-1", revision=revision)
    talk.ask(CALL)
    asked = talk.requests[-1]
    talk.stream(asked)
    talk.event(asked, None, "id: e-1", "retry: 500", "data:")
    talk.end(asked)
    (resumed,) = talk.advance(0.5)
    talk.connection.close(talk.now)
    (farewell,) = talk.step()
    first, initialized, *later = talk.requests
    assert later == [listening, asked, resumed, farewell]
    assert [each.method for each in talk.requests] == ["POST", "POST", "GET", "POST", "GET", "DELETE"]
    names = ("mcp-session-id", "mcp-protocol-version", "authorization")
    for each in (initialized, *later):
        assert [each.headers.get(name) for name in names] == ["s-1", revision, "Bearer t"], each.method
    assert [first.headers.get(name) for name in names] == [None, None, "Bearer t"]


@pytest.mark.req("SESS-08", "HTTP-36")
@pytest.mark.parametrize("status", [200, 204, 404, 405, 500])
def test_closing_deletes_the_session_regardless_of_the_response(status: int) -> None:
    talk = WebTalk()
    listening = talk.open(listen=True, session="s-1")
    assert listening is not None
    id = talk.ask(CALL)
    asked = talk.requests[-1]
    talk.connection.close(0.0)
    (farewell,) = talk.step()
    assert isinstance(talk.error(id), ConnectionLost)
    assert sorted(talk.cut) == sorted([listening.number, asked.number])
    assert (farewell.method, talk.is_over) == ("DELETE", False)
    talk.answer(farewell, status)
    assert talk.is_over
    assert talk.machine.next_deadline() is None


@pytest.mark.req("SESS-08")
def test_unanswered_session_delete_ends_after_five_seconds() -> None:
    talk = WebTalk()
    talk.open(session="s-1")
    talk.connection.close(0.0)
    (farewell,) = talk.step()
    talk.advance(4.9)
    assert not talk.is_over
    talk.advance(0.2)
    assert talk.machine.closed
    assert talk.cut == [farewell.number]


@pytest.mark.req("SESS-10")
def test_closing_without_a_session_sends_no_delete() -> None:
    talk = WebTalk()
    talk.open()
    talk.connection.close(0.0)
    assert talk.step() == []
    assert talk.machine.closed


def test_broken_session_delete_ends_the_connection() -> None:
    talk = WebTalk()
    talk.open(session="s-1")
    talk.connection.close(0.0)
    (farewell,) = talk.step()
    talk.reset(farewell, OSError("gone"))
    assert talk.machine.closed


def test_waiting_notifications_are_sent_before_the_session_delete() -> None:
    talk = WebTalk(capabilities=CAPABLE)
    talk.open(session="s-1")
    talk.connection.send_notification(RootsListChangedNotification())
    talk.connection.send_notification(CustomNotification("a/b"))
    talk.connection.close(0.0)
    (first,) = talk.step()
    (second,) = talk.answer(first, 202)
    (farewell,) = talk.answer(second, 202)
    assert [first.json["method"], second.json["method"]] == ["notifications/roots/list_changed", "a/b"]
    assert farewell.method == "DELETE"


@pytest.mark.parametrize("limit", [5.0, 30.0])
def test_unaccepted_output_delays_the_end_by_at_most_five_seconds(limit: float) -> None:
    talk = WebTalk(capabilities=CAPABLE, http=HttpClientOptions(tell_timeout=limit))
    talk.open(session="s-1")
    talk.connection.send_notification(RootsListChangedNotification())
    talk.connection.send_notification(CustomNotification("a/b"))
    talk.connection.close(0.0)
    (first,) = talk.step()
    talk.advance(5.0)
    assert talk.machine.closed
    assert talk.cut == [first.number]


def test_open_requests_of_the_server_are_answered_before_the_end() -> None:
    talk = WebTalk(capabilities=CAPABLE)
    listening = talk.open(listen=True, session="s-1")
    assert listening is not None
    talk.event(listening, {"jsonrpc": "2.0", "id": 1, "method": "roots/list"})
    talk.connection.close(0.0)
    assert talk.step() == []
    (request,) = talk.received()
    talk.connection.send_result(request.id, ListRootsResult(()))
    (answer,) = talk.step()
    assert answer.json["result"] == {"roots": []}
    (farewell,) = talk.answer(answer, 202)
    assert farewell.method == "DELETE"


def test_connection_closed_before_the_handshake_sends_nothing() -> None:
    talk = WebTalk()
    talk.connection.close(0.0)
    assert talk.step() == []
    assert talk.machine.closed


@pytest.mark.req("LIFE-19")
def test_unanswered_handshake_times_out() -> None:
    talk = WebTalk()
    hi = talk.begin()
    talk.advance(30.0)
    assert isinstance(talk.error(1), RequestTimeout)
    assert talk.cut == [hi.number]
    assert talk.machine.closed
