"""Batches of our own, whose requests stand each for itself, and answers to received ones that wait for each other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wires import client, feed, note, request, result, sent, server

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.dialect import Batches, BatchItem, as_item
from mcpio.engine.limits import DEFAULT, MESSAGE_COST, Limits, Timeout
from mcpio.engine.snapshot import BatchState
from mcpio.errors import LocalProtocolError, NoBackChannel, RequestCancelled, RequestError, RequestTimeout
from mcpio.events import IncomingId, OutgoingId, ProgressReceived, RequestFailed, ResponseReceived
from mcpio.types import (
    CallToolRequest,
    ClientCapabilities,
    CustomNotification,
    CustomRequest,
    EmptyResult,
    Implementation,
    InitializeRequest,
    ListRootsRequest,
    ListToolsRequest,
    PingRequest,
    RawNotification,
    ReadResourceRequest,
    RootsListChangedNotification,
)

BAD: Any = object()


def ask(connection: Connection, *items: Any, **more: Any) -> tuple[OutgoingId | None, ...]:
    return connection.send_batch(items, now=1.0, **more)


@pytest.mark.req("BATCH-01")
def test_batch_is_one_array_with_an_id_for_each_request() -> None:
    connection = client("2025-03-26")
    ids = ask(
        connection,
        ListToolsRequest(),
        CustomNotification("acme/note", {"a": 1}),
        BatchItem(CallToolRequest("x"), progress=True),
        PingRequest(),
    )
    assert ids == (2, None, 3, 4)
    assert sent(connection) == [
        [
            request("tools/list", 2),
            {"jsonrpc": "2.0", "method": "acme/note", "params": {"a": 1}},
            request("tools/call", 3, name="x", _meta={"progressToken": 3}),
            request("ping", 4),
        ]
    ]
    assert connection.pending.outgoing == (2, 3, 4)
    assert connection.send_request(PingRequest(), now=1.0) == 5


@pytest.mark.req("BATCH-05", "BATCH-07")
@pytest.mark.parametrize("together", [True, False])
def test_answers_may_come_as_a_batch_or_one_by_one(together: bool) -> None:
    connection = client("2025-03-26")
    ask(
        connection,
        BatchItem(ListToolsRequest(), cookie="tools"),
        BatchItem(CustomRequest("acme/x"), cookie="x"),
        BatchItem(PingRequest(), cookie="ping"),
    )
    answers = [
        result(4),
        {"jsonrpc": "2.0", "id": 3, "error": {"code": 5, "message": "no"}},
        result(2, tools=[]),
    ]
    events = feed(connection, *([answers] if together else answers))
    assert [(type(event), event.cookie) for event in events] == [
        (ResponseReceived, "ping"),
        (RequestFailed, "x"),
        (ResponseReceived, "tools"),
    ]
    assert connection.pending.outgoing == ()


@pytest.mark.req("BATCH-07")
def test_each_request_of_a_batch_has_its_own_timeout_progress_and_outcome() -> None:
    connection = client("2025-03-26")
    first, second, third = ask(
        connection,
        BatchItem(CallToolRequest("x"), timeout=5.0, cookie=1),
        BatchItem(CallToolRequest("x"), timeout=Timeout(50.0), cookie=2, progress=True),
        BatchItem(CallToolRequest("x"), timeout=None, cookie=3),
    )
    assert first is not None
    assert third is not None
    sent(connection)
    (event,) = feed(connection, note("progress", progressToken=second, progress=1))
    assert isinstance(event, ProgressReceived)
    assert event.cookie == 2
    connection.cancel_request(third, "enough")
    connection.handle_timeout(6.0)
    failures = [event.error for event in connection.events() if isinstance(event, RequestFailed)]
    assert [type(error) for error in failures] == [RequestCancelled, RequestTimeout]
    cancelled = [message["params"]["requestId"] for message in sent(connection)]
    assert cancelled == [third, first]
    assert connection.pending.outgoing == (second,)


def test_batch_item_defaults_to_the_timeout_of_the_options() -> None:
    connection = client("2025-03-26", request_timeout=Timeout(7.0))
    ask(connection, ListToolsRequest())
    assert connection.next_deadline() == 8.0
    item = as_item(PingRequest())
    assert item == BatchItem(PingRequest(), DEFAULT, None, False)
    assert as_item(item) is item


def test_related_batch_takes_the_exchange_of_its_request() -> None:
    connection = server("2025-03-26")
    (event,) = feed(connection, request("tools/list", 7), via="exchange")
    ask(connection, PingRequest(), CustomNotification("acme/x"), related_to=event.id)
    message = connection.next_message()
    assert message is not None
    assert (message.via, message.related, message.last) == ("exchange", event.id, False)
    connection.cancel_request(OutgoingId(1))
    cancellation = connection.next_message()
    assert cancellation is not None
    assert cancellation.via == "exchange"


def test_batch_of_notifications_leaves_nothing_pending() -> None:
    connection = client("2025-03-26")
    assert ask(connection, CustomNotification("acme/x"), RawNotification("acme/y", {})) == (None, None)
    assert sent(connection) == [[{"jsonrpc": "2.0", "method": "acme/x"}, {"jsonrpc": "2.0", "method": "acme/y"}]]
    assert connection.pending.outgoing == ()


def test_waiting_batch_counts_as_outgoing_requests() -> None:
    connection = client("2025-03-26", limits=Limits(high_water=10))
    ask(connection, *(CallToolRequest("x" * 100) for _ in range(10)))
    assert connection.wants_write
    assert connection.wants_read
    small = client("2025-03-26", limits=Limits(queued_bytes=4 * MESSAGE_COST))
    ask(small, CallToolRequest("x" * 2000))
    assert small.phase.value == "closed"
    assert [type(event).__name__ for event in small.events()] == ["RequestFailed", "ConnectionClosed"]


@pytest.mark.req("BATCH-02")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", "2025-11-25"])
def test_batch_in_another_revision_is_refused(revision: str) -> None:
    for options in ({}, {"accept_batches": True}):
        connection = client(revision, **options)
        with pytest.raises(LocalProtocolError, match="batches are for sessions of 2025-03-26"):
            ask(connection, PingRequest())
        assert sent(connection) == []


@pytest.mark.req("BATCH-03")
def test_batch_before_the_handshake_or_with_initialize_is_refused() -> None:
    connection = ClientConnection(Implementation("c", "1"))
    with pytest.raises(LocalProtocolError, match="cannot send ping in phase new"):
        ask(connection, PingRequest())
    connection.send_initialize(now=0.0)
    with pytest.raises(LocalProtocolError, match="batches are for sessions of 2025-03-26"):
        ask(connection, PingRequest())
    with pytest.raises(LocalProtocolError, match="initialize is sent by send_initialize"):
        ask(client("2025-03-26"), InitializeRequest("2025-03-26", ClientCapabilities(), Implementation("c", "1")))
    closing = client("2025-03-26")
    closing.close(1.0)
    with pytest.raises(NoBackChannel, match="the connection is closing"):
        ask(closing, PingRequest())


@pytest.mark.parametrize(
    "item",
    [
        ListRootsRequest(),
        EmptyResult(),
        None,
        BAD,
        RootsListChangedNotification(),
        CallToolRequest("\ud800"),
        CallToolRequest("x", meta={"progressToken": 1}),
        CustomRequest("acme/x", {"a": BAD}),
        CustomNotification("acme/x", {"a": BAD}),
        CustomNotification("ping"),
        BatchItem(PingRequest(), timeout=-1),
        BatchItem(PingRequest(), timeout="5"),  # type: ignore[arg-type]  # a mistake
    ],
)
def test_batch_with_one_invalid_item_sends_nothing(item: Any) -> None:
    connection = client("2025-03-26")
    before = connection.snapshot(1.0)
    for items in ([item], [PingRequest(), item], [item, PingRequest()], [PingRequest(), PingRequest(), item]):
        with pytest.raises(LocalProtocolError):
            connection.send_batch(items, now=5.0)
    assert connection.snapshot(1.0) == before
    assert connection.send_request(PingRequest(), now=1.0) == 2


def test_batch_size_is_checked() -> None:
    connection = client("2025-03-26", limits=Limits(batch_items=2, outgoing_requests=3))
    with pytest.raises(LocalProtocolError, match="a batch must have 1 to 2 items, not 0"):
        ask(connection)
    with pytest.raises(LocalProtocolError, match="a batch must have 1 to 2 items, not 3"):
        ask(connection, PingRequest(), PingRequest(), PingRequest())
    ask(connection, PingRequest(), PingRequest())
    with pytest.raises(LocalProtocolError, match="3 requests wait for an answer already"):
        ask(connection, PingRequest(), PingRequest())
    ask(connection, PingRequest(), CustomNotification("acme/x"))
    with pytest.raises(LocalProtocolError, match="the peer's request 99 is not running"):
        ask(connection, CustomNotification("acme/x"), related_to=IncomingId(99))


def test_batch_survives_a_snapshot() -> None:
    connection = client("2025-03-26")
    ask(connection, BatchItem(ListToolsRequest(), cookie="a"), BatchItem(ReadResourceRequest("x:y"), cookie=7))
    sent(connection)
    moved = ClientConnection.restore(json.loads(json.dumps(connection.snapshot(1.0))), 1.0)
    events = feed(moved, [result(3, contents=[]), result(2, tools=[])])
    assert [event.cookie for event in events] == [7, "a"]


# The answers that go out together


def test_joined_answers_are_released_with_the_last() -> None:
    batches = Batches()
    batches.begin("via")
    assert batches
    batches.admit([1, 2])
    assert batches.collect(b"{}")
    assert batches.end() is None
    assert 1 in batches
    assert batches.settle(2, b"[2]") is None
    assert batches.size == 5
    answers = batches.settle(1, b"[1]")
    assert answers is not None
    assert (answers.text, answers.via, answers.ids) == (b"[{},[2],[1]]", "via", (1, 2))
    assert batches.size == 0
    assert not batches


def test_answer_outside_a_batch_is_not_kept() -> None:
    batches = Batches()
    assert not batches.collect(b"{}")
    batches.admit([1])
    assert 1 not in batches
    assert batches.end() is None


def test_batch_without_answers_releases_nothing() -> None:
    batches = Batches()
    batches.begin(None)
    batches.admit([1])
    assert batches.settle(1, None) is None
    assert batches.end() is None
    assert not batches


def test_open_batches_are_saved() -> None:
    batches = Batches()
    batches.begin(5)
    batches.admit([1, 2, 3])
    batches.settle(2, "ü".encode())
    batches.end()
    states = batches.save()
    assert states == [BatchState(via=5, ids=[1, 2, 3], running=[1, 3], answers=["ü"])]
    again = Batches()
    again.load(states)
    assert again.size == 2
    again.settle(1, None)
    answers = again.settle(3, b"3")
    assert answers is not None
    assert answers.text == "[ü,3]".encode()


def test_errors_are_joined_as_answers() -> None:
    connection = client("2025-03-26")
    (first,) = ask(connection, BatchItem(ListToolsRequest(), cookie=RequestError))
    (event,) = feed(connection, [{"jsonrpc": "2.0", "id": first, "error": {"code": 5, "message": "no"}}])
    assert isinstance(event.error, RequestError)
    assert event.cookie is RequestError
