"""The HTTP client machine with servers that know only the transport of 2024-11-05."""

from __future__ import annotations

from typing import Any

import pytest
from webtalk import CALL, RESULT, Asked, WebTalk, hello

from mcpio.errors import (
    AuthorizationRequired,
    ConnectionLost,
    LocalProtocolError,
    RequestError,
    UnexpectedResponse,
)
from mcpio.events import CloseReason, ConnectionClosed, NotificationReceived
from mcpio.http.client import HttpClientOptions, MessageRefused
from mcpio.types import CustomNotification


def fallen_back(status: int = 405, **options: Any) -> tuple[WebTalk, Asked]:
    talk = WebTalk(url="http://localhost:8000/sse", **options)
    (everything,) = talk.answer(talk.begin(), status, "text/plain", b"not here")
    assert (everything.method, everything.headers["accept"]) == ("GET", "text/event-stream")
    return talk, everything


def opened(endpoint: str = "/messages/?session=1") -> tuple[WebTalk, Asked]:
    talk, everything = fallen_back()
    talk.stream(everything)
    (hi,) = talk.event(everything, None, "event: endpoint", f"data: {endpoint}")
    talk.answer(hi, 202, "text/plain", b"Accepted")
    (initialized,) = talk.event(everything, {"jsonrpc": "2.0", "id": 1, "result": hello("2024-11-05")})
    talk.answer(initialized, 202)
    return talk, everything


@pytest.mark.req("FALL-06", "HTTP-07")
@pytest.mark.parametrize("fall_back", [True, False])
def test_newer_transport_is_tried_first(fall_back: bool) -> None:
    talk = WebTalk(url="http://localhost:8000/sse", http=HttpClientOptions(fall_back=fall_back))
    hi = talk.begin()
    assert (hi.method, hi.target, hi.json["method"]) == ("POST", "/sse", "initialize")
    assert hi.headers["accept"] == "application/json, text/event-stream"
    assert hi.headers["content-type"] == "application/json"
    assert not {"mcp-session-id", "mcp-protocol-version"} & hi.headers.keys()
    talk.open(hi=hi)
    id = talk.ask(CALL)
    talk.result(talk.requests[-1], RESULT)
    assert talk.has_result(id)
    # The one GET is that of the newer transport, which is answered with 405 and asked for no endpoint.
    assert [(each.method, each.target) for each in talk.requests] == [
        ("POST", "/sse"),
        ("POST", "/sse"),
        ("GET", "/sse"),
        ("POST", "/sse"),
    ]


@pytest.mark.req("FALL-07", "FALL-01", "FALL-02", "FALL-03")
@pytest.mark.parametrize("status", [400, 404, 405])
@pytest.mark.parametrize(
    ("endpoint", "target"),
    [
        ("/messages/?session=1", "/messages/?session=1"),
        ("messages", "/messages"),
        ("?x=1", "/sse?x=1"),
        ("http://localhost:8000/m", "/m"),
    ],
)
def test_conversation_works_over_the_older_transport(status: int, endpoint: str, target: str) -> None:
    talk, everything = fallen_back(status)
    hi = talk.requests[0]
    talk.stream(everything)
    (again,) = talk.event(everything, None, "event: endpoint", f"data: {endpoint}")
    assert (again.method, again.target, again.body) == ("POST", target, hi.body)
    assert talk.answer(again, 202) == []
    (initialized,) = talk.event(everything, {"jsonrpc": "2.0", "id": 1, "result": hello("2024-11-05")})
    assert initialized.target == target
    id = talk.ask(CALL)
    # Not beside ``initialized``.
    (asked,) = talk.answer(initialized, 200)
    assert (asked.target, asked.json["method"]) == (target, "tools/call")
    assert talk.answer(asked, 202) == []
    talk.event(everything, {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    talk.event(everything, {"jsonrpc": "2.0", "id": asked.json["id"], "result": RESULT})
    assert talk.has_result(id)
    assert len(talk.found(NotificationReceived)) == 1
    assert [each.method for each in talk.requests].count("GET") == 1


def test_the_answer_may_come_before_the_post_is_acknowledged() -> None:
    talk, everything = opened()
    id = talk.ask(CALL)
    asked = talk.requests[-1]
    talk.event(everything, {"jsonrpc": "2.0", "id": asked.json["id"], "result": RESULT})
    assert talk.has_result(id)
    talk.answer(asked, 202)
    assert talk.machine.next_deadline() is None


def test_second_endpoint_event_is_ignored() -> None:
    talk, everything = opened()
    assert talk.event(everything, None, "event: endpoint", "data: /other") == []
    talk.ask(CALL)
    assert talk.requests[-1].target == "/messages/?session=1"


@pytest.mark.req("FALL-02")
@pytest.mark.parametrize(
    "endpoint", ["http://example.com/m", "https://localhost:8000/m", "//localhost:9/m", "http://["]
)
def test_an_endpoint_of_another_origin_is_refused(endpoint: str) -> None:
    talk, everything = fallen_back()
    talk.stream(everything)
    assert talk.event(everything, None, "event: endpoint", f"data: {endpoint}") == []
    assert "an endpoint of another origin" in str(talk.error(1))
    assert talk.cut == [everything.number]
    assert talk.machine.closed


@pytest.mark.req("FALL-07")
@pytest.mark.parametrize(("status", "media_type"), [(404, "text/html"), (200, "text/html"), (500, None), (405, None)])
def test_failed_fallback_raises_the_first_error(status: int, media_type: str | None) -> None:
    talk, everything = fallen_back(404)
    talk.answer(everything, status, media_type)
    error = talk.error(1)
    assert isinstance(error, UnexpectedResponse)
    assert (error.status, error.text) == (404, "not here")
    (closed,) = talk.found(ConnectionClosed)
    assert closed.reason is CloseReason.LOST


def test_protocol_error_is_raised_if_the_older_transport_fails() -> None:
    talk = WebTalk()
    refusal = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "wrong header"}}
    (everything,) = talk.answer_json(talk.begin(), refusal, 400)
    talk.answer(everything, 405)
    error = talk.error(1)
    assert isinstance(error, RequestError)
    assert error.message == "wrong header"


@pytest.mark.req("FALL-07")
def test_error_response_to_initialize_prevents_the_fallback() -> None:
    talk = WebTalk()
    refusal = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no"}}
    assert talk.answer_json(talk.begin(), refusal, 400) == []
    assert isinstance(talk.error(1), RequestError)


@pytest.mark.req("FALL-07")
@pytest.mark.parametrize("status", [401, 403, 500, 415])
def test_other_statuses_do_not_lead_to_the_older_transport(status: int) -> None:
    talk = WebTalk()
    assert talk.answer(talk.begin(), status) == []
    assert isinstance(talk.error(1), AuthorizationRequired if status in (401, 403) else UnexpectedResponse)


def test_fall_back_false_raises_the_first_error() -> None:
    talk = WebTalk(http=HttpClientOptions(fall_back=False))
    assert talk.answer(talk.begin(), 404) == []
    assert isinstance(talk.error(1), UnexpectedResponse)


@pytest.mark.parametrize("breaks", [True, False])
def test_stream_that_ends_before_its_endpoint_event_fails(breaks: bool) -> None:
    talk, everything = fallen_back()
    talk.stream(everything)
    if breaks:
        talk.reset(everything, OSError("broken"))
    else:
        talk.end(everything)
    assert isinstance(talk.error(1), ConnectionLost)
    assert talk.machine.closed


@pytest.mark.parametrize("breaks", [True, False])
def test_the_end_of_the_stream_is_the_end_of_the_connection(breaks: bool) -> None:
    talk, everything = opened()
    id = talk.ask(CALL)
    if breaks:
        talk.reset(everything, OSError("broken"))
    else:
        talk.end(everything)
    assert isinstance(talk.error(id), ConnectionLost)
    (closed,) = talk.found(ConnectionClosed)
    assert closed.reason is CloseReason.LOST
    assert talk.machine.closed


def test_refused_message_fails_alone() -> None:
    talk, everything = opened()
    first, second = talk.ask(CALL), talk.ask(CALL)
    talk.answer(talk.requests[-2], 500)
    assert isinstance(talk.error(first), UnexpectedResponse)
    talk.answer(talk.requests[-1], 202)
    talk.event(everything, {"jsonrpc": "2.0", "id": second, "result": RESULT})
    assert talk.has_result(second)
    talk.connection.send_notification(CustomNotification("a/b"))
    (told,) = talk.step()
    talk.answer(told, 400)
    assert len(talk.found(MessageRefused)) == 1


def test_refused_handshake_ends_the_connection() -> None:
    talk, everything = fallen_back()
    talk.stream(everything)
    (hi,) = talk.event(everything, None, "event: endpoint", "data: /m")
    talk.answer(hi, 404, mcp_session_id="ignored")
    assert isinstance(talk.error(1), UnexpectedResponse)
    assert talk.machine.closed


def test_ping_before_the_endpoint_event_does_not_delay_closing() -> None:
    talk, everything = fallen_back()
    talk.stream(everything)
    assert talk.event(everything, {"jsonrpc": "2.0", "id": 1, "method": "ping"}) == []
    talk.connection.close(0.0)
    assert talk.step() == []
    assert talk.machine.closed


def test_closing_ends_the_stream() -> None:
    talk, everything = opened()
    talk.connection.close(0.0)
    assert talk.step() == []
    assert talk.cut == [everything.number]
    assert talk.machine.closed


def test_a_session_by_the_older_transport_cannot_move() -> None:
    talk, _ = opened()
    assert talk.machine.has_session
    with pytest.raises(LocalProtocolError, match="ends with its stream"):
        talk.machine.save()
