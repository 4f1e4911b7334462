from __future__ import annotations

import json
from typing import Any

import pytest

from mcpio.http.checks import (
    HEALTH_CHECKS,
    LEGACY_CHECKS,
    MCP_CHECKS,
    Checks,
    ParsedRequest,
    Rejection,
    acceptable_answers,
    first_failure,
    rejection_body,
    too_large,
)
from mcpio.http.model import Answers, Cors, Denied, HostPolicy, HttpOptions, RequestHead

GOOD = {"content_type": "application/json", "accept": "application/json, text/event-stream"}
LOCAL = HostPolicy.for_address("127.0.0.1", 8000)


def request(
    method: str = "POST", target: str = "/mcp", *more: tuple[str, str], head: Any = None, **fields: str
) -> ParsedRequest:
    headers = [*fields.items(), *more]
    encoded = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers]
    return ParsedRequest(RequestHead(1, method, target, encoded, **(head or {})))


def rules(ladder: Any = MCP_CHECKS, **options: Any) -> Checks:
    return Checks(ladder, ("POST", "GET", "DELETE"), HttpOptions(**options), 1000)


def broken(found: ParsedRequest, ladder: Any = MCP_CHECKS, **options: Any) -> tuple[int, str] | None:
    rejection = first_failure(found, rules(ladder, **options))
    return None if rejection is None else (rejection.status, rejection.message)


def status(found: ParsedRequest, ladder: Any = MCP_CHECKS, **options: Any) -> int:
    rejection = broken(found, ladder, **options)
    return 200 if rejection is None else rejection[0]


def test_path_and_query_are_split() -> None:
    found = request("GET", "/mcp?a=1?b")
    assert (found.path, found.query) == ("/mcp", "a=1?b")
    assert (request("GET", "/mcp").query, request("GET", "/mcp").host) == ("", None)


def test_unknown_fields_are_ignored_and_repeated_ones_joined() -> None:
    found = request("POST", "/mcp", ("accept", "text/event-stream"), user_agent="x", accept="application/json")
    assert found.accept == "application/json, text/event-stream"


@pytest.mark.parametrize("scheme", ["http", "HTTPS"])
def test_host_of_absolute_target_replaces_the_host_field(scheme: str) -> None:
    found = request("GET", f"{scheme}://localhost:8000/mcp?a=1", host="evil.example")
    assert (found.path, found.query, found.host) == ("/mcp", "a=1", "localhost:8000")
    assert status(request("POST", f"{scheme}://localhost:8000/mcp", host="evil.example", **GOOD), policy=LOCAL) == 200
    assert status(request("POST", f"{scheme}://evil.example/mcp", host="localhost:8000", **GOOD), policy=LOCAL) == 403
    assert (
        status(request("POST", f"{scheme}://a@localhost:8000/mcp", host="localhost:8000", **GOOD), policy=LOCAL) == 403
    )


@pytest.mark.parametrize(("target", "path"), [("*", "*"), ("ftp://a/mcp", "ftp://a/mcp"), ("http://a", "/"), ("", "")])
def test_target_of_another_form_matches_no_path(target: str, path: str) -> None:
    assert request("OPTIONS", target).path == path


@pytest.mark.req("HTTP-01")
def test_other_methods_get_405_with_allow() -> None:
    rejection = first_failure(request("PUT"), rules())
    assert rejection is not None
    assert (rejection.status, rejection.headers) == (405, ((b"allow", b"POST, GET, DELETE"),))
    assert status(request("OPTIONS")) == 405
    assert status(request("OPTIONS"), cors=Cors()) == 200
    assert status(request("get")) == 405
    assert len(broken(request("X" * 10_000)) or ()) == 2
    assert len((broken(request("X" * 10_000)) or (0, ""))[1]) < 100


@pytest.mark.req("HTTP-04", "HTTP-35")
@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST:8000"])
def test_allowed_host_is_served(host: str) -> None:
    assert status(request(host=host, **GOOD), policy=LOCAL) == 200
    assert status(request(host=host, origin=f"http://{host}", **GOOD), policy=LOCAL) == 200


@pytest.mark.req("HTTP-02", "HTTP-03", "HTTP-04")
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"host": "evil.example:8000"},
        {"host": "evil.example:8000", "origin": "http://evil.example:8000"},
        {"host": "localhost:8000", "origin": "http://evil.example"},
        {"host": "localhost:8000", "origin": "null"},
        {"host": "localhost:8000", "origin": ""},
        {"host": "localhost:8000.evil.example"},
        {"host": "localhost:8000@evil.example"},
    ],
)
def test_foreign_host_is_refused(method: str, fields: dict[str, str]) -> None:
    assert status(request(method, **GOOD, **fields), policy=LOCAL, cors=Cors(origins=frozenset())) == 403
    assert status(request(method, **GOOD, **fields), LEGACY_CHECKS, policy=LOCAL, cors=Cors(origins=frozenset())) == 403


@pytest.mark.req("HTTP-02")
@pytest.mark.parametrize("twice", ["host", "origin"])
def test_repeated_field_matches_nothing(twice: str) -> None:
    fields = {"host": "localhost:8000", "origin": "http://localhost:8000", **GOOD}
    assert status(request("POST", "/mcp", (twice, fields[twice]), **fields), policy=LOCAL) == 403


@pytest.mark.req("HTTP-02")
def test_same_origin_is_served_without_policy() -> None:
    assert status(request(host="a.example", origin="https://A.example", **GOOD)) == 200
    assert status(request(host="a.example", origin="https://b.example", **GOOD)) == 403
    assert status(request(origin="https://b.example", **GOOD)) == 403


def test_origin_allowed_by_cors_is_served() -> None:
    page = request(host="localhost:8000", origin="https://App.example", **GOOD)
    assert status(page, policy=LOCAL, cors=Cors()) == 200
    assert status(page, policy=LOCAL, cors=Cors(origins=frozenset({"https://app.example"}))) == 200
    assert status(page, policy=LOCAL, cors=Cors(origins=frozenset({"https://b.example"}))) == 403
    assert status(page, policy=LOCAL) == 403


def test_policy_of_the_head_replaces_that_of_the_options() -> None:
    assert status(request(host="a", head={"policy": LOCAL}, **GOOD)) == 403
    assert status(request(host="a", head={"policy": HostPolicy(None, None)}, **GOOD), policy=LOCAL) == 200


@pytest.mark.req("HTTP-05")
def test_denied_principal_gets_its_status_and_headers() -> None:
    denied = Denied(403, "not you", ((b"www-authenticate", b"Bearer"),))
    rejection = first_failure(request(head={"principal": denied}, **GOOD), rules())
    assert rejection == Rejection(403, "not you", headers=((b"www-authenticate", b"Bearer"),))
    assert status(request("OPTIONS", head={"principal": denied}), cors=Cors()) == 200
    unknown = first_failure(request(head={"principal": Denied(500, "Internal error")}, **GOOD), rules())
    assert unknown == Rejection(500, "Internal error", -32603)


@pytest.mark.req("HTTP-07")
@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("application/json, text/event-stream", 200),
        ("text/event-stream,application/json", 200),
        ("Application/JSON;q=0.5, TEXT/event-stream; charset=utf-8", 200),
        ("*/*", 200),
        ("application/*, text/*", 200),
        ("text/html, */*;q=0.8", 200),
        ("application/json;q=0, text/event-stream", 406),
        ("application/json, text/event-stream; q=0.000", 406),
        ("*/*, text/event-stream;q=0", 406),
        ("*/*;q=0, */*", 200),
        ("application/json;q=0, application/*, text/event-stream", 406),
        ("*/*;q=0, application/json, text/event-stream", 200),
        ("application/*;q=0, */*", 406),
        ("application/json;q=0, application/json, text/*;q=0.001", 200),
        ("application/json", 406),
        ("text/event-stream", 406),
        ("text/*", 406),
        ("", 406),
        ("application/jsonx, text/event-streams", 406),
    ],
)
def test_post_must_accept_json_and_events(accept: str, expected: int) -> None:
    assert status(request(**{**GOOD, "accept": accept})) == expected
    fields = {**GOOD}
    del fields["accept"]
    if expected == 406:
        assert status(request(**fields)) == 406
    assert status(request(**{**GOOD, "accept": accept}), LEGACY_CHECKS) == 200


@pytest.mark.req("HTTP-07")
def test_two_accept_fields_count_as_one() -> None:
    fields = {"content_type": "application/json", "accept": "application/json"}
    assert status(request("POST", "/mcp", ("accept", "text/event-stream"), **fields)) == 200


@pytest.mark.req("HTTP-07")
@pytest.mark.parametrize(
    ("accept", "answers"),
    [
        ("application/json, text/event-stream", "auto"),
        ("*/*", "auto"),
        ("", "auto"),
        ("application/json", "json"),
        ("text/event-stream", "sse"),
        ("text/*", "sse"),
    ],
)
def test_lenient_accept_gives_the_accepted_form(accept: str, answers: Answers) -> None:
    found = request(**{**GOOD, "accept": accept})
    assert status(found, strict_accept=False) == 200
    assert acceptable_answers(found, HttpOptions(strict_accept=False)) == answers
    assert acceptable_answers(found, HttpOptions()) == "auto"
    assert acceptable_answers(request(**{**GOOD, "accept": "text/html"}), HttpOptions(answers="json")) == "json"
    assert status(request(**{**GOOD, "accept": "text/html"}), strict_accept=False) == 406


@pytest.mark.req("HTTP-26")
def test_get_must_accept_events() -> None:
    assert status(request("GET", accept="text/event-stream")) == 200
    assert status(request("GET", accept="application/json")) == 406
    assert status(request("DELETE")) == 200


@pytest.mark.req("HTTP-08")
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("APPLICATION/JSON ;x=y", 200),
        ("text/plain", 415),
        ("", 415),
        ("application/json-rpc", 415),
        ("application/json, text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
    ],
)
def test_post_must_be_json(kind: str, expected: int) -> None:
    assert status(request(**{**GOOD, "content_type": kind})) == expected


@pytest.mark.req("HTTP-14")
@pytest.mark.parametrize(
    ("length", "expected"),
    [("1000", 200), ("1001", 413), ("9" * 5000, 413), ("-1", 200), ("x", 200), ("\xb2", 200), ("5, 5", 200)],
)
def test_announced_length_over_the_limit_gets_413(length: str, expected: int) -> None:
    assert status(request(content_length=length, **GOOD)) == expected
    assert too_large(1000).status == 413


@pytest.mark.req("HTTP-31")
@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2025-11-25", 200),
        ("2024-11-05", 200),
        ("2026-07-28", 400),
        ("1999-01-01", 400),
        ("", 400),
        ("2025-11-25, 2025-11-25", 400),
        ("\x00" * 100_000, 400),
    ],
)
def test_version_must_be_of_the_handshake_era(version: str, expected: int) -> None:
    found = request(mcp_protocol_version=version, **GOOD)
    assert status(found) == expected
    assert len((broken(found) or (0, ""))[1]) < 200


def test_health_accepts_any_host() -> None:
    assert status(request("GET", host="evil.example", origin="x"), HEALTH_CHECKS, policy=LOCAL) == 200


@pytest.mark.req("HTTP-03", "RPC-12")
def test_rejection_body_is_an_error_without_id() -> None:
    body = json.loads(rejection_body(Rejection(403, "no")))
    assert body == {"jsonrpc": "2.0", "error": {"code": -32600, "message": "no"}}


def test_any_header_bytes_raise_nothing() -> None:
    names = ("host", "origin", "accept", "content-type", "mcp-session-id", "last-event-id", "mcp-protocol-version")
    for value in (b"\xff\xfe\x00", b"\r\nx: y", b"," * 1000, b"x" * 1_000_000):
        head = RequestHead(1, "POST", "/\xff?\xff", [(name.encode(), value) for name in names])
        rejection = first_failure(ParsedRequest(head), rules(policy=LOCAL))
        assert rejection is not None
        assert len(rejection_body(rejection)) < 1000
