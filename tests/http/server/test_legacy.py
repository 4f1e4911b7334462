from __future__ import annotations

import json
from typing import Any

import pytest
from httpsite import Site, initialize, note, tool_call
from httpwire import Exchange

from mcpio.engine.limits import Limits
from mcpio.http.model import HostPolicy, HttpOptions

OLD = HttpOptions(legacy=("/sse", "/messages"))


def opened(site: Site, **headers: Any) -> tuple[Exchange, str]:
    """Listen as an old client does; return the stream, and the address to POST to."""
    stream = site.ask("GET", "/sse", **headers)
    (endpoint,) = stream.new_events()
    assert (endpoint.type, endpoint.id) == ("endpoint", None)
    return stream, f"/{endpoint.data}"


def post(site: Site, target: str, message: Any, **headers: Any) -> Exchange:
    return site.ask("POST", target, json.dumps(message).encode(), content_type="application/json", **headers)


@pytest.mark.req("FALL-01", "FALL-03")
def test_legacy_client_gets_all_output_on_its_listening_stream() -> None:
    site = Site(OLD)
    stream, target = opened(site)
    assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
    assert "mcp-session-id" not in stream.headers
    assert target == f"/messages?session_id={1:032x}"
    taken = post(site, target, initialize("2024-11-05"))
    assert (taken.status, taken.data) == (202, b"")
    (hello,) = stream.new_events()
    assert hello.type == "message"
    assert json.loads(hello.data or "")["result"]["protocolVersion"] == "2024-11-05"
    assert post(site, target, note("initialized")).status == 202
    assert post(site, target, tool_call("a")).status == 202
    site.answer(site.requests()[0])
    assert [each["id"] for each in stream.new_messages()] == ["a"]
    assert site.kinds() == ["SessionOpened", "Negotiated", "Initialized", "RequestReceived"]


@pytest.mark.req("FALL-03")
def test_malformed_legacy_message_is_answered_on_the_stream() -> None:
    site = Site(OLD)
    stream, target = opened(site)
    assert site.ask("POST", target, b"{", content_type="application/json").status == 202
    assert [each["error"]["code"] for each in stream.new_messages()] == [-32700]


@pytest.mark.req("FALL-05")
def test_legacy_paths_are_off_by_default() -> None:
    site = Site()
    assert [site.ask(*each).status for each in (("GET", "/sse"), ("POST", "/messages"))] == [404, 404]


@pytest.mark.req("FALL-03", "SEC-04")
def test_legacy_session_key_is_random_and_bound_to_its_principal() -> None:
    site = Site(OLD)
    stream, target = opened(site, principal="me")
    session = target.partition("=")[2]
    for query in ("", "?", "?session_id=", "?session_id=x", f"?session={session}", "?" + "&" * 1000):
        assert post(site, f"/messages{query}", note("x"), principal="me").status == 404
    assert post(site, target, note("x"), principal="you").status == 404
    assert post(site, f"{target}&x=1", note("x"), principal="me").status == 202
    assert site.post(tool_call(), session, principal="me").status == 404
    new = site.open(principal="me")
    assert post(site, f"/messages?session_id={new}", note("x"), principal="me").status == 404
    assert not stream.is_over


@pytest.mark.req("FALL-04", "HTTP-02")
@pytest.mark.parametrize(("method", "target"), [("GET", "/sse"), ("POST", "/messages?session_id=x")])
def test_legacy_paths_check_host_and_origin(method: str, target: str) -> None:
    policy = HostPolicy.for_address("127.0.0.1", 8000)
    site = Site(HttpOptions(legacy=("/sse", "/messages"), policy=policy))
    assert site.ask(method, target, host="evil.example").status == 403
    assert site.ask(method, target, host="localhost:8000", origin="http://evil.example").status == 403
    assert site.ask("PUT", target, host="localhost:8000").headers["allow"] == method
    assert site.machine.sessions == ()


def test_legacy_post_checks_type_and_length() -> None:
    site = Site(OLD, limits=Limits(message_bytes=500))
    _, target = opened(site)
    assert site.ask("POST", target, b"{}", content_type="text/plain").status == 415
    assert post(site, target, note("x", pad="x" * 1000)).status == 413


def test_legacy_posts_of_one_session_are_limited() -> None:
    site = Site(OLD, limits=Limits(streams=3))
    _, target = opened(site)
    coming = [site.ask("POST", target, None, content_type="application/json") for _ in range(4)]
    assert [each.status for each in coming] == [0, 0, 503, 503]
    site.complete(coming[0], json.dumps(initialize("2024-11-05")).encode())
    assert (coming[0].status, post(site, target, note("initialized")).status) == (202, 202)


@pytest.mark.req("FALL-01")
def test_legacy_session_ends_with_its_stream() -> None:
    site = Site(OLD)
    stream, target = opened(site)
    coming = site.ask("POST", target, None, content_type="application/json")
    post(site, target, initialize("2024-11-05"))
    post(site, target, tool_call())
    site.kinds()
    site.reset(stream, OSError("gone"))
    assert site.kinds() == ["ConnectionClosed", "SessionClosed"]
    assert post(site, target, note("x")).status == 404
    site.complete(coming, b"{}")
    assert coming.status == 404
    assert site.machine.sessions == ()


def test_legacy_post_that_breaks_off_changes_nothing() -> None:
    site = Site(OLD)
    stream, target = opened(site)
    coming = site.ask("POST", target, None, content_type="application/json")
    site.reset(coming)
    assert post(site, target, initialize("2024-11-05")).status == 202
    assert len(stream.new_messages()) == 1


def test_open_legacy_stream_keeps_its_session_and_gets_comments() -> None:
    site = Site(HttpOptions(legacy=("/sse", "/messages"), session_idle=10, keep_alive=4))
    stream, target = opened(site)
    site.advance(100)
    assert stream.data.count(b":\n\n") == 25
    assert post(site, target, note("x")).status == 202


def test_legacy_sessions_beyond_the_limit_get_503() -> None:
    site = Site(OLD, limits=Limits(sessions=1))
    opened(site)
    assert site.ask("GET", "/sse").status == 503
    coming = site.ask("GET", "/sse", None)
    site.machine.close(site.now, 0)
    site.settle()
    site.complete(coming)
    assert coming.status == 503


def test_close_answers_and_ends_the_legacy_stream() -> None:
    site = Site(OLD)
    stream, target = opened(site)
    post(site, target, initialize("2024-11-05"))
    post(site, target, tool_call("last"))
    site.machine.close(site.now, 5)
    site.settle()
    site.answer(site.requests()[0])
    assert [each["id"] for each in stream.new_messages()] == [0, "last"]
    assert stream.is_over
    assert site.machine.closed


@pytest.mark.req("FALL-01", "FALL-02")
@pytest.mark.parametrize(
    ("paths", "address"),
    [
        (("/sse", "/messages"), "messages"),
        (("/a/sse", "/a/messages"), "messages"),
        (("/sse", "/old/messages"), "old/messages"),
        (("/old/sse", "/messages"), "../messages"),
    ],
)
def test_legacy_address_is_relative_to_the_stream(paths: tuple[str, str], address: str) -> None:
    site = Site(HttpOptions(legacy=paths))
    (endpoint,) = site.ask("GET", paths[0]).new_events()
    assert (endpoint.data or "").partition("?")[0] == address
