from __future__ import annotations

import pytest

from mcpio.http.checks import Checks, ParsedRequest, cors_headers, preflight_headers
from mcpio.http.model import Cors, HttpOptions, RequestHead


def headers(origin: str | None, cors: Cors | None) -> dict[bytes, bytes]:
    fields = [] if origin is None else [(b"origin", origin.encode())]
    return dict(cors_headers(ParsedRequest(RequestHead(1, "POST", "/mcp", fields)), HttpOptions(cors=cors)))


def test_no_cors_headers_by_default() -> None:
    assert headers("https://a.example", None) == {}
    assert preflight_headers(Checks((), ("POST", "GET", "DELETE"), HttpOptions(), 0)) == ()


def test_star_allows_every_origin() -> None:
    found = headers("https://a.example", Cors())
    assert found[b"access-control-allow-origin"] == b"*"
    exposed = found[b"access-control-expose-headers"].split(b", ")
    assert {b"mcp-session-id", b"mcp-protocol-version", b"www-authenticate", b"dpop-nonce"} <= set(exposed)


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [("https://A.example", b"https://A.example"), ("https://b.example", None), ("null", None), (None, None)],
)
def test_only_allowed_origins_get_cors_headers(origin: str | None, allowed: bytes | None) -> None:
    found = headers(origin, Cors(origins=frozenset({"https://a.example"})))
    assert found.get(b"access-control-allow-origin") == allowed
    assert (b"vary" in found) is (allowed is not None)


def test_preflight_headers_name_methods_fields_and_age() -> None:
    found = dict(preflight_headers(Checks((), ("POST", "GET", "DELETE"), HttpOptions(cors=Cors(max_age=60)), 0)))
    assert found[b"access-control-allow-methods"] == b"POST, GET, DELETE"
    assert {b"mcp-session-id", b"last-event-id", b"authorization", b"dpop"} <= set(
        found[b"access-control-allow-headers"].split(b", ")
    )
    assert found[b"access-control-max-age"] == b"60"
