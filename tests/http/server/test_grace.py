"""Requests that still run when the grace of a closing server, or of a closing session, is over."""

from __future__ import annotations

import json
from typing import Any

import pytest
from httpsaid import asked, progress, said
from httpsite import Site, initialize, note, tool_call
from httpwire import Exchange
from stateless import LEVEL
from statelesshttp import TWO_ERAS, Post, engine_of, post_to

from mcpio.app.session_store import MemorySessionStore
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.http.model import HttpOptions
from mcpio.revisions import REVISIONS
from mcpio.types import CallToolResult, LoggingMessageNotification, TextContent

CLOSING = {"code": -32603, "message": "Service unavailable: the server is closing"}
STREAMS = HttpOptions(answers="sse")
TINY = Limits(sent_message_bytes=20)


def close(site: Site, grace: float = 2.0) -> None:
    """Close the server, and let its grace pass."""
    site.machine.close(site.now, grace)
    site.settle()
    site.advance(grace)


def errors(exchange: Exchange) -> dict[Any, Any]:
    """Return the errors among the new messages of a stream, by the id that they answer."""
    return {each["id"]: each["error"] for each in exchange.new_messages() if "error" in each}


def started(site: Site) -> tuple[Exchange, Any]:
    """Make a stateless call, whose stream begins with a log message."""
    post = Post(name="x")
    post.meta[LEVEL] = "debug"
    response = post_to(site, post)
    id = site.requests()[-1].id
    engine_of(site).send_notification(LoggingMessageNotification("info", "begins"), related_to=id)
    site.settle()
    return response, id


@pytest.mark.parametrize("options", [STREAMS, HttpOptions(sse_after=1.0), HttpOptions(answers="sse", sessions=False)])
def test_stream_of_a_request_beyond_the_grace_ends_with_an_error(options: HttpOptions) -> None:
    site = Site(options)
    session = site.open() if options.sessions else None
    exchange, _ = site.call(session, "a")
    close(site)
    assert (errors(exchange), exchange.is_over, exchange.is_broken) == ({"a": CLOSING}, True, False)
    assert site.kinds()[-2:] == ["ConnectionClosed", "SessionClosed"]
    assert (site.machine.closed, site.machine._ledger.total) == (True, 0)


def test_request_beyond_the_grace_that_has_no_stream_gets_a_status() -> None:
    site = Site(HttpOptions(sse_after=None))
    exchange, _ = site.call(site.open())
    close(site)
    assert (exchange.status, exchange.json["error"]) == (503, CLOSING)


def test_error_at_the_end_of_the_grace_comes_after_all_that_waited() -> None:
    site = Site()
    exchange, event = asked(site, site.open())
    site.stall(exchange)
    for number in (1, 2):
        progress(site, event, number)
    site.machine.close(site.now, 2.0)
    site.settle()
    site.advance(2.0)
    site.unstall(exchange)
    messages = exchange.new_messages()
    assert (said(messages[:-1]), messages[-1]["error"], exchange.is_over) == ([1, 2], CLOSING, True)


def test_answer_within_the_grace_that_was_not_read_is_kept() -> None:
    site = Site(STREAMS)
    exchange, event = site.call(site.open())
    site.stall(exchange)
    site.machine.close(site.now, 2.0)
    site.answer(event)
    site.advance(2.0)
    site.unstall(exchange)
    assert (said(exchange.new_messages()), exchange.is_over) == (["answer"], True)


def test_batch_of_requests_beyond_the_grace_ends_with_an_error_for_each() -> None:
    site = Site(STREAMS)
    exchange = site.post([tool_call(1), tool_call(2)], site.open("2025-03-26"))
    close(site)
    (answer,) = exchange.new_messages()
    assert {each["id"]: each["error"] for each in answer} == {1: CLOSING, 2: CLOSING}


def test_legacy_request_beyond_the_grace_is_answered_with_an_error_on_the_listening_stream() -> None:
    site = Site(HttpOptions(legacy=("/sse", "/messages")))
    stream = site.ask("GET", "/sse")
    (endpoint,) = stream.new_events()
    for message in (initialize("2024-11-05"), note("initialized"), tool_call("a")):
        site.ask("POST", f"/{endpoint.data}", json.dumps(message).encode(), content_type="application/json")
    # Nothing of a request is kept with the stream, which lasts as long as its session.
    assert not site.session().streams[0].requests
    close(site)
    assert (errors(stream), stream.is_over) == ({"a": CLOSING}, True)


def test_session_that_closes_alone_answers_its_requests_with_its_own_error() -> None:
    site = Site(STREAMS)
    exchange, _ = site.call(site.open())
    found = site.session()
    found.connection.close(site.now, grace=1.0)
    site.touch(found)
    site.advance(1.0)
    assert errors(exchange) == {1: {"code": -32603, "message": "Internal error: the request was cut off"}}


def test_answer_that_is_longer_than_a_message_may_be_is_left_out() -> None:
    site = Site(STREAMS, limits=TINY, engine=Options(limits=TINY))
    exchange = site.post(tool_call(), site.open())
    close(site)
    assert (errors(exchange), exchange.is_over) == ({}, True)


def test_request_whose_client_has_left_ends_without_an_answer() -> None:
    site = Site(STREAMS)
    exchange, _ = site.call(site.open())
    found = site.session()
    site.reset(exchange)
    found.connection.close(site.now, grace=1.0)
    site.touch(found)
    site.advance(1.0)
    assert site.machine.sessions == ()
    assert exchange.new_messages() == []


def test_session_that_another_process_takes_over_gets_no_error() -> None:
    store = MemorySessionStore()
    site = Site(STREAMS, store=store)
    session = site.open()
    exchange, _ = site.call(session)
    (primer,) = exchange.new_events()
    close(site)
    assert (exchange.new_messages(), exchange.is_over, site.machine.closed) == ([], True, True)
    successor = Site(STREAMS, store=store, first_id=100)
    resumed = successor.listen(session, primer.id)
    assert resumed.status == 200


def test_stored_session_that_ends_for_good_answers_with_an_error() -> None:
    site = Site(STREAMS, store=MemorySessionStore())
    exchange, _ = site.call(site.open())
    found = site.session()
    found.connection.close(site.now, grace=1.0)
    site.touch(found)
    site.advance(1.0)
    assert errors(exchange)[1]["message"] == "Internal error: the request was cut off"
    assert exchange.is_over


# Stateless calls


def test_stream_of_a_stateless_call_beyond_the_grace_ends_with_an_error() -> None:
    site = Site(engine=TWO_ERAS)
    response, _ = started(site)
    response.new_messages()
    site.machine.close(0.0, 1.0)
    site.machine.handle_timeout(1.0)
    site.settle()
    assert (errors(response), response.is_over, response.is_broken) == ({7: CLOSING}, True, False)
    assert site.kinds().count("CancelReceived") == 1
    assert (engine_of(site).serving, site.machine.closed, site.machine._ledger.total) == (0, True, 0)


def test_stateless_answer_that_was_not_read_within_the_grace_is_kept() -> None:
    site = Site(engine=TWO_ERAS)
    response, id = started(site)
    site.stall(response)
    engine_of(site).send_notification(LoggingMessageNotification("info", "waits"), related_to=id)
    engine_of(site).send_result(id, CallToolResult((TextContent("done"),)))
    site.machine.close(0.0, 1.0)
    site.machine.handle_timeout(1.0)
    site.unstall(response)
    assert response.new_messages()[-1]["result"]["content"][0]["text"] == "done"
    assert response.is_over
    assert "CancelReceived" not in site.kinds()


def test_stateless_answer_that_is_longer_than_a_message_may_be_is_left_out() -> None:
    limits = Limits(sent_message_bytes=95)
    site = Site(limits=limits, engine=Options(revisions=REVISIONS, limits=limits))
    post = Post(name="x")
    post.meta["progressToken"] = 1
    response = post_to(site, post)
    engine_of(site).send_progress(site.requests()[-1].id, 1)
    site.settle()
    assert response.status == 200
    response.new_messages()
    site.machine.close(0.0, 1.0)
    site.machine.handle_timeout(1.0)
    site.settle()
    assert (response.new_messages(), response.is_over) == ([], True)
    assert site.machine.closed
