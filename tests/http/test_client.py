"""The HTTP client machine: what becomes of messages, and of what comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from webtalk import Asked, WebTalk, hello

from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.table import Phase
from mcpio.errors import (
    AuthorizationRequired,
    ConnectFailed,
    ConnectionLost,
    RequestError,
    RequestTimeout,
    UnexpectedResponse,
)
from mcpio.events import (
    CloseReason,
    ConnectionClosed,
    Negotiated,
    NotificationReceived,
    ProtocolViolated,
)
from mcpio.http.client_events import ListeningEnded, MessageRefused
from mcpio.http.client_options import HttpClientOptions
from mcpio.http.model import Body, End, Reset, ResponseHead
from mcpio.profiles import Profile
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    ClientCapabilities,
    CustomNotification,
    ListRootsResult,
    ListToolsRequest,
    PingRequest,
    RootsCapability,
    RootsListChangedNotification,
)

CALL = CallToolRequest("x")
RESULT: dict[str, Any] = {"content": []}
NOTE = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
CAPABLE = ClientCapabilities(roots=RootsCapability(list_changed=True))


def is_over(talk: WebTalk) -> bool:
    return talk.machine.closed


def result_of(asked: Asked) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": asked.json["id"], "result": RESULT}


# The handshake, and what goes out


@pytest.mark.req("HTTP-06", "HTTP-07", "HTTP-26", "HTTP-30", "HTTP-39", "SESS-03", "HTTP-35")
def test_every_message_is_a_request_of_its_own_with_what_the_server_has_to_know() -> None:
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
def test_nothing_overtakes_the_handshake() -> None:
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


def test_a_server_that_does_not_say_whether_we_may_listen_is_waited_for_half_a_second() -> None:
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


def test_a_client_need_not_listen() -> None:
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
def test_a_server_that_does_not_want_to_know_that_we_are_initialized_is_forgiven(status: int) -> None:
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


@pytest.mark.req("SESS-02")
@pytest.mark.parametrize("id", ["", "a b", "caf\xe9", "x\x7f"])
def test_a_session_id_that_cannot_be_ends_the_handshake(id: str) -> None:
    talk = WebTalk()
    hi = talk.begin()
    fields = [(b"content-type", b"application/json"), (b"mcp-session-id", id.encode("latin-1"))]
    talk.machine.receive(ResponseHead(hi.number, 200, fields), 0.0)
    talk.step()
    error = talk.error(1)
    assert isinstance(error, UnexpectedResponse)
    assert "no visible ASCII" in str(error)
    assert talk.cut == [hi.number]
    assert talk.machine.closed


def test_the_id_of_a_session_is_there_for_those_who_keep_it() -> None:
    talk = WebTalk()
    talk.open(session="s-1")
    assert talk.machine.session_id == "s-1"


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


def test_notifications_and_answers_arrive_in_their_order() -> None:
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
def test_what_the_server_does_not_take_is_reported_and_the_next_one_goes() -> None:
    talk = WebTalk(http=HttpClientOptions(tell_timeout=3.0), capabilities=CAPABLE)
    talk.open()
    for number in range(5):
        talk.connection.send_notification(CustomNotification("a/b", {"number": number}))
    (first,) = talk.step()
    (second,) = talk.answer_json(first, {"jsonrpc": "2.0", "id": None, "error": {"code": -5, "message": "no"}}, 400)
    (third,) = talk.reset(second, OSError("broken"))
    (fourth,) = talk.reset(third, ConnectFailed("nobody listens"))
    (fifth,) = talk.advance(3.0)
    assert talk.cut == [fourth.number]
    talk.head(fifth, 202)
    talk.reset(fifth)
    errors = [refused.error for refused in talk.found(MessageRefused)]
    assert [type(error) for error in errors] == [RequestError, ConnectionLost, ConnectFailed, ConnectionLost]
    assert isinstance(errors[0].__cause__, UnexpectedResponse)
    assert isinstance(errors[1].__cause__, OSError)
    assert "3 s" in str(errors[3])


def test_a_server_that_takes_nothing_is_given_up_when_too_much_waits() -> None:
    talk = WebTalk(options=Options(limits=Limits(queued_bytes=500)))
    talk.open()
    for _ in range(4):
        talk.connection.send_notification(CustomNotification("a/b", {"x": "y" * 200}))
        talk.step()
    (closed,) = talk.found(ConnectionClosed)
    assert closed.reason is CloseReason.ABORTED
    assert isinstance(closed.cause, ConnectionLost)


# Answers


@pytest.mark.req("HTTP-12")
def test_an_answer_may_be_a_stream_with_other_messages_before_it() -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL)
    asked = talk.requests[-1]
    talk.head(asked, 200, "Text/Event-Stream; charset=utf-8")
    talk.event(asked, None, ": hello", "id: 1", "data")
    talk.event(asked, NOTE)
    talk.event(asked, NOTE, "event: message")
    talk.event(asked, NOTE, "event: notification")
    talk.event(asked, result_of(asked))
    assert talk.has_result(id)
    assert len(talk.found(NotificationReceived)) == 2
    assert talk.end(asked) == []


@pytest.mark.req("RESUME-08")
def test_d12_a_dialect_may_give_messages_other_event_types() -> None:
    talk = WebTalk(options=Options(profiles=frozenset({Profile.ERLMCP, Profile.LSP_ALIASES})))
    talk.open()
    talk.ask(CALL)
    asked = talk.requests[-1]
    talk.stream(asked)
    talk.event(asked, NOTE, "event: notification")
    assert len(talk.found(NotificationReceived)) == 1


@pytest.mark.req("BATCH-05")
def test_answers_may_come_as_an_array_where_the_revision_has_those() -> None:
    talk = WebTalk()
    talk.open(revision="2025-03-26")
    first, second = talk.connection.send_batch([CALL, CALL], now=0.0)
    (asked,) = talk.step()
    assert len(asked.json) == 2
    both = [{"jsonrpc": "2.0", "id": each["id"], "result": RESULT} for each in asked.json]
    talk.answer_json(asked, both)
    assert first is not None
    assert second is not None
    assert talk.has_result(first)
    assert talk.has_result(second)


def test_a_batch_of_which_an_answer_is_missing_fails_for_that_one_alone() -> None:
    talk = WebTalk()
    talk.open(revision="2025-03-26")
    first, second = talk.connection.send_batch([CALL, CALL], now=0.0)
    (asked,) = talk.step()
    talk.answer_json(asked, [{"jsonrpc": "2.0", "id": asked.json[0]["id"], "result": RESULT}])
    assert first is not None
    assert second is not None
    assert talk.has_result(first)
    assert isinstance(talk.error(second), ConnectionLost)


@pytest.mark.parametrize("array", [True, False])
def test_an_answer_to_nothing_that_was_asked_fails_the_request(array: bool) -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL)
    other = {"jsonrpc": "2.0", "id": 99, "result": RESULT}
    talk.answer_json(talk.requests[-1], [other] if array else other)
    assert isinstance(talk.error(id), ConnectionLost)
    assert talk.found(ProtocolViolated) != []


@pytest.mark.parametrize(
    ("status", "media_type", "data", "said"),
    [
        (200, "text/html", b"<html>", "text/html in answer to a request: '<html>'"),
        (200, "application/json", b"", "application/json in answer"),
        (200, None, b"", "nothing in answer"),
        (202, None, b"", "status 202: nothing in answer"),
        (204, "text/event-stream", b"", "status 204"),
        (500, "text/plain", b"\xff" * 500, "status 500: text/plain in answer to a request: '\ufffd"),
        (404, "text/html", b"Cannot POST /mcp", "status 404"),
        (418, "application/json", b"{}", "status 418"),
        (418, "application/json", b"{", "status 418"),
        (304, None, b"", "status 304"),
    ],
)
def test_what_is_no_answer_is_a_typed_error(status: int, media_type: str | None, data: bytes, said: str) -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL)
    talk.answer(talk.requests[-1], status, media_type, data)
    error = talk.error(id)
    assert isinstance(error, UnexpectedResponse)
    assert error.status == status
    assert said in str(error)
    assert len(error.text) <= 200
    assert talk.connection.phase is Phase.OPERATING


@pytest.mark.parametrize("media_type", ["application/json", "text/event-stream"])
def test_a_response_in_an_encoding_that_nobody_asked_for_is_refused(media_type: str) -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL)
    asked = talk.requests[-1]
    assert "accept-encoding" not in asked.headers
    talk.head(asked, 200, media_type, content_encoding="gzip")
    talk.step()
    assert "in the encoding 'gzip', which was not asked for" in str(talk.error(id))
    assert talk.cut == [asked.number]


def test_an_encoding_that_changes_nothing_is_none() -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL)
    talk.result(talk.requests[-1], RESULT, content_encoding=" Identity ")
    assert talk.has_result(id)


@pytest.mark.req("HTTP-11")
@pytest.mark.parametrize("status", [200, 400, 404, 500])
def test_an_error_of_the_protocol_is_an_answer_whatever_the_status(status: int) -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL)
    error = {"code": -32602, "message": "no such tool", "data": {"x": 1}}
    asked = talk.requests[-1]
    talk.answer_json(asked, {"jsonrpc": "2.0", "id": asked.json["id"], "error": error}, status)
    found = talk.error(id)
    assert isinstance(found, RequestError)
    assert (found.code, found.message, found.data) == (-32602, "no such tool", {"x": 1})


@pytest.mark.parametrize("id", [None, "server-error", 99])
def test_an_error_that_names_another_request_still_says_what_is_wrong(id: Any) -> None:
    talk = WebTalk()
    talk.open()
    asked_id = talk.ask(CALL)
    error = {"code": -32600, "message": "Bad Request: unsupported version"}
    talk.answer_json(talk.requests[-1], {"jsonrpc": "2.0", "id": id, "error": error}, 400)
    found = talk.error(asked_id)
    assert isinstance(found, RequestError)
    assert found.message == "Bad Request: unsupported version"
    assert isinstance(found.__cause__, UnexpectedResponse)


@pytest.mark.req("HTTP-38")
@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_wants_credentials_says_which(status: int) -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL)
    challenge = 'Bearer resource_metadata="https://example.com/x"'
    talk.answer(talk.requests[-1], status, www_authenticate=challenge)
    error = talk.error(id)
    assert isinstance(error, AuthorizationRequired)
    assert (error.status, error.challenges) == (status, (challenge,))
    assert challenge in str(error)


def test_a_server_that_refuses_without_a_challenge_is_quoted() -> None:
    talk = WebTalk()
    talk.open()
    first, second = talk.ask(CALL), talk.ask(CALL)
    talk.answer(talk.requests[-2], 403, "text/plain", b"Invalid origin")
    talk.answer(talk.requests[-1], 401)
    assert str(talk.error(first)) == "the server refuses a request with status 403: Invalid origin"
    assert str(talk.error(second)) == "the server refuses a request with status 401: it does not say what it wants"


# Limits (P6)


@pytest.mark.parametrize("stream", [True, False])
def test_a_response_over_the_limit_fails_its_request_alone(stream: bool) -> None:
    talk = WebTalk(options=Options(limits=Limits(message_bytes=1000)))
    talk.open()
    id, other = talk.ask(CALL), talk.ask(CALL)
    asked = talk.requests[-2]
    talk.head(asked, 200, "text/event-stream" if stream else "application/json")
    for _ in range(11):
        talk.body(asked, b"x" * 100)
    talk.step()
    assert "more than 1000 bytes" in str(talk.error(id))
    assert talk.cut == [asked.number]
    talk.result(talk.requests[-1], RESULT)
    assert talk.has_result(other)


def test_events_together_may_be_longer_than_the_limit_of_each() -> None:
    talk = WebTalk(options=Options(limits=Limits(message_bytes=1000)))
    talk.open()
    id = talk.ask(CALL)
    asked = talk.requests[-1]
    talk.stream(asked)
    for _ in range(100):
        talk.event(asked, NOTE)
    talk.event(asked, result_of(asked))
    assert talk.has_result(id)


# Giving up


@pytest.mark.req("CANC-10")
def test_a_request_that_is_given_up_is_cancelled_by_a_message_and_its_stream_ends_soon() -> None:
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
def test_an_answer_that_does_not_come_in_time_is_not_waited_for() -> None:
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


def test_what_was_given_up_before_it_could_go_does_not_go() -> None:
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


def test_a_stream_that_goes_on_after_its_answer_is_cut() -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL)
    asked = talk.requests[-1]
    talk.stream(asked)
    talk.event(asked, result_of(asked))
    assert talk.has_result(id)
    assert talk.machine.next_deadline() == 2.0
    talk.advance(2.0)
    assert talk.cut == [asked.number]
    assert talk.machine.next_deadline() is None


# Input that belongs to nothing (P2)


def test_what_belongs_to_no_exchange_is_ignored() -> None:
    talk = WebTalk()
    hi = talk.begin()
    for exchange in (99, "x", None, (1, 2)):
        talk.machine.receive(Body(exchange, b"x"), 0.0)
        talk.machine.receive(End(exchange), 0.0)
        talk.machine.receive(Reset(exchange), 0.0)
    talk.body(hi, b"a body without a head")
    talk.end(hi)
    assert "broke off" in str(talk.error(1))


def test_time_does_not_go_back_and_deadlines_may_be_looked_at_early() -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL, timeout=5.0)
    talk.machine.handle_timeout(4.0)
    talk.machine.handle_timeout(3.0)
    assert talk.machine.next_deadline() == 5.0
    talk.result(talk.requests[-1], RESULT)
    assert talk.has_result(id)


# The end


@pytest.mark.req("SESS-08", "HTTP-36")
@pytest.mark.parametrize("status", [200, 204, 404, 405, 500])
def test_a_session_is_ended_at_the_server_whatever_it_says_to_that(status: int) -> None:
    talk = WebTalk()
    listening = talk.open(listen=True, session="s-1")
    assert listening is not None
    id = talk.ask(CALL)
    asked = talk.requests[-1]
    talk.connection.close(0.0)
    (farewell,) = talk.step()
    assert isinstance(talk.error(id), ConnectionLost)
    assert sorted(talk.cut) == sorted([listening.number, asked.number])
    assert (farewell.method, is_over(talk)) == ("DELETE", False)
    talk.answer(farewell, status)
    assert is_over(talk)
    assert talk.machine.next_deadline() is None


@pytest.mark.req("SESS-08")
def test_a_server_that_does_not_answer_the_farewell_is_left_after_five_seconds() -> None:
    talk = WebTalk()
    talk.open(session="s-1")
    talk.connection.close(0.0)
    (farewell,) = talk.step()
    talk.advance(4.9)
    assert not is_over(talk)
    talk.advance(0.2)
    assert talk.machine.closed
    assert talk.cut == [farewell.number]


@pytest.mark.req("SESS-10")
def test_without_a_session_there_is_nothing_to_end() -> None:
    talk = WebTalk()
    talk.open()
    talk.connection.close(0.0)
    assert talk.step() == []
    assert talk.machine.closed


def test_a_farewell_that_breaks_is_one() -> None:
    talk = WebTalk()
    talk.open(session="s-1")
    talk.connection.close(0.0)
    (farewell,) = talk.step()
    talk.reset(farewell, OSError("gone"))
    assert talk.machine.closed


def test_the_last_words_go_out_before_the_farewell() -> None:
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
def test_last_words_that_nobody_takes_hold_up_the_end_for_five_seconds_in_all(limit: float) -> None:
    talk = WebTalk(capabilities=CAPABLE, http=HttpClientOptions(tell_timeout=limit))
    talk.open(session="s-1")
    talk.connection.send_notification(RootsListChangedNotification())
    talk.connection.send_notification(CustomNotification("a/b"))
    talk.connection.close(0.0)
    (first,) = talk.step()
    talk.advance(5.0)
    assert talk.machine.closed
    assert talk.cut == [first.number]


def test_what_the_server_still_asks_is_answered_before_the_end() -> None:
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


def test_a_connection_that_ends_before_it_said_anything() -> None:
    talk = WebTalk()
    talk.connection.close(0.0)
    assert talk.step() == []
    assert talk.machine.closed


@pytest.mark.req("LIFE-19")
def test_a_handshake_that_takes_too_long() -> None:
    talk = WebTalk()
    hi = talk.begin()
    talk.advance(30.0)
    assert isinstance(talk.error(1), RequestTimeout)
    assert talk.cut == [hi.number]
    assert talk.machine.closed


# Redirects


@pytest.mark.req("HTTP-38")
@pytest.mark.parametrize("location", ["/mcp/", "http://localhost:8000/mcp/", "mcp/", "//localhost:8000/mcp/"])
@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_within_the_origin_is_followed(status: int, location: str) -> None:
    talk = WebTalk(http=HttpClientOptions(headers={"Authorization": "x"}))
    hi = talk.begin()
    (again,) = talk.answer(hi, status, location=location)
    assert (again.method, again.target, again.body) == ("POST", "/mcp/", hi.body)
    assert again.headers["authorization"] == "x"
    (initialized,) = talk.result(again, hello())
    assert initialized.target == ("/mcp/" if status == 308 else "/mcp")


def test_a_redirect_leads_on_from_where_it_was_given() -> None:
    talk = WebTalk(url="http://localhost/a/b?x=1")
    (second,) = talk.answer(talk.begin(), 307, location="../c/d")
    (third,) = talk.answer(second, 308, location="e?y=2")
    assert (second.target, third.target) == ("/c/d", "/c/e?y=2")
    (initialized,) = talk.result(third, hello())
    assert initialized.target == "/a/b?x=1"


def test_a_notification_is_redirected_as_well_and_keeps_its_place() -> None:
    talk = WebTalk(http=HttpClientOptions(tell_timeout=5.0))
    talk.open()
    talk.connection.send_notification(CustomNotification("a/b"))
    talk.connection.send_notification(CustomNotification("c/d"))
    (first,) = talk.step()
    (again,) = talk.answer(first, 307, location="/x")
    assert (again.target, again.json["method"]) == ("/x", "a/b")
    (second,) = talk.advance(5.0)
    assert second.json["method"] == "c/d"
    (refused,) = talk.found(MessageRefused)
    assert "5 s" in str(refused.error)


@pytest.mark.req("HTTP-38")
@pytest.mark.parametrize(
    ("status", "location"),
    [
        (307, "https://localhost:8000/mcp"),
        (307, "http://localhost:8001/mcp"),
        (308, "http://example.com/mcp"),
        (308, "//example.com/mcp"),
        (307, "ftp://localhost/x"),
        (307, "http://[::1"),
        (307, "http://user@localhost:8000/"),
        (301, "/mcp/"),
        (302, "/mcp/"),
        (303, "/mcp/"),
    ],
)
def test_a_redirect_that_would_lead_elsewhere_or_lose_the_message_is_not_followed(status: int, location: str) -> None:
    talk = WebTalk(http=HttpClientOptions(headers={"Authorization": "x"}))
    assert talk.answer(talk.begin(), status, location=location) == []
    error = talk.error(1)
    assert isinstance(error, UnexpectedResponse)
    assert f"a redirect that is not followed, to '{location}'" in str(error)


def test_a_redirect_without_an_end_is_followed_five_times() -> None:
    talk = WebTalk()
    asked = talk.begin()
    for _ in range(5):
        (asked,) = talk.answer(asked, 307, location="/mcp")
    assert talk.answer(asked, 307, location="/mcp") == []
    assert isinstance(talk.error(1), UnexpectedResponse)


def test_whoever_listens_may_be_redirected_in_any_way() -> None:
    talk = WebTalk()
    (initialized,) = talk.result(talk.begin(), hello())
    (listening,) = talk.answer(initialized, 202)
    (again,) = talk.answer(listening, 302, location="/events")
    assert (again.method, again.target) == ("GET", "/events")


# Listening


@pytest.mark.req("HTTP-27", "HTTP-28")
@pytest.mark.parametrize("status", [400, 404, 405, 406, 500, 501])
def test_a_server_need_not_let_anybody_listen(status: int) -> None:
    talk = WebTalk()
    (initialized,) = talk.result(talk.begin(), hello(), mcp_session_id="s-1")
    (listening,) = talk.answer(initialized, 202)
    assert talk.answer(listening, status, "text/html", b"<html>") == []
    assert talk.found(ListeningEnded) == []
    id = talk.ask(PingRequest())
    talk.result(talk.requests[-1], {})
    assert talk.has_result(id)
    assert [asked.method for asked in talk.requests].count("GET") == 1


@pytest.mark.parametrize(("status", "media_type"), [(200, "text/html"), (401, None)])
def test_a_server_that_answers_whoever_listens_with_nonsense_is_reported(status: int, media_type: str | None) -> None:
    talk = WebTalk()
    (initialized,) = talk.result(talk.begin(), hello())
    (listening,) = talk.answer(initialized, 202)
    talk.answer(listening, status, media_type, b"hello")
    assert len(talk.found(ListeningEnded)) == 1
    talk.ask(ListToolsRequest())
    assert json.loads(talk.requests[-1].body)["method"] == "tools/list"


def test_what_belongs_to_no_request_is_heard() -> None:
    talk = WebTalk(capabilities=CAPABLE)
    listening = talk.open(listen=True)
    assert listening is not None
    talk.event(listening, NOTE)
    talk.event(listening, {"jsonrpc": "2.0", "id": "r", "method": "roots/list"})
    assert len(talk.found(NotificationReceived)) == len(talk.received()) == 1


def test_a_result_is_typed() -> None:
    talk = WebTalk()
    talk.open()
    talk.ask(CALL)
    talk.result(talk.requests[-1], RESULT)
    assert talk.events[-1].result == CallToolResult(())
