"""The HTTP client machine: what becomes of what comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from webtalk import CALL, CAPABLE, NOTE, RESULT, WebTalk, hello

from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.table import Phase
from mcpio.errors import (
    AuthorizationRequired,
    ConnectionLost,
    InvalidMessage,
    RequestError,
    UnexpectedResponse,
)
from mcpio.events import (
    NotificationReceived,
    ProtocolViolated,
)
from mcpio.http.client import HttpClientOptions, ListeningEnded, MessageRefused
from mcpio.profiles import Profile
from mcpio.types import (
    CallToolResult,
    CustomNotification,
    ListToolsRequest,
    PingRequest,
)

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
    talk.event(asked, asked.result)
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
def test_response_with_an_unknown_id_fails_the_request(array: bool) -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL)
    other = {"jsonrpc": "2.0", "id": 99, "result": RESULT}
    talk.answer_json(talk.requests[-1], [other] if array else other)
    assert isinstance(talk.error(id), ConnectionLost)
    assert talk.found(ProtocolViolated) != []


MALFORMED = [
    (b'{"jsonrpc":"2.0","id":%d,"result":null}', "a result is an object, not null"),
    (b'{"jsonrpc":"2.0","id":%d,"error":{}}', "an error without an integer code"),
    (b'{"jsonrpc":"2.0","id":%d}', "no method, result or error"),
    (b'{"jsonrpc":"2.0","id":%d,"result":{"text":"\\ud800"}}', "a surrogate without its other half"),
]


@pytest.mark.req("RPC-09", "RPC-10", "RPC-11", "RPC-22")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("text", "reason"), MALFORMED)
def test_malformed_answer_fails_its_request_at_once(text: bytes, reason: str, stream: bool) -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL)
    asked = talk.requests[-1]
    if stream:
        # A client that may resume would come back for it otherwise.
        talk.stream(asked)
        talk.body(asked, b"id: 1\ndata: " + text % id + b"\n\n")
        talk.step()
    else:
        talk.answer(asked, 200, "application/json", text % id)
    error = talk.error(id)
    assert isinstance(error, InvalidMessage)
    assert str(error) == f"the answer is malformed: {reason}"


@pytest.mark.parametrize(
    "text", [b"<html>", b'{"jsonrpc":"2.0","id":"9","result":null}', b'{"jsonrpc":"2.0","result":{}}']
)
def test_json_response_without_a_readable_id_fails_its_request_and_is_quoted(text: bytes) -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL)
    talk.answer(talk.requests[-1], 200, "application/json", text)
    error = talk.error(id)
    assert isinstance(error, InvalidMessage)
    assert isinstance(error.__cause__, UnexpectedResponse)
    assert error.__cause__.text == text.decode()


@pytest.mark.parametrize(
    ("status", "media_type", "data", "said"),
    [
        (200, "text/html", b"<html>", "text/html in answer to a request: '<html>'"),
        (200, "application/json", b"", "application/json without a body in answer"),
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
def test_response_without_an_answer_raises_a_typed_error(
    status: int, media_type: str | None, data: bytes, said: str
) -> None:
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


@pytest.mark.parametrize(
    ("media_type", "data", "what"),
    [
        ("text/event-stream", b"", "an event stream that ended before the answer"),
        ("text/event-stream", b": nothing\n\n", "an event stream that ended before the answer"),
        ("text/event-stream", b"data: {", "an event stream that ended before the answer"),
        ("application/json", b'{"jsonrpc": "2.0", "id": 99, "result": {}}', "a message that is not the answer"),
    ],
)
def test_response_that_ends_before_the_answer_says_so(media_type: str, data: bytes, what: str) -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL)
    talk.answer(talk.requests[-1], 200, media_type, data)
    error = talk.error(id)
    assert (type(error), str(error)) == (ConnectionLost, "the response ended without the answer")
    assert str(error.__cause__).startswith(f"status 200: {what}")


@pytest.mark.parametrize("media_type", ["application/json", "text/event-stream"])
def test_response_in_an_unrequested_encoding_is_rejected(media_type: str) -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL)
    asked = talk.requests[-1]
    assert "accept-encoding" not in asked.headers
    talk.head(asked, 200, media_type, content_encoding="gzip")
    talk.step()
    assert "in the encoding 'gzip', which was not requested" in str(talk.error(id))
    assert talk.cut == [asked.number]


def test_identity_encoding_is_accepted() -> None:
    talk = WebTalk()
    talk.open()
    id = talk.ask(CALL)
    talk.result(talk.requests[-1], RESULT, content_encoding=" Identity ")
    assert talk.has_result(id)


@pytest.mark.req("HTTP-11")
@pytest.mark.parametrize("status", [200, 400, 404, 500])
def test_json_rpc_error_is_an_answer_with_any_status(status: int) -> None:
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
def test_error_with_another_request_id_still_has_its_message(id: Any) -> None:
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
def test_401_raises_authorization_required_with_the_challenges(status: int) -> None:
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
    said = "the server refuses a request with status 401: it does not say what it wants"
    assert str(talk.error(second)).startswith(f"{said}. To log in, give auth=OAuth()")


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
    talk.event(asked, asked.result)
    assert talk.has_result(id)


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


def test_relative_redirect_is_resolved_against_its_url() -> None:
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


def test_endless_redirects_are_followed_five_times() -> None:
    talk = WebTalk()
    asked = talk.begin()
    for _ in range(5):
        (asked,) = talk.answer(asked, 307, location="/mcp")
    assert talk.answer(asked, 307, location="/mcp") == []
    assert isinstance(talk.error(1), UnexpectedResponse)


def test_listening_stream_follows_any_redirect_status() -> None:
    talk = WebTalk()
    (initialized,) = talk.result(talk.begin(), hello())
    (listening,) = talk.answer(initialized, 202)
    (again,) = talk.answer(listening, 302, location="/events")
    assert (again.method, again.target) == ("GET", "/events")


# Listening


@pytest.mark.req("HTTP-27", "HTTP-28")
@pytest.mark.parametrize("status", [400, 404, 405, 406, 500, 501])
def test_server_that_refuses_listening_is_not_asked_again(status: int) -> None:
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
def test_malformed_answer_to_listening_is_reported(status: int, media_type: str | None) -> None:
    talk = WebTalk()
    (initialized,) = talk.result(talk.begin(), hello())
    (listening,) = talk.answer(initialized, 202)
    talk.answer(listening, status, media_type, b"hello")
    assert len(talk.found(ListeningEnded)) == 1
    talk.ask(ListToolsRequest())
    assert json.loads(talk.requests[-1].body)["method"] == "tools/list"


def test_messages_outside_of_requests_are_received() -> None:
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
