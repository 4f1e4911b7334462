from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from httpsite import BOTH, Site, initialize, note, tool_call
from hypothesis import given
from hypothesis import strategies as st

from mcpio.app.session_store import MemorySessionStore
from mcpio.engine.limits import Limits
from mcpio.errors import LocalProtocolError
from mcpio.http.model import Body, Cors, End, HostPolicy, HttpOptions, Page, RequestHead, Reset

JSON = "application/json"


# Paths


@pytest.mark.parametrize("target", ["/", "/mcp/", "/MCP", "/mcp/x", "", "*", "http://a/x", "/\xff"])
def test_unknown_path_gets_404(target: str) -> None:
    response = Site().ask("POST", target, content_type=JSON, accept=BOTH)
    assert (response.status, response.json["error"]["code"]) == (404, -32600)


def test_query_is_ignored() -> None:
    site = Site(HttpOptions(path="/other"))
    assert site.post(tool_call(), target="/other?session=x").status == 400


def test_options_with_one_path_twice_are_refused() -> None:
    for options in (HttpOptions(health="/mcp"), HttpOptions(legacy=("/x", "/x")), HttpOptions(legacy=("/sse", "/mcp"))):
        with pytest.raises(ValueError, match="each path must be given once"):
            Site(options)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_health_path_answers_ok(method: str) -> None:
    site = Site(HttpOptions(health="/health"))
    response = site.ask(method, "/health")
    assert (response.status, response.json, response.headers["cache-control"]) == (200, {"status": "ok"}, "no-store")
    assert site.ask("POST", "/health").headers["allow"] == "GET, HEAD"
    site.machine.close(0.0)
    assert site.ask(method, "/health").status == 503


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_page_is_served_to_the_hosts_of_the_policy(method: str) -> None:
    page = Page(b"hello", ((b"content-type", b"text/plain"), (b"x-a", b"b")))
    site = Site(HttpOptions(pages={"/": page}, policy=HostPolicy(frozenset({"here"}), None)))
    response = site.ask(method, "/", host="here")
    assert (response.status, response.data) == (200, b"hello")
    assert response.headers["content-type"] == "text/plain"
    assert (response.headers["x-a"], response.headers["x-content-type-options"]) == ("b", "nosniff")
    assert site.ask(method, "/", host="elsewhere").status == 403
    assert site.ask("POST", "/", host="here").headers["allow"] == "GET, HEAD"
    with pytest.raises(ValueError, match="each path must be given once"):
        Site(HttpOptions(pages={"/mcp": page}))


@pytest.mark.parametrize("target", ["/mcp", "/health", "/sse", "/messages"])
def test_preflight_request_is_answered(target: str) -> None:
    cors = Cors(origins=frozenset({"https://a.example"}))
    site = Site(HttpOptions(cors=cors, health="/health", legacy=("/sse", "/messages")))
    asked = site.ask("OPTIONS", target, origin="https://a.example", access_control_request_method="POST")
    assert (asked.status, asked.data) == (204, b"")
    assert asked.headers["access-control-allow-origin"] == "https://a.example"
    assert "mcp-session-id" in asked.headers["access-control-allow-headers"]
    assert Site(HttpOptions(health="/health", legacy=("/sse", "/messages"))).ask("OPTIONS", target).status == 405


def test_every_response_to_an_allowed_origin_has_cors_headers() -> None:
    site = Site(HttpOptions(cors=Cors()))
    for response in (site.post(b"{", origin="https://a.example"), site.ask("PUT", origin="https://a.example")):
        assert response.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-origin" not in site.post(b"{").headers


# Bodies


@pytest.mark.req("HTTP-14", "SEC-10")
def test_body_over_the_limit_is_refused_at_any_split() -> None:
    site = Site(limits=Limits(message_bytes=500))
    session = site.open()
    exact = site.post(b'{"jsonrpc":"2.0","method":"notifications/x"}' + b" " * 456, session)
    assert exact.status == 202
    announced = site.ask("POST", body=None, content_type=JSON, accept=BOTH, content_length="501")
    assert (announced.status, announced.json["error"]["code"]) == (413, -32600)
    slow = site.ask("POST", body=None, content_type=JSON, accept=BOTH, mcp_session_id=session)
    for _ in range(3):
        site.machine.receive(Body(site.name(slow), b" " * 250), 0.0)
    site.machine.receive(Body(site.name(slow), b" " * 250), 0.0)
    site.settle()
    assert slow.status == 413
    site.complete(slow)
    assert not site.session().exchanges


@pytest.mark.long
@pytest.mark.req("SEC-10")
def test_body_in_small_pieces_takes_little_more_than_its_bytes() -> None:
    site = Site()
    slow = site.ask("POST", body=None, content_type=JSON, accept=BOTH)
    name, pieces = site.name(slow), 100_000
    tracemalloc.start()
    for number in range(pieces):
        site.machine.receive(Body(name, bytes((number % 251,))), 0.0)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2 * pieces


def test_body_of_refused_request_is_ignored() -> None:
    site = Site()
    refused = site.ask("PUT", body=None)
    assert (refused.status, refused.is_over) == (405, True)
    name = site.name(refused)
    for item in (Body(name, b"x"), End(name), Reset(name), Body("unknown", b"x")):
        site.machine.receive(item, 0.0)
    assert site.machine.responses_to_send(name) == []
    assert site.machine.next_ready() is None


def test_body_before_the_refusal_is_written_is_ignored() -> None:
    site = Site(HttpOptions(health="/health"))
    for target in ("/mcp", "/health"):
        site.machine.receive(RequestHead(target, "PUT", target, ()), 0.0)
        site.machine.receive(Body(target, b"x"), 0.0)
        site.machine.receive(End(target), 0.0)
        assert [type(item).__name__ for item in site.machine.responses_to_send(target)][-1] == "End"


def test_second_end_of_a_request_is_ignored() -> None:
    site = Site()
    session = site.open()
    exchange, event = site.call(session)
    site.complete(exchange, b"more")
    assert len(site.requests()) == 1
    site.answer(event)
    assert exchange.json["id"] == 1


def test_second_head_of_an_exchange_raises() -> None:
    site = Site()
    site.machine.receive(RequestHead(1, "POST", "/mcp", ((b"content-type", b"application/json"),)), 0.0)
    with pytest.raises(LocalProtocolError, match="open already"):
        site.machine.receive(RequestHead(1, "POST", "/mcp", ()), 0.0)


@pytest.mark.req("SEC-10")
def test_exchanges_beyond_the_limit_get_503() -> None:
    site = Site(limits=Limits(exchanges=3))
    session = site.open()
    calls = [site.call(session) for _ in range(3)]
    refused = site.post(note("x"), session)
    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    site.answer(calls[0][1])
    assert site.post(note("x"), session).status == 202


# Resets


@pytest.mark.parametrize("at", ["head", "body", "end", "streaming", "answered"])
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_client_lost_at_any_point_leaves_no_exchange(method: str, at: str) -> None:
    site = Site(HttpOptions(answers="sse"))
    session = site.open()
    exchange = site.ask(method, body=None, accept=BOTH, content_type=JSON, mcp_session_id=session)
    if at != "head":
        site.machine.receive(Body(site.name(exchange), b'{"jsonrpc":"2.0","id":1,'), site.now)
    if at in ("end", "streaming", "answered"):
        site.complete(exchange, b'"method":"tools/call","params":{"name":"x"}}')
    if at == "answered" and site.requests():
        site.answer(site.requests()[0])
    site.reset(exchange)
    site.reset(exchange)
    assert not any(each.exchanges for each in site.machine.sessions)
    assert site.machine.next_ready() is None
    if site.requests() and at != "answered":
        site.answer(site.requests()[0])
    site.machine.close(site.now, 0)
    site.settle()
    assert site.machine.closed
    assert site.machine.next_deadline() is None


# Closing


@pytest.mark.req("HTTP-36")
def test_requests_after_close_get_503() -> None:
    site = Site()
    session = site.open()
    coming = site.ask("POST", body=None, accept=BOTH, content_type=JSON)
    in_session = site.ask("POST", body=None, accept=BOTH, content_type=JSON, mcp_session_id=session)
    exchange, event = site.call(session)
    site.machine.close(site.now)
    site.settle()
    assert site.post(tool_call(), session).status == 503
    assert not site.machine.closed
    site.complete(coming, b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}')
    assert coming.status == 503
    site.answer(event)
    assert exchange.json["id"] == 1
    site.complete(in_session, b'{"jsonrpc":"2.0","method":"notifications/x"}')
    assert in_session.status == 404
    assert site.machine.closed


def test_server_without_sessions_closes_at_once_and_again() -> None:
    site = Site()
    for _ in range(2):
        site.machine.close(0.0)
    assert site.machine.closed
    with pytest.raises(LocalProtocolError):
        Site().machine.close(0.0, grace="x")  # type: ignore[arg-type]  # a mistake, made on purpose


def test_handler_beyond_the_grace_is_cut_off() -> None:
    site = Site()
    session = site.open()
    exchange, _ = site.call(session)
    site.machine.close(site.now, grace=2.0)
    site.settle()
    site.advance(1.9)
    assert exchange.status in (0, 200)
    site.advance(0.2)
    assert exchange.is_over
    assert site.machine.closed


def test_end_session_ends_it_at_once() -> None:
    site = Site()
    session = site.open()
    site.machine.end_session(site.session(), site.now)
    site.settle()
    assert site.kinds()[-2:] == ["ConnectionClosed", "SessionClosed"]
    assert site.post(tool_call(), session).status == 404


# Sessions in a store


def test_stored_session_continues_at_the_next_machine() -> None:
    store = MemorySessionStore()
    site = Site(store=store)
    session = site.open()
    site.is_store_away = True
    waiting = site.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, session)
    assert waiting.status == 0
    site.is_store_away = False
    site.settle()
    assert waiting.json["result"] == {}
    site = Site(store=store, first_id=100)
    exchange, event = site.call(session)
    site.answer(event)
    assert exchange.json["id"] == 1
    assert site.post(note("x"), "f" * 32).status == 404
    site.machine.close(site.now, 0)
    site.settle()
    assert site.machine.closed


def test_request_that_waits_for_its_session_may_complete_late_or_break_off() -> None:
    store = MemorySessionStore()
    session = Site(store=store).open()
    site = Site(store=store, first_id=100)
    site.is_store_away = True
    fields: dict[str, Any] = {"accept": BOTH, "content_type": JSON, "mcp_session_id": session}
    late, gone, wrong = (site.ask("POST", body=None, **fields) for _ in range(3))
    other = site.ask("POST", body=None, mcp_protocol_version="2025-03-26", **fields)
    site.complete(wrong, b"{}")
    site.reset(gone)
    site.is_store_away = False
    site.settle()
    assert (wrong.status, other.status, late.status) == (400, 400, 0)
    site.complete(late, json.dumps(note("x")).encode())
    assert late.status == 202


def test_machine_without_store_ignores_answers() -> None:
    site = Site()
    assert site.machine.next_effect() is None
    site.machine.store_done(1, None, 0.0)


# Hostile


MESSAGES = [
    json.dumps(message).encode()
    for message in (tool_call(), initialize("2025-03-26"), [note("cancelled", requestId=1)], [tool_call(), 1])
]
USUAL = [b"application/json", b"*/*", b"%032x" % 1, b"0-1", b"1-1"]
FIELDS = [b"host", b"origin", b"accept", b"content-type", b"mcp-session-id", b"last-event-id", b"x"]
EXCHANGES = st.integers(0, 3)

heads = st.builds(
    RequestHead,
    EXCHANGES,
    st.sampled_from(["POST", "GET", "DELETE", "PUT", "OPTIONS"]),
    st.sampled_from(["/mcp", "/sse", "/messages?session_id=x", "/x"]),
    st.lists(st.tuples(st.sampled_from(FIELDS), st.one_of(st.binary(max_size=20), st.sampled_from(USUAL)))),
)
bodies = st.builds(Body, EXCHANGES, st.one_of(st.binary(max_size=40), st.sampled_from(MESSAGES)))
items = st.one_of(heads, bodies, st.builds(End, EXCHANGES), st.builds(Reset, EXCHANGES))


@given(st.lists(items, max_size=30))
def test_any_order_of_items_raises_nothing_and_ends(items: list[Any]) -> None:
    site = Site(HttpOptions(legacy=("/sse", "/messages")))
    site.open("2025-03-26")
    machine, started = site.machine, set()
    for item in items:
        if isinstance(item, RequestHead):
            # What an adapter calls an exchange is its own to choose.
            if item.exchange in started:
                continue
            started.add(item.exchange)
        machine.receive(item, 0.0)
        machine.responses_to_send(item.exchange)
    for exchange in started:
        machine.receive(Reset(exchange), 0.0)
    machine.close(0.0, 0)
    machine.handle_timeout(0.0)
    while machine.next_event() is not None:
        pass
    assert machine.closed
    assert machine.next_deadline() is None


def test_interrupt_without_stream_returns_false() -> None:
    site = Site()
    site.open()
    assert not site.machine.interrupt(site.session(), 99, 0.0)
    assert not site.machine.interrupt(site.session(), None, 0.0)


def test_lost_legacy_client_ends_its_session() -> None:
    site = Site(HttpOptions(legacy=("/sse", "/messages")))
    site.reset(site.ask("GET", "/sse"))
    assert site.machine.sessions == ()
