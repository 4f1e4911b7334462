"""How a server answers the opening handshake."""

from __future__ import annotations

from typing import Any

import pytest

from mcpio.http.checks import Rejection
from mcpio.http.model import Denied, HostPolicy, HttpOptions, RequestHead
from mcpio.websocket import AcceptedHandshake, WebSocketOptions, answer_opening, asks_for_websocket
from mcpio.websocket.frames import OFFER

USUAL = {
    "host": "localhost:8000",
    "upgrade": "websocket",
    "connection": "Upgrade",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    "sec-websocket-version": "13",
    "sec-websocket-protocol": "mcp",
}
LOCAL = HttpOptions(policy=HostPolicy.for_address("127.0.0.1", 8000))


def head(method: str = "GET", principal: Any = None, **fields: str | None) -> RequestHead:
    """Return a request; a field that is ``None`` is left out."""
    given = {**USUAL, **{name.replace("_", "-"): value for name, value in fields.items()}}
    headers = tuple((name.encode(), value.encode()) for name, value in given.items() if value is not None)
    return RequestHead(1, method, "/mcp", headers, principal)


def answered(request: RequestHead, *spoken: str, **options: Any) -> AcceptedHandshake | Rejection:
    return answer_opening(
        request, http=LOCAL, options=WebSocketOptions(**options), subprotocols=spoken or ("mcp", "mcp.v1")
    )


def accepted(request: RequestHead, *spoken: str, **options: Any) -> AcceptedHandshake:
    answer = answered(request, *spoken, **options)
    assert isinstance(answer, AcceptedHandshake)
    return answer


@pytest.mark.req("XPORT-04")
def test_handshake_example_of_the_specification() -> None:
    assert accepted(head()) == AcceptedHandshake(
        (
            (b"upgrade", b"websocket"),
            (b"connection", b"Upgrade"),
            (b"sec-websocket-accept", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
            (b"sec-websocket-protocol", b"mcp"),
        ),
        "mcp",
        None,
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"upgrade": "h2c, WebSocket"},
        {"connection": "keep-alive, upgrade"},
        {"origin": "http://localhost:8000"},
        {"origin": "https://127.0.0.1"},
        {"content_length": "0"},
        {"sec_websocket_protocol": "chat, mcp"},
    ],
)
def test_equivalent_requests_are_accepted(fields: dict[str, str]) -> None:
    assert accepted(head(**fields)).subprotocol == "mcp"


@pytest.mark.req("XPORT-04")
@pytest.mark.parametrize(
    ("offered", "spoken", "chosen"),
    [
        ("mcp.v1, mcp", ("mcp", "mcp.v1"), "mcp"),
        ("mcp.v1", ("mcp", "mcp.v1"), "mcp.v1"),
        ("mcp", ("mcp.v1", "mcp"), "mcp"),
    ],
)
def test_the_best_subprotocol_of_the_server_is_chosen(offered: str, spoken: tuple[str, ...], chosen: str) -> None:
    assert accepted(head(sec_websocket_protocol=offered), *spoken).subprotocol == chosen


@pytest.mark.parametrize("offered", [None, "chat"])
def test_a_server_without_subprotocols(offered: str | None) -> None:
    answer = answer_opening(
        head(sec_websocket_protocol=offered), http=LOCAL, options=WebSocketOptions(subprotocols=()), subprotocols=()
    )
    assert isinstance(answer, AcceptedHandshake)
    assert answer.subprotocol is None
    assert b"sec-websocket-protocol" not in dict(answer.headers)


@pytest.mark.parametrize(("compression", "bits"), [(True, 15), (False, None)])
def test_compression(compression: bool, bits: int | None) -> None:
    answer = accepted(head(sec_websocket_extensions="permessage-deflate"), compression=compression)
    assert answer.window_bits == bits
    assert dict(answer.headers).get(b"sec-websocket-extensions") == (OFFER.encode() if compression else None)
    assert accepted(head(sec_websocket_extensions="x-other"), compression=compression).window_bits is None


@pytest.mark.req("XPORT-04", "HTTP-02", "HTTP-04")
@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (head(host="evil.example"), 403),
        (head(host=None), 403),
        (head(origin="https://evil.example"), 403),
        (head(origin="null"), 403),
        (head("POST"), 405),
        (head(principal=Denied()), 401),
        (head(principal=Denied(403, "No")), 403),
        (head(upgrade=None), 426),
        (head(upgrade="h2c"), 426),
        (head(sec_websocket_version="8"), 426),
        (head(sec_websocket_version=None), 426),
        (head(sec_websocket_version="13, 8"), 426),
        (head(connection=None), 400),
        (head(connection="close"), 400),
        (head(sec_websocket_key=None), 400),
        (head(sec_websocket_key="short"), 400),
        (head(sec_websocket_key="AAAA"), 400),
        (head(sec_websocket_key="dGhlIHNhbXBsZSBub25jZQ==, dGhlIHNhbXBsZSBub25jZQ=="), 400),
        (head(content_length="5"), 400),
        (head(transfer_encoding="chunked"), 400),
        (head(sec_websocket_protocol=None), 400),
        (head(sec_websocket_protocol="chat, MCP"), 400),
    ],
)
def test_invalid_openings_are_refused(request_head: RequestHead, status: int) -> None:
    answer = answered(request_head)
    assert isinstance(answer, Rejection)
    assert answer.status == status
    if status == 426:
        assert answer.headers == ((b"upgrade", b"websocket"), (b"sec-websocket-version", b"13"))
    if status == 405:
        assert answer.headers == ((b"allow", b"GET"),)


def test_host_is_checked_before_the_principal() -> None:
    answer = answered(head(host="evil.example", principal=Denied(), upgrade=None))
    assert isinstance(answer, Rejection)
    assert answer.status == 403


def test_repeated_key_is_refused_and_repeated_protocol_joined() -> None:
    request = RequestHead(1, "GET", "/mcp", (*head().headers, (b"sec-websocket-protocol", b"mcp.v1")))
    assert accepted(request, "mcp.v1").subprotocol == "mcp.v1"
    twice = RequestHead(1, "GET", "/mcp", (*head().headers, (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ==")))
    assert isinstance(answered(twice), Rejection)


def test_upgrade_requests_are_recognised() -> None:
    assert asks_for_websocket(head())
    assert asks_for_websocket(head(upgrade="h2c, WebSocket"))
    assert not asks_for_websocket(head("POST"))
    assert not asks_for_websocket(head(upgrade="websockets"))
    assert not asks_for_websocket(head(upgrade=None))
