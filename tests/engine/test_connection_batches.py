"""Groups of messages: batches, their answers one by one or together, and what the dialects make of a message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wires import call, client, feed, new_server, note, one, request, result, sent, server

from mcpio.engine.connection import Connection
from mcpio.engine.limits import MESSAGE_COST, Limits
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Phase
from mcpio.errors import LocalProtocolError, RequestError
from mcpio.events import (
    Answered,
    CancelReceived,
    CloseReason,
    ConnectionClosed,
    IncomingId,
    MessageIgnored,
    NotificationReceived,
    ProtocolViolated,
    RequestReceived,
    ResponseReceived,
)
from mcpio.profiles import Profile
from mcpio.types import CallToolResult, ListToolsResult, PingRequest

B = "2025-03-26"
NOTE = {"jsonrpc": "2.0", "method": "acme/x"}


def joining(**options: Any) -> ServerConnection:
    return server(B, join_batch_answers=True, **options)


def answer(connection: Connection, id: int) -> None:
    connection.send_result(IncomingId(id), ListToolsResult(()))


def tools(id: Any) -> dict[str, Any]:
    return request("tools/list", id)


def codes(messages: list[Any]) -> list[Any]:
    return [message["error"]["code"] if "error" in message else message["id"] for message in messages]


# Received, in the revision that has them


@pytest.mark.req("BATCH-01", "BATCH-05")
def test_batch_items_are_answered_one_by_one_in_any_order() -> None:
    connection = server(B)
    events = feed(connection, [tools(1), NOTE, request("ping", 2), tools("3")])
    assert [type(event) for event in events] == [RequestReceived, NotificationReceived, Answered, RequestReceived]
    answer(connection, 2)
    answer(connection, 1)
    assert [message["id"] for message in sent(connection)] == [2, "3", 1]


@pytest.mark.req("BATCH-05")
@pytest.mark.parametrize("joined", [True, False])
def test_empty_batch_gets_a_single_error(joined: bool) -> None:
    connection = server(B, join_batch_answers=joined)
    assert isinstance(one(connection, []), ProtocolViolated)
    (error,) = sent(connection)
    assert error["error"]["code"] == -32600
    assert error["id"] is None


@pytest.mark.req("BATCH-05")
@pytest.mark.parametrize("joined", [True, False])
def test_batch_of_notifications_gets_no_answer(joined: bool) -> None:
    connection = server(B, join_batch_answers=joined)
    events = feed(connection, [NOTE, note("no/such"), {"jsonrpc": "2.0", "method": 5}])
    assert [type(event) for event in events] == [NotificationReceived, NotificationReceived, ProtocolViolated]
    assert sent(connection) == []


@pytest.mark.req("BATCH-05")
def test_invalid_item_fails_alone() -> None:
    connection = server(B)
    events = feed(connection, [5, None, {}, "x", [], [tools(1)], {"jsonrpc": "2.0", "id": None, "method": "ping"}])
    assert [type(event) for event in events] == [ProtocolViolated] * 7
    assert codes(sent(connection)) == [-32600] * 7
    feed(connection, [1, request("ping", 1)])
    assert codes(sent(connection)) == [-32600, 1]


@pytest.mark.req("BATCH-04")
def test_response_among_requests_is_refused_and_its_request_waits() -> None:
    connection = server(B)
    connection.send_request(PingRequest(), now=0.0, cookie="ours")
    sent(connection)
    error = {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}}
    for misplaced in (result(1), error):
        for beside in (NOTE, request("ping", 5)):
            events = feed(connection, [misplaced, beside])
            assert isinstance(events[0], ProtocolViolated)
            assert events[0].raw == misplaced
            assert codes(sent(connection)) == ([-32600, 5] if "id" in beside else [-32600])
    assert connection.pending.outgoing == (1,)
    assert isinstance(one(connection, [result(1), 5][:1]), ResponseReceived)


@pytest.mark.req("BATCH-04")
def test_responses_beside_invalid_items_are_accepted() -> None:
    connection = client(B)
    ids = [connection.send_request(PingRequest(), now=0.0) for _ in range(2)]
    sent(connection)
    events = feed(connection, [result(int(ids[1])), 7, result(int(ids[0]))])
    assert [type(event) for event in events] == [ResponseReceived, ProtocolViolated, ResponseReceived]
    assert codes(sent(connection)) == [-32600]


@pytest.mark.req("BATCH-03")
@pytest.mark.parametrize("profiles", [frozenset(), frozenset({Profile.ERLMCP})])
def test_initialize_inside_a_batch_is_refused(profiles: Any) -> None:
    connection = new_server(accept_batches=True, profiles=profiles)
    info = {"name": "c", "version": "1"}
    hello = request("initialize", 1, protocolVersion=B, capabilities={}, clientInfo=info)
    assert isinstance(one(connection, [hello]), ProtocolViolated)
    assert isinstance(one(connection, [request("ping", 2), hello]), ProtocolViolated)
    assert connection.phase is Phase.NEW
    settled = server(B)
    events = feed(settled, [hello, request("ping", 2)])
    assert [type(event) for event in events] == [Answered, Answered]
    assert codes(sent(settled)) == [-32600, 2]


@pytest.mark.req("BATCH-02")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", "2025-11-25"])
def test_batch_in_another_revision_needs_an_option(revision: str) -> None:
    connection = server(revision)
    assert isinstance(one(connection, [request("ping", 1)]), ProtocolViolated)
    (error,) = sent(connection)
    assert error["error"]["code"] == -32600
    assert ("id" in error) is (revision < "2025-11-25")
    for options in ({"accept_batches": True}, {"profiles": {Profile.ERLMCP}}):
        tolerant = server(revision, **options)
        assert isinstance(one(tolerant, [request("ping", 1)]), Answered)
        assert codes(sent(tolerant)) == [1]
    aliases = server(revision, profiles={Profile.LSP_ALIASES})
    assert isinstance(one(aliases, [request("ping", 1)]), ProtocolViolated)


@pytest.mark.req("BATCH-07")
@pytest.mark.parametrize("joined", [True, False])
def test_cancelled_item_leaves_the_others_answered(joined: bool) -> None:
    connection = server(B, join_batch_answers=joined)
    feed(connection, [tools(1), tools(2), tools(3)])
    assert isinstance(one(connection, note("cancelled", requestId=2)), CancelReceived)
    for id in (1, 2, 3):
        answer(connection, id)
    (messages,) = sent(connection) if joined else [sent(connection)]
    assert [message["id"] for message in messages] == [1, 3]


@pytest.mark.req("BATCH-07")
def test_progress_belongs_to_one_item() -> None:
    connection = server(B)
    feed(connection, [call(1, progressToken="a"), call(2)])
    connection.send_progress(IncomingId(1), 1)
    connection.send_progress(IncomingId(2), 1)
    assert [message["params"]["progressToken"] for message in sent(connection)] == ["a"]


@pytest.mark.req("SEC-10")
def test_item_counts_against_the_request_limit() -> None:
    connection = server(B, limits=Limits(batch_items=3, incoming_requests=2))
    feed(connection, [tools(1), tools(2), tools(3)])
    assert codes(sent(connection)) == [-32603]
    assert isinstance(one(connection, [NOTE] * 4), ProtocolViolated)
    assert connection.pending.incoming == (1, 2)


def test_second_use_of_an_id_in_a_batch_is_refused() -> None:
    connection = server(B)
    feed(connection, [tools(1), tools(1)])
    assert codes(sent(connection)) == [-32600]


def test_items_after_the_end_are_ignored() -> None:
    connection = server(B, limits=Limits(queued_bytes=4 * MESSAGE_COST))
    events = feed(connection, [5] * 50)
    assert isinstance(events[-1], ConnectionClosed)
    assert len(events) < 10


# Answered with one array


@pytest.mark.req("BATCH-05")
def test_joined_answers_go_out_in_one_array_when_complete() -> None:
    connection = joining()
    feed(connection, [tools(1), request("ping", "p"), 5, tools(2)])
    answer(connection, 2)
    assert sent(connection) == []
    feed(connection, request("ping", "alone"))
    assert codes(sent(connection)) == ["alone"]
    connection.send_error(IncomingId(1), RequestError(7, "no"))
    (answers,) = sent(connection)
    assert codes(answers) == ["p", -32600, 2, 7]


def test_batch_of_automatic_answers_is_answered_at_once() -> None:
    connection = joining()
    feed(connection, [request("ping", 1), request("no/such", 2)], via="exchange")
    message = connection.next_message()
    assert message is not None
    assert codes(json.loads(message.text)) == [1, -32601]
    assert (message.via, message.related, message.last) == ("exchange", None, True)
    assert connection.next_message() is None


def test_several_batches_wait_independently() -> None:
    connection = joining()
    feed(connection, [tools(1), tools(2)], via="a")
    feed(connection, [tools(1)], tools(9), via="b")
    answer(connection, 4)
    answer(connection, 1)
    answer(connection, 3)
    assert [
        (m.via, codes(v) if isinstance(v := json.loads(m.text), list) else v["id"]) for m in _messages(connection)
    ] == [
        ("b", 9),
        ("b", [1]),
    ]
    answer(connection, 2)
    (last,) = _messages(connection)
    assert (last.via, codes(json.loads(last.text))) == ("a", [1, 2])


def test_item_cancelled_by_its_batch_is_not_awaited() -> None:
    connection = joining()
    events = feed(connection, [tools(1), note("cancelled", requestId=1), request("ping", 2)])
    assert [type(event) for event in events] == [RequestReceived, CancelReceived, Answered]
    assert [codes(answers) for answers in sent(connection)] == [[2]]
    feed(connection, [tools(3)])
    feed(connection, note("cancelled", requestId=3))
    assert sent(connection) == []
    feed(connection, tools(4))
    answer(connection, 3)
    assert [message["id"] for message in sent(connection)] == [4]


@pytest.mark.req("BATCH-05")
def test_joined_array_follows_the_notifications_of_its_requests() -> None:
    connection = joining()
    feed(connection, [call(1, progressToken="a"), call(2, progressToken="b")], tools(3))
    for number in range(1, 4):
        connection.send_progress(IncomingId(1), number)
        connection.send_progress(IncomingId(2), number)
    answer(connection, 3)
    connection.send_result(IncomingId(2), CallToolResult(()))
    connection.send_result(IncomingId(1), CallToolResult(()))
    messages = sent(connection)
    assert [message.get("id") for message in messages if isinstance(message, dict)].count(3) == 1
    assert isinstance(messages[-1], list) or messages[-1]["id"] == 3
    array = next(at for at, message in enumerate(messages) if isinstance(message, list))
    assert {m["params"]["progressToken"] for m in messages[:array] if "params" in m} == {"a", "b"}
    assert not [m for m in messages[array:] if isinstance(m, dict) and "params" in m]


def test_waiting_answers_beyond_the_limit_end_the_connection() -> None:
    connection = joining(limits=Limits(queued_bytes=2000))
    feed(connection, [tools(1), tools(2), call(3)])
    connection.send_result(IncomingId(3), CallToolResult((), structured_content=None, meta={"x": "y" * 1500}))
    assert not connection.closed
    connection.send_error(IncomingId(2), RequestError(1, "x" * 800))
    (end,) = connection.events()
    assert isinstance(end, ConnectionClosed)
    assert end.reason is CloseReason.SLOW_CONSUMER


@pytest.mark.parametrize("missing", [0, 1])
def test_waiting_answers_up_to_the_limit_are_kept(missing: int) -> None:
    def answered(limit: int) -> ServerConnection:
        connection = joining(limits=Limits(queued_bytes=limit))
        feed(connection, [tools(1), tools(2)])
        connection.send_error(IncomingId(2), RequestError(1, "x" * 800))
        return connection

    amply = answered(5000)
    assert amply._batches is not None
    events = answered(amply.held.output + amply._batches.size - missing).events()
    assert [type(event) for event in events] == [ConnectionClosed] * missing


def test_items_of_a_batch_weigh_as_much_as_single_messages() -> None:
    requests = [call(id, name="x" * 500) for id in range(1, 11)]
    together, singly = server(B), server(B)
    assert len(feed(together, requests)) == 10
    for each in requests:
        feed(singly, each)
    assert 0.9 * singly.held.requests < together.held.requests < 1.1 * singly.held.requests


def test_automatic_answers_beyond_the_limit_end_the_connection() -> None:
    connection = joining(limits=Limits(queued_bytes=1000))
    events = feed(connection, [tools(1)] + [5] * 100)
    assert isinstance(events[-1], ConnectionClosed)
    flooded = joining(limits=Limits(queued_bytes=1000))
    assert isinstance(feed(flooded, [5] * 100)[-1], ConnectionClosed)


def test_end_within_a_batch_drops_waiting_answers() -> None:
    connection = joining()
    feed(connection, [tools(1), request("ping", 2)])
    connection.abort()
    assert [type(event) for event in connection.events()] == [ConnectionClosed]
    assert sent(connection) == []
    answer(connection, 1)
    assert sent(connection) == []


def test_overflow_within_a_joined_batch_ends_the_connection() -> None:
    connection = joining(limits=Limits(queued_bytes=300 + MESSAGE_COST))
    connection.send_request(PingRequest(), now=0.0, cookie="x")
    events = feed(connection, [note("cancelled", requestId=1), tools(1), note("cancelled", requestId=1), tools(2)])
    assert connection.phase is Phase.OPERATING
    assert len(events) == 4


def test_nothing_is_sent_after_an_item_of_a_joined_batch_ended_the_connection() -> None:
    connection = joining(limits=Limits(queued_bytes=2000))
    feed(connection, [tools(1), call(2)])
    connection.send_error(IncomingId(1), RequestError(1, "x" * 1930))
    events = feed(connection, [request("ping", 9), call(3), note("cancelled", requestId=3)])
    assert isinstance(events[-1], ConnectionClosed)
    assert not connection.wants_write
    assert connection.data_to_send() == []


def test_snapshot_keeps_waiting_batches() -> None:
    connection = joining()
    feed(connection, [tools(1), request("ping", 2), tools(3)], via="exchange")
    answer(connection, 1)
    snapshot = json.loads(json.dumps(connection.snapshot(1.0)))
    moved = ServerConnection.restore(snapshot, 1.0, options=Options(join_batch_answers=True))
    assert moved.snapshot(1.0) == snapshot
    answer(moved, 2)
    (message,) = _messages(moved)
    assert (message.via, codes(json.loads(message.text))) == ("exchange", [2, 1, 3])
    for ids, running in (([2], []), ([], [2])):
        batches = [{"via": None, "ids": ids, "running": running, "answers": []}]
        with pytest.raises(LocalProtocolError, match="a batch that waits for nothing of its own"):
            ServerConnection.restore({**snapshot, "batches": batches}, 1.0)
    for running in ([2, 2], [1], [9]):
        batches = [{"via": None, "ids": [1, 2, 9], "running": running, "answers": []}]
        with pytest.raises(LocalProtocolError, match="a batch waits for answers to"):
            ServerConnection.restore({**snapshot, "batches": batches}, 1.0)


def test_closing_server_answers_its_batches_first() -> None:
    connection = joining()
    feed(connection, [tools(1), tools(2)])
    connection.receive_data(None, 0.0)
    list(connection.events())
    answer(connection, 1)
    assert sent(connection) == []
    answer(connection, 2)
    answers, end = sent(connection)
    assert codes(answers) == [1, 2]
    assert end is None


# Dialects (what they say is shown in test_dialect and test_profiles)


def test_dialect_line_may_hold_several_messages_and_a_close() -> None:
    connection = server(profiles={Profile.ERLMCP})
    connection.receive_data(
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","method":"shutdown","id":2}\n', 0.0
    )
    events = list(connection.events())
    assert [type(event) for event in events] == [Answered, Answered]
    assert connection.phase is Phase.CLOSING
    assert [None if message is None else message["id"] for message in sent(connection)] == [1, 2, None]


def test_rest_of_a_line_after_the_end_is_ignored() -> None:
    connection = server(profiles={Profile.ERLMCP}, limits=Limits(queued_bytes=4 * MESSAGE_COST))
    connection.receive_data(b'{"a":1}' * 50 + b"\n", 0.0)
    events = list(connection.events())
    assert isinstance(events[-1], ConnectionClosed)
    assert len(events) < 10


def test_batch_items_may_be_in_a_dialect() -> None:
    connection = server(B, profiles={Profile.ERLMCP, Profile.LSP_ALIASES})
    feed(connection, tools(1))
    cancel = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 1}}
    events = feed(connection, [cancel, request("requests/cancel", 5, requestId=9), request("shutdown", 6)])
    assert [type(event) for event in events] == [CancelReceived, MessageIgnored, Answered, Answered]
    assert connection.phase is Phase.CLOSING


def test_failing_tasks_create_hook_is_an_internal_error() -> None:
    def hook(params: Any) -> Any:
        raise ZeroDivisionError

    connection = server(profiles={Profile.ERLMCP}, on_tasks_create=hook)
    event = one(connection, request("tasks/create", 1))
    assert isinstance(event, Answered)
    assert event.error is not None
    assert isinstance(event.error.__cause__, ZeroDivisionError)
    assert codes(sent(connection)) == [-32603]


def test_emitted_dialect_need_not_be_understood() -> None:
    connection = server(emit_profile=Profile.ERLMCP)
    feed(connection, call(1, progressToken="a"))
    connection.send_progress(IncomingId(1), 1)
    assert [message["method"] for message in sent(connection)] == ["progress"]
    assert codes(feed(connection, request("shutdown", 2)) and sent(connection)) == [-32601]


def test_results_are_translated_by_the_method_of_their_request() -> None:
    connection = server(profiles={Profile.ERLMCP})
    assert isinstance(one(connection, result(77)), ProtocolViolated)
    assert isinstance(one(connection, result("x")), ProtocolViolated)


def _messages(connection: Connection) -> list[Any]:
    found = []
    while (message := connection.next_message()) is not None:
        found.append(message)
    return found
