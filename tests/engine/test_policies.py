"""Nothing is unbounded (P6): what happens beyond each of the limits."""

from __future__ import annotations

import json

import pytest
from wires import call, client, feed, request, sent, server

from mcpio.engine.limits import Limits
from mcpio.engine.table import Phase
from mcpio.events import (
    Answered,
    CloseReason,
    ConnectionClosed,
    ProtocolViolated,
    RequestReceived,
)


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_request_beyond_the_limit_is_not_run(limit: int) -> None:
    connection = server(limits=Limits(incoming_requests=limit))
    events = feed(connection, *(call(number) for number in range(limit + 2)))
    assert [type(event) for event in events] == [RequestReceived] * limit + [Answered] * 2
    answers = sent(connection)
    assert [answer["error"]["code"] for answer in answers] == [-32603] * 2
    assert answers[0]["error"]["data"] == {"reason": "too many requests", "limit": limit}


def test_overlong_message_in_an_exchange_ends_only_the_exchange() -> None:
    connection = server(limits=Limits(message_bytes=300))
    connection.receive_message("x" * 301, 0.0, via="a")
    connection.receive_message(b"x" * 301, 0.0, via="b")
    first, second = connection.events()
    assert isinstance(first, ProtocolViolated)
    assert isinstance(second, ProtocolViolated)
    assert (first.via, second.via, connection.phase) == ("a", "b", Phase.OPERATING)
    message = connection.next_message()
    assert message is not None
    assert (message.via, json.loads(message.text)["error"]["code"]) == ("a", -32600)


def test_overlong_line_with_resync_fails_alone() -> None:
    connection = server(limits=Limits(message_bytes=300, resync=True))
    connection.receive_data(b"x" * 5000 + b"\n" + json.dumps(request("ping")).encode() + b"\n", 0.0)
    violated, answered = connection.events()
    assert isinstance(violated, ProtocolViolated)
    assert isinstance(answered, Answered)


def test_overlong_message_ends_a_client() -> None:
    connection = client(limits=Limits(message_bytes=300))
    connection.receive_data(b"x" * 5000, 0.0)
    assert isinstance(connection.next_event(), ProtocolViolated)
    assert sent(connection)[-1] is None
    assert list(connection.events()) == [ConnectionClosed(CloseReason.MESSAGE_TOO_LARGE, None)]


def test_batch_that_overflows_the_output_ends_the_connection() -> None:
    connection = server("2025-03-26", limits=Limits(queued_bytes=1000))
    events = feed(connection, [request("ping", number) for number in range(200)])
    assert events[-1] == ConnectionClosed(CloseReason.SLOW_CONSUMER, None)
    assert {type(event) for event in events[:-1]} == {Answered}
    assert len(events) < 100
