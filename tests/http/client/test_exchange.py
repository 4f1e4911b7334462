from __future__ import annotations

import pytest

from mcpio.errors import ConnectFailed, ConnectionLost, RequestError, UnexpectedResponse
from mcpio.events import OutgoingId
from mcpio.framing.sse import SseParser
from mcpio.http.client import (
    REDIRECTS,
    ClientExchange,
    Location,
    Purpose,
    header,
    headers_named,
    media_type,
    takes_any_event_type,
)
from mcpio.http.model import ResponseHead
from mcpio.profiles import Profile

JSON = ResponseHead(1, 400, [(b"content-type", b"Application/JSON; charset=utf-8"), (b"x", b"1"), (b"x", b"\xe9")])
PLAIN = ResponseHead(1, 400, [])


def call(purpose: Purpose = Purpose.ASK, body: bytes = b"", resumes: str | None = None) -> ClientExchange:
    made = ClientExchange(1, purpose, "/mcp", text=b"{}", requests=(OutgoingId(7),), resumes=resumes)
    made.begin(None, 0.0)
    made.body += body
    return made


@pytest.mark.req("HTTP-07", "HTTP-08", "HTTP-26", "HTTP-39")
def test_header_fields_of_a_request() -> None:
    asked = call()
    asked.begin("s", 1.0)
    assert asked.headers() == [
        (b"content-type", b"application/json"),
        (b"content-length", b"2"),
        (b"accept", b"application/json, text/event-stream"),
        (b"mcp-session-id", b"s"),
    ]
    assert call(Purpose.RESUME, resumes="caf\xe9").headers() == [
        (b"accept", b"text/event-stream"),
        (b"cache-control", b"no-store"),
        (b"last-event-id", b"caf\xc3\xa9"),
    ]
    assert call(Purpose.END).headers() == []
    assert [each.method for each in Purpose] == ["POST", "POST", "GET", "GET", "GET", "DELETE"]


def test_only_requests_without_a_body_may_go_out_twice_from_the_start() -> None:
    assert [each for each in Purpose if call(each).may_repeat] == [each for each in Purpose if each.method != "POST"]


@pytest.mark.req("RESUME-07")
@pytest.mark.parametrize(
    ("ids", "last"),
    [
        ([], "before"),
        (["a"], "a"),
        (["a", "b c"], "b c"),
        (["a", ""], None),
        ([" a"], None),
        (["a "], None),
        (["a\tb"], None),
        (["x" * 1024], "x" * 1024),
        (["x" * 1025], None),
    ],
)
def test_the_last_event_id_is_one_that_a_header_field_can_hold(ids: list[str], last: str | None) -> None:
    resumed = call(Purpose.RESUME, resumes="before")
    assert resumed.last_id == "before"
    resumed.parser = SseParser()
    for id in ids:
        resumed.parser.receive(f"id: {id}\ndata:\n\n".encode())
    assert resumed.last_id == last


def test_refusal_has_the_servers_error_or_its_text() -> None:
    error = call(body=b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no","data":2}}').refusal(JSON)
    assert isinstance(error, RequestError)
    assert (error.code, error.message, error.data) == (-1, "no", 2)
    for head, body in ((JSON, b"{"), (JSON, b"{}"), (PLAIN, b"no"), (JSON, b'{"jsonrpc":"2.0","id":7,"result":{}}')):
        assert isinstance(call(body=body).refusal(head), UnexpectedResponse)


def test_response_answers_its_request_only_with_its_id() -> None:
    assert call(body=b'{"jsonrpc":"2.0","id":7,"result":{}}').holds_answer(JSON)
    assert call(body=b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":""}}').holds_answer(JSON)
    assert not call(body=b'{"jsonrpc":"2.0","id":8,"result":{}}').holds_answer(JSON)
    assert not call(body=b'{"jsonrpc":"2.0","id":7,"result":{}}').holds_answer(PLAIN)
    assert not call(body=b'[{"jsonrpc":"2.0","id":7,"result":{}}]').holds_answer(JSON)


def test_broken_exchange_names_the_cause() -> None:
    known = ConnectFailed("refused")
    for purpose in (Purpose.ASK, Purpose.TELL):
        assert call(purpose).lost(known) is known
    cause = OSError("reset")
    error = call().lost(cause)
    assert isinstance(error, ConnectionLost)
    assert (error.reason, error.__cause__) == ("the exchange for a request broke off: reset", cause)
    resumed = call(Purpose.RESUME).lost(known)
    assert isinstance(resumed, ConnectionLost)
    assert resumed.__cause__ is known
    assert str(call().lost(None)) == "the exchange for a request broke off"


def test_unauthorized_error_names_the_challenges() -> None:
    head = ResponseHead(1, 401, [(b"www-authenticate", b"Bearer"), (b"www-authenticate", b"Basic")])
    error = call(body=b"log in").unauthorized(head)
    assert (error.status, error.challenges) == (401, ("Bearer", "Basic"))
    assert str(error).endswith("with status 401: Bearer; Basic")
    assert str(call(body=b"log in").unauthorized(PLAIN)).endswith(": log in")


@pytest.mark.parametrize(
    ("status", "challenges", "is_hinted"),
    [
        (401, [b'Bearer realm="x"'], True),
        (401, [b"Basic", b'dpop algs="ES256"'], True),
        (401, [], True),
        (401, [b"Basic"], False),
        (403, [b"Bearer"], False),
    ],
)
def test_refusal_says_how_to_give_a_token(status: int, challenges: list[bytes], is_hinted: bool) -> None:
    head = ResponseHead(1, status, [(b"www-authenticate", each) for each in challenges])
    error = call().unauthorized(head, is_without_auth=True)
    assert ("auth=OAuth()" in str(error)) is is_hinted
    assert str(error).endswith(error.hint)
    assert call().unauthorized(head).hint == ""


def test_header_fields_are_found_by_name() -> None:
    assert (header(JSON, b"x"), header(JSON, b"y"), headers_named(JSON, b"x")) == ("1", None, ["1", "\xe9"])
    assert (media_type(JSON), media_type(PLAIN)) == ("application/json", "")


def test_d12_some_dialects_give_messages_any_event_type() -> None:
    assert takes_any_event_type({Profile.ERLMCP, Profile.LSP_ALIASES})
    assert not takes_any_event_type({Profile.LSP_ALIASES})
    assert not takes_any_event_type(())


@pytest.mark.req("HTTP-38")
def test_only_redirects_that_repeat_the_message_are_followed() -> None:
    origin = Location.parse("http://a/mcp")
    for status in REDIRECTS:
        head = ResponseHead(1, status, [(b"location", b"/x")])
        assert (call().leads_to(head, origin) is None) is (status not in (307, 308))
        assert call(Purpose.LISTEN).leads_to(head, origin) == origin.at("/x")
    assert call().leads_to(ResponseHead(1, 307, [(b"location", b"//b/x")]), origin) is None
    assert call().leads_to(ResponseHead(1, 307, []), origin) == origin
