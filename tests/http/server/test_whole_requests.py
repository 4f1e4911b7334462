"""Requests that come whole, and the checks of heads that are alike: the same as in pieces, in fewer steps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from httpsite import BOTH, Site, initialize, note, tool_call
from keptsite import KeptSite
from statelesshttp import TWO_ERAS, Post

from mcpio.engine.limits import Limits
from mcpio.events import IncomingId, RequestReceived
from mcpio.http.model import Cors, Denied, HttpOptions, RequestHead
from mcpio.http.server import SLACK
from mcpio.types import CallToolResult


def whole(site: Site) -> Site:
    """Return a server whose requests come whole from now on."""
    site.is_whole = True
    return site


def test_whole_request_is_answered_like_one_in_pieces() -> None:
    site = whole(Site())
    session = site.open()
    exchange, event = site.call(session)
    site.answer(event)
    assert (exchange.status, exchange.json["id"], exchange.is_over) == (200, 1, True)


@pytest.mark.parametrize("size", [10, 2 * SLACK])
def test_whole_body_of_any_size_is_taken(size: int) -> None:
    site = whole(Site())
    assert site.post(note("x", y="y" * size), site.open()).status == 202


@pytest.mark.parametrize("limit", [100, 2 * SLACK])
def test_whole_body_over_the_limit_is_refused(limit: int) -> None:
    site = whole(Site(limits=Limits(message_bytes=limit)))
    assert site.post(b"x" * (limit + 1)).status == 413


def test_whole_request_that_fails_a_check_is_not_acted_on() -> None:
    site = whole(Site())
    assert site.ask("PUT", body=b"{}").status == 405
    assert site.kinds() == []


def test_whole_preflight_request_is_answered() -> None:
    site = whole(Site(HttpOptions(cors=Cors())))
    assert site.ask("OPTIONS", origin="https://x.example").status == 204


def test_whole_request_waits_for_the_store_to_find_its_session() -> None:
    site = KeptSite()
    session = site.open()
    assert whole(site.next_process()).post(note("x"), session).status == 202


def test_request_may_be_acted_on_alone_unless_something_else_waits() -> None:
    site = Site()
    fields = [
        (b"content-type", b"application/json"),
        (b"accept", BOTH.encode()),
        (b"mcp-session-id", site.open().encode()),
    ]

    def served(number: int) -> Any:
        head = RequestHead(number, "POST", "/mcp", fields, None)
        return site.machine.only_event(site.machine.serve(head, json.dumps(tool_call(number)).encode(), 0.0))

    _, event = served(101)
    assert isinstance(event, RequestReceived)
    assert served(102) is None  # the session of the first one needs processing
    site.settle()
    assert [event.id for event in site.requests()] == [IncomingId(2)]
    assert served(103) is not None


def head_of(number: int, **fields: str) -> RequestHead:
    usual = {"content_type": "application/json", "accept": BOTH}
    encoded = [(name.replace("_", "-").encode(), value.encode()) for name, value in (usual | fields).items()]
    return RequestHead(number, "POST", "/mcp", encoded, None)


def test_answer_within_the_call_is_returned_and_nothing_waits() -> None:
    site = Site(HttpOptions(session_idle=None))
    machine, session = site.machine, site.open()
    had_news = machine.has_news
    exchange = machine.serve(head_of(101, mcp_session_id=session), json.dumps(tool_call(7)).encode(), 0.0)
    assert (had_news, machine.has_news) == (False, True)
    found = machine.only_event(exchange)
    assert found is not None
    owner, event = found
    assert isinstance(event, RequestReceived)
    owner.connection.send_result(event.id, CallToolResult(()))
    answer = machine.answer_of(exchange)
    assert answer is not None
    assert (answer.status, json.loads(answer.body)["id"]) == (200, 7)
    assert (machine.next_event(), machine.next_ready(), machine.has_news) == (None, None, False)
    assert (machine.next_deadline(), site.session().exchanges, site.session().streams) == (None, {}, {})


@pytest.mark.req("SHTTP-01")
def test_answer_within_a_stateless_call_is_returned_and_leaves_nothing() -> None:
    site, post = Site(engine=TWO_ERAS), Post(name="x")
    machine = site.machine
    fields = {name.replace("-", "_"): value for name, value in post.fields.items()}
    exchange = machine.serve(head_of(101, **fields), json.dumps(post.body).encode(), 0.0)
    found = machine.only_event(exchange)
    assert found is not None
    owner, event = found
    assert isinstance(event, RequestReceived)
    call = exchange.call
    owner.connection.send_result(event.id, CallToolResult(()))
    answer = machine.answer_of(exchange)
    assert answer is not None
    assert (answer.status, json.loads(answer.body)["id"]) == (200, 7)
    assert (exchange.call, call.exchange, machine._exchanges) == (None, None, {})
    assert (machine.next_event(), machine.next_deadline(), machine._ledger.total) == (None, None, 0)


def test_request_is_not_acted_on_alone_while_that_of_another_session_waits() -> None:
    site = Site()
    first, second = site.open(), site.open()
    body = json.dumps(tool_call()).encode()
    site.machine.serve(head_of(101, mcp_session_id=first), body, 0.0)
    later = site.machine.serve(head_of(102, mcp_session_id=second), body, 0.0)
    assert site.machine.only_event(later) is None


# Heads that are alike


def known(site: Site) -> Any:
    """Return what a server remembers of heads."""
    return site.machine._admissions._cache


def test_alike_heads_are_checked_once() -> None:
    site = Site()
    session = site.open()
    before = len(known(site))
    for length in ("50", "51", "52"):
        assert site.post(note("y"), session, content_length=length, mcp_protocol_version="2025-11-25").status == 202
    assert len(known(site)) == before + 1


def test_remembered_head_has_the_size_that_it_was_checked_with() -> None:
    admissions = Site().machine._admissions
    head = head_of(1, content_length="50", mcp_session_id="5" * 32, last_event_id="3-1")
    sizes = [admissions.of(head)[3] for _ in range(2)]
    assert sizes[0] == sizes[1] > 32


def test_remembered_head_still_has_its_own_session_and_length() -> None:
    site = Site()
    session = site.open()
    for named, length, status in (
        (session, "50", 202),
        ("0" * 32, "50", 404),
        (session, "99999999", 413),
        (session, "9" * 30, 413),
        (session, "x", 202),
        (session, "50", 202),
    ):
        assert site.post(note("x"), named, content_length=length).status == status


def test_remembered_head_still_needs_its_principal() -> None:
    site = Site()
    session = site.open()
    for principal, status in ((None, 202), (Denied(), 401), ("other", 404), (None, 202)):
        assert site.post(note("x"), session, principal=principal).status == status


def test_head_with_a_field_twice_is_not_taken_for_another() -> None:
    site = Site()
    session = site.open()
    assert site.post(note("x"), session).status == 202
    field = (b"mcp-session-id", session.encode())
    version = (b"mcp-protocol-version", b"2025-11-25")
    fields = ((b"content-type", b"application/json"), (b"accept", BOTH.encode()), version, field, field)
    site.machine.receive(RequestHead("twice", "POST", "/mcp", fields), site.now)
    assert site.machine.responses_to_send("twice")[0].status == 404  # type: ignore[union-attr]  # it is a head


def test_first_head_with_a_length_over_the_limit_is_not_remembered() -> None:
    site = Site()
    assert site.post(initialize(), content_length="99999999").status == 413
    assert len(known(site)) == 0
    assert site.post(initialize(), content_length="99").status == 200


def test_remembered_heads_are_bounded() -> None:
    site = Site()
    for number in range(1000):
        site.ask("POST", origin=f"https://{number}.example")
        assert len(known(site)) <= 256
    size = len(known(site))
    site.ask("POST", origin="x" * 5000)
    assert len(known(site)) == size
