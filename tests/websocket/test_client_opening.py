"""How a client performs the opening handshake, and what it makes of the answers."""

from __future__ import annotations

from typing import Any

import h11
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpio.errors import AuthorizationRequired, McpError, RemoteProtocolError, UnexpectedResponse
from mcpio.http.client import Location
from mcpio.http.model import HttpOptions, RequestHead
from mcpio.websocket import AcceptedHandshake, ClientOpening, CompletedHandshake, WebSocketOptions, answer_opening
from mcpio.websocket.frames import OFFER

URL = Location.parse("http://localhost:8000/mcp?x=1")
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
USUAL = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Accept": ACCEPT,
    "Sec-WebSocket-Protocol": "mcp",
}


def opening(*spoken: str, **options: Any) -> ClientOpening:
    return ClientOpening(
        URL,
        WebSocketOptions(**options),
        subprotocols=spoken or ("mcp", "mcp.v1"),
        headers={"Authorization": "Bearer x"},
        entropy=lambda _: b"the sample nonce",
    )


def answer(status: str = "101 Switching Protocols", body: bytes = b"", **fields: str | None) -> bytes:
    given = {**USUAL, **{name.replace("_", "-"): value for name, value in fields.items()}}
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in given.items() if value is not None)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def outcome(*data: bytes | None, client: ClientOpening | None = None) -> CompletedHandshake | McpError | None:
    found = client or opening()
    for each in data:
        found.receive_data(each)
    return found.outcome()


def test_opening_request_is_well_formed() -> None:
    assert opening().request == (
        b"GET /mcp?x=1 HTTP/1.1\r\nHost: localhost:8000\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: mcp, mcp.v1\r\nAuthorization: Bearer x\r\n\r\n"
    )
    assert f"Sec-WebSocket-Extensions: {OFFER}".encode() in opening(compression=True).request


@pytest.mark.req("XPORT-04")
@pytest.mark.parametrize("compression", [True, False])
def test_client_and_server_agree_on_the_opening(compression: bool) -> None:
    client, http = opening(compression=compression), h11.Connection(h11.SERVER)
    http.receive_data(client.request)
    request = http.next_event()
    assert isinstance(request, h11.Request)
    head = RequestHead(1, "GET", request.target.decode(), tuple(request.headers))
    chosen = WebSocketOptions(compression=True)
    found = answer_opening(head, http=HttpOptions(), options=chosen, subprotocols=("mcp",))
    assert isinstance(found, AcceptedHandshake)
    lines = [b"HTTP/1.1 101 ", *(name + b": " + value for name, value in found.headers)]
    bits = 15 if compression else None
    assert outcome(b"\r\n".join(lines) + b"\r\n\r\nrest", client=client) == CompletedHandshake("mcp", bits, b"rest")
    assert found.window_bits == bits


def test_equivalent_answers_are_accepted() -> None:
    assert outcome(b"HTTP/1.1 103 Early Hints\r\n\r\n", b"", answer()) == CompletedHandshake("mcp", None, b"")
    assert outcome(answer(Connection="keep-alive, upgrade", Upgrade="WebSocket")) == CompletedHandshake(
        "mcp", None, b""
    )
    assert outcome(answer(Sec_WebSocket_Protocol="mcp.v1", body=b"\x81")) == CompletedHandshake("mcp.v1", None, b"\x81")


def test_client_without_subprotocols_sends_no_field() -> None:
    client = ClientOpening(URL, WebSocketOptions(), subprotocols=(), headers={}, entropy=lambda _: b"the sample nonce")
    assert b"Protocol" not in client.request
    assert outcome(answer(Sec_WebSocket_Protocol=None), client=client) == CompletedHandshake(None, None, b"")


@pytest.mark.req("XPORT-04")
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"Upgrade": "h2c"}, "the upgrade is not to WebSocket"),
        ({"Upgrade": None}, "the upgrade is not to WebSocket"),
        ({"Connection": "close"}, "the upgrade is not to WebSocket"),
        ({"Sec_WebSocket_Accept": "x"}, "Sec-WebSocket-Accept does not fit the request"),
        ({"Sec_WebSocket_Accept": None}, "Sec-WebSocket-Accept does not fit the request"),
        ({"Sec_WebSocket_Protocol": None}, "the subprotocol is None, and mcp or mcp.v1 was offered"),
        ({"Sec_WebSocket_Protocol": "chat"}, "the subprotocol is 'chat', and mcp or mcp.v1 was offered"),
        ({"Sec_WebSocket_Protocol": "mcp, mcp.v1"}, "the subprotocol is 'mcp, mcp.v1', and mcp or mcp.v1 was offered"),
        ({"Sec_WebSocket_Extensions": OFFER}, "the server uses an extension that was not offered"),
    ],
)
def test_invalid_upgrade_fails(fields: dict[str, Any], reason: str) -> None:
    error = outcome(answer(**fields))
    assert isinstance(error, UnexpectedResponse)
    assert (error.status, error.reason) == (101, reason)


def test_invalid_compression_answer_fails() -> None:
    data = answer(Sec_WebSocket_Extensions="permessage-deflate")
    error = outcome(data, client=opening(compression=True))
    assert isinstance(error, UnexpectedResponse)


def test_refusal_says_how_to_give_a_token() -> None:
    client = ClientOpening(
        URL, WebSocketOptions(), subprotocols=["mcp"], headers={}, entropy=lambda _: b"the sample nonce"
    )
    error = outcome(answer("401 Unauthorized", WWW_Authenticate="Bearer", Content_Length="0"), client=client)
    assert "give auth=OAuth()" in str(error)


def test_repeated_field_in_the_answer_fails() -> None:
    twice = answer().replace(b"\r\n\r\n", b"\r\nSec-WebSocket-Protocol: mcp\r\n\r\n")
    assert isinstance(outcome(twice), UnexpectedResponse)


@pytest.mark.parametrize(("status", "challenge"), [("401 Unauthorized", "Bearer realm=x"), ("403 Forbidden", None)])
def test_status_401_or_403_raises_authorization_required(status: str, challenge: str | None) -> None:
    error = outcome(answer(status, b"who?", WWW_Authenticate=challenge, Content_Length="4"))
    assert isinstance(error, AuthorizationRequired)
    assert error.hint == ""
    assert error.status == int(status[:3])
    assert error.challenges == (() if challenge is None else (challenge,))
    assert (challenge or "'who?'") in str(error)


@pytest.mark.parametrize(
    ("data", "status", "text"),
    [
        ([answer("404 Not Found", b"gone", Content_Length="4")], 404, "gone"),
        ([answer("200 OK", b"gone", Content_Length=None), None], 200, "gone"),
        ([answer("426 Upgrade Required", b"x" * 2000, Content_Length="9999")], 426, "x" * 1024),
        ([answer("302 Found", Location="http://elsewhere/", Content_Length="0")], 302, ""),
        ([answer("500 Oops", b"ab", Content_Length="9"), None], 500, "ab"),
        ([answer("500 Oops", b"ab", Content_Length="9"), b"cd", b"efghi", b"late"], 500, "abcdefghi"),
    ],
)
def test_answer_without_an_upgrade_fails(data: list[bytes | None], status: int, text: str) -> None:
    error = outcome(*data)
    assert isinstance(error, UnexpectedResponse)
    assert (error.status, error.text) == (status, text)


@pytest.mark.parametrize(
    "data", [[None], [b"HTTP/1.1 10", None], [b"SSH-2.0-x\r\n\r\n"], [b"x" * 100_000], [b"\0\n\n"]]
)
def test_answer_that_is_not_http_fails(data: list[bytes | None]) -> None:
    assert isinstance(outcome(*data), RemoteProtocolError)


def test_refusal_with_an_incomplete_body_has_an_outcome() -> None:
    client = opening()
    before = client.is_refused
    assert outcome(b"HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\nno", client=client) is None
    assert (before, client.is_refused) == (False, True)
    error = outcome(None, client=client)
    assert isinstance(error, UnexpectedResponse)
    assert (error.status, error.text) == (503, "no")


def test_incomplete_answer_has_no_outcome() -> None:
    assert outcome(b"", b"HTTP/1.1 101 X\r\n") is None


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from([answer()[:50], answer()[50:], b"\r\n\r\n"]))))
def test_connection_end_during_the_opening_has_an_outcome(data: list[bytes]) -> None:
    assert outcome(*data, None) is not None


@given(st.integers(0, len(answer())))
def test_any_split_of_the_answer_gives_the_same_outcome(cut: int) -> None:
    data = answer(body=b"rest")
    found = outcome(data[:cut], data[cut:])
    assert isinstance(found, CompletedHandshake)
    assert (found.subprotocol, found.window_bits) == ("mcp", None)
