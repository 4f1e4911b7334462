"""What the project's sources say of HTTP, row by row of their table D: it holds, or it is answered as stated."""

from __future__ import annotations

from typing import Any

import pytest
from httpsite import Site, note, tool_call

from mcpio.http.model import Cors, HttpOptions


def test_d9_pages_of_other_origins_are_served_where_that_is_wanted() -> None:
    site = Site(HttpOptions(cors=Cors(origins=frozenset({"https://a.example"}))))
    page: dict[str, Any] = {"origin": "https://a.example"}
    assert site.ask("OPTIONS", **page).status == 204
    session = site.open(**page)
    exposed = site.post(note("x"), session, **page).headers["access-control-expose-headers"]
    assert "mcp-session-id" in exposed
    assert "mcp-protocol-version" in exposed
    assert site.post(note("x"), session, origin="https://b.example").status == 403
    assert Site().ask("OPTIONS", **page).status == 403


@pytest.mark.req("FALL-01", "FALL-03")
def test_d10_post_up_and_events_down_is_the_transport_of_2024_11_05() -> None:
    site = Site(HttpOptions(legacy=("/sse", "/messages")))
    (endpoint,) = site.ask("GET", "/sse").new_events()
    assert endpoint.type == "endpoint"


@pytest.mark.req("HTTP-07")
def test_d11_who_accepts_only_streams_gets_them_where_the_server_is_lenient() -> None:
    strict, lenient = Site(), Site(HttpOptions(strict_accept=False))
    assert strict.post(tool_call(), strict.open(), accept="text/event-stream").status == 406
    answer = lenient.post(tool_call(), lenient.open(), accept="text/event-stream")
    assert answer.headers["content-type"] == "text/event-stream"


@pytest.mark.req("RESUME-08")
def test_d13_messages_are_events_of_type_message() -> None:
    site = Site(HttpOptions(answers="sse"))
    answer = site.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, site.open())
    assert [event.type for event in answer.new_events() if event.data] == ["message"]
    assert b"event: message\n" in answer.data


@pytest.mark.req("SESS-01", "SESS-02", "SESS-04")
def test_d15_d16_a_session_has_an_id_of_32_digits_which_is_asked_for() -> None:
    site = Site()
    assert len(site.open()) == 32
    assert site.post(tool_call()).status == 400


@pytest.mark.req("HTTP-30", "HTTP-31")
def test_d17_the_version_is_a_field_of_later_requests() -> None:
    site = Site()
    session = site.open("2025-06-18")
    assert site.post(note("x"), session, mcp_protocol_version="2025-06-18").status == 202
    assert site.post(note("x"), session, mcp_protocol_version="2025-11-25").status == 400


@pytest.mark.req("HTTP-19", "HTTP-20", "HTTP-26", "RESUME-03")
def test_d18_d19_d20_a_client_listens_comes_back_and_polls() -> None:
    site = Site()
    session = site.open()
    assert site.listen(session).headers["content-type"] == "text/event-stream"
    exchange, event = site.call(session)
    assert site.machine.interrupt(site.session(), event.context.via, site.now, retry=1.0)
    site.settle()
    assert [each.retry for each in exchange.new_events()] == [None, 1000]
    site.answer(event)
    assert [each["id"] for each in site.listen(session, exchange.last_event_id).new_messages()] == [1]
