from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

import mcpio.errors
from mcpio.errors import (
    AuthorizationRequired,
    CapabilityMissing,
    ConnectFailed,
    ConnectionLost,
    ErrorCode,
    InsufficientScope,
    InvalidMessage,
    LocalProtocolError,
    McpError,
    MessageTooLarge,
    NoBackChannel,
    OutputFull,
    ProtocolError,
    Refusal,
    RemoteProtocolError,
    RequestCancelled,
    RequestError,
    RequestTimeout,
    SamplingRejected,
    SkillChanged,
    ToolError,
    TooManyRounds,
    UnexpectedResponse,
    URLElicitationRequired,
    WebSocketClosed,
)
from mcpio.refusals import RefusalCode
from mcpio.types import ElicitURLRequest

VISIT = ElicitURLRequest("Log in", "https://example.com", "1")

ONE_OF_EACH = [
    SkillChanged("skill://a/SKILL.md", "digest", "other bytes"),
    SamplingRejected(),
    URLElicitationRequired([VISIT]),
    AuthorizationRequired("log in", status=403, challenges=["Bearer"]),
    CapabilityMissing("the client takes no forms", ("elicitation", "form")),
    ConnectFailed("no such program"),
    ConnectionLost("closed by the peer"),
    InsufficientScope(["files:write", "files:read"]),
    InvalidMessage("params.items[0].size", "expected a number", "2025-11-25"),
    LocalProtocolError("not now"),
    MessageTooLarge(2000, 1000),
    OutputFull(2000, 1000),
    NoBackChannel("closed"),
    Refusal(1001, "no"),
    RemoteProtocolError("not a message"),
    RequestCancelled("tools/call", "bored"),
    RequestError(-32601, "Method not found"),
    RequestTimeout("tools/call", 1.5),
    ToolError("the file is not there"),
    TooManyRounds("tools/call", 10),
    UnexpectedResponse(502, "text/html in answer to a request", "<html>"),
    WebSocketClosed(1008, "expired"),
]


def test_every_failure_is_one_exception_of_one_tree() -> None:
    classes = {getattr(mcpio.errors, name) for name in mcpio.errors.__all__} - {ErrorCode}
    assert all(issubclass(cls, McpError) for cls in classes)
    assert {type(error) for error in ONE_OF_EACH} == classes - {McpError, ProtocolError}


@pytest.mark.req("LIFE-18")
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (InvalidMessage("a.b", "expected a string"), "a.b: expected a string"),
        (InvalidMessage("", "expected an object"), "expected an object"),
        (RequestError(-5, "no"), "no (-5)"),
        (RequestTimeout("tools/call", 60.0), "tools/call: no answer within 60 s"),
        (RequestTimeout("tools/call", 0.25, "idle"), "tools/call: no answer within 0.25 s without progress"),
        (RequestCancelled("ping"), "ping: cancelled"),
        (RequestCancelled("ping", "bored"), "ping: cancelled (bored)"),
        (ConnectionLost("the channel broke"), "the channel broke"),
        (Refusal(1089, "no"), "no (1089)"),
        (UnexpectedResponse(502, "nothing"), "status 502: nothing"),
        (WebSocketClosed(1008, "expired"), "the WebSocket was closed with code 1008: expired"),
        (WebSocketClosed(4000), "the WebSocket was closed with code 4000"),
        (WebSocketClosed(1006), "the WebSocket was closed without a close frame"),
        (UnexpectedResponse(502, "text/html", "<html>"), "status 502: text/html: '<html>'"),
    ],
)
def test_error_text_is_one_line(error: McpError, text: str) -> None:
    assert str(error) == text


def test_error_has_its_attributes() -> None:
    invalid = InvalidMessage("a", "b", "2025-06-18")
    assert (invalid.path, invalid.reason, invalid.revision) == ("a", "b", "2025-06-18")
    answered = RequestError(1, "m", {"x": 1})
    assert (answered.code, answered.message, answered.data, RequestError(1, "m").data) == (1, "m", {"x": 1}, None)
    timeout = RequestTimeout("m", 3.0, "idle")
    assert (timeout.method, timeout.seconds, timeout.kind) == ("m", 3.0, "idle")
    cancelled = RequestCancelled("m", "r")
    assert (cancelled.method, cancelled.reason) == ("m", "r")
    assert ConnectionLost("r").reason == "r"


@pytest.mark.parametrize("cls", [LocalProtocolError, RemoteProtocolError])
def test_protocol_error_has_code_and_status(cls: type[ProtocolError]) -> None:
    error = cls("wrong")
    assert (str(error), error.code, error.http_status) == ("wrong", ErrorCode.INVALID_REQUEST, 400)
    error = cls("wrong", code=-32700, http_status=413)
    assert (error.code, error.http_status) == (-32700, 413)


def test_protocol_error_is_abstract() -> None:
    with pytest.raises(TypeError, match="ProtocolError is abstract"):
        ProtocolError("whose?")


def test_refusal_has_a_code_in_range_and_a_hint() -> None:
    refusal = Refusal(1001, "busy", retryable=True, data={"x": 1})
    assert (refusal.code, refusal.message, refusal.retryable, refusal.data) == (1001, "busy", True, {"x": 1})
    for code in (1000, 1090, -32603, 0):
        with pytest.raises(ValueError, match="a refusal code must lie between 1001 and 1089"):
            Refusal(code, "no")


def test_e7_refusal_takes_defaults_from_the_table() -> None:
    refusal = Refusal(RefusalCode.RATE_LIMIT_EXCEEDED)
    assert type(refusal.code) is int
    assert str(refusal) == "Rate limit exceeded (1056)"
    error = refusal.as_error()
    assert (error.code, error.message) == (1056, "Rate limit exceeded")
    assert error.data == {"category": "rate-limit", "http_status": 429, "severity": "error", "retryable": True}
    refusal = Refusal(1059, "come back tomorrow", retryable=True, retry_after=3600, hint="or pay", data={"left": 0})
    assert refusal.as_error().data == {
        "left": 0,
        "category": "rate-limit",
        "http_status": 429,
        "severity": "error",
        "retryable": True,
        "retry_after": 3600,
        "hint": "or pay",
    }


def test_refusal_with_an_unassigned_code_needs_a_message() -> None:
    refusal = Refusal(1006, "the moon is full", data=["a"])
    assert refusal.as_error().data == {"data": ["a"], "category": "queue", "severity": "error", "retryable": False}
    with pytest.raises(ValueError, match="message must be given for the code 1006"):
        Refusal(1006)


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan, "5"])
def test_refusal_with_an_invalid_retry_after_is_refused(seconds: Any) -> None:
    with pytest.raises(ValueError, match="retry_after must be a number of seconds"):
        Refusal(1056, retry_after=seconds)


@pytest.mark.parametrize(
    ("error", "is_refusal", "is_retryable"),
    [
        (RequestError(1001, "m"), True, True),
        (RequestError(1003, "m"), True, False),
        (RequestError(1006, "unassigned"), True, False),
        (RequestError(1089, "m"), True, True),
        (RequestError(1056, "m", {"retryable": False}), True, False),
        (RequestError(1056, "m", {"retryable": "no"}), True, True),
        (RequestError(1056, "m", ["retryable"]), True, True),
        (RequestError(1014, "m", {"retryable": True}), True, True),
        (RequestError(1000, "m"), False, False),
        (RequestError(1090, "m"), False, False),
        (RequestError(-32603, "m"), False, False),
        (RequestError(-32603, "m", {"retryable": True}), False, True),
    ],
)
def test_e7_data_of_the_peer_overrides_the_table(error: RequestError, is_refusal: bool, is_retryable: bool) -> None:
    assert (error.is_refusal(), error.is_retryable()) == (is_refusal, is_retryable)


@pytest.mark.parametrize(
    ("data", "seconds"),
    [
        ({"retry_after": 1.5}, 1.5),
        ({"retryAfter": 2}, 2),
        ({"retry_after": "x", "retryAfter": 2}, 2),
        ({"retry_after": -1}, None),
        ({"retry_after": True}, None),
        ({}, None),
        (None, None),
        ("later", None),
    ],
)
def test_retry_after_is_read_from_the_data(data: Any, seconds: float | None) -> None:
    assert RequestError(1056, "m", data).retry_after == seconds


@pytest.mark.req("RPC-15", "RPC-20")
def test_the_codes_of_the_protocol() -> None:
    codes = {name: value for name, value in vars(ErrorCode).items() if name.isupper()}
    assert codes == {
        "PARSE_ERROR": -32700,
        "INVALID_REQUEST": -32600,
        "METHOD_NOT_FOUND": -32601,
        "INVALID_PARAMS": -32602,
        "INTERNAL_ERROR": -32603,
        "RESOURCE_NOT_FOUND": -32002,
        "URL_ELICITATION_REQUIRED": -32042,
        "HEADER_MISMATCH": -32020,
        "MISSING_CLIENT_CAPABILITY": -32021,
        "UNSUPPORTED_VERSION": -32022,
        "USER_REJECTED": -1,
    }


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda error: type(error).__name__)
def test_an_error_crosses_processes(error: McpError) -> None:
    again: Any = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


@pytest.mark.req("SAMP-12")
def test_sampling_rejected_has_code_minus_1() -> None:
    assert str(SamplingRejected()) == "User rejected sampling request (-1)"
    error = SamplingRejected("not this one", {"a": 1})
    assert isinstance(error, RequestError)
    assert (error.code, error.message, error.data) == (-1, "not this one", {"a": 1})


@pytest.mark.req("ELIC-17")
def test_url_elicitation_required_needs_urls_with_ids() -> None:
    error = URLElicitationRequired(iter([VISIT]), "Log in first")
    assert isinstance(error, RequestError)
    assert (error.code, error.message, error.elicitations) == (-32042, "Log in first", (VISIT,))
    assert URLElicitationRequired([VISIT], data={"x": 1}).data == {"x": 1}
    said = {"mode": "url", "message": "Log in", "url": "https://example.com", "elicitationId": "1"}
    assert error.data == {"elicitations": [said]}
    with pytest.raises(ValueError, match="elicitations must hold at least one request"):
        URLElicitationRequired([])
    with pytest.raises(ValueError, match="each must have an elicitation_id"):
        URLElicitationRequired([ElicitURLRequest("Log in", "https://example.com")])


def test_error_of_a_closing_peer_says_that_the_request_never_ran() -> None:
    closing = RequestError(ErrorCode.INVALID_REQUEST, "Invalid request: closing", {"reason": "closing"})
    assert closing.is_closing()
    assert closing.is_retryable()
    for other in (RequestError(ErrorCode.INVALID_REQUEST, "no"), RequestError(1001, "no", {"reason": "closing"})):
        assert not other.is_closing()
