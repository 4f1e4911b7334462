"""Ids cannot cross wires (P7): routing keys are ours, and the peer's ids are only echoed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wires import call, client, feed, note, one, request, result, sent, server

from mcpio.errors import LocalProtocolError
from mcpio.events import (
    Answered,
    IgnoreReason,
    MessageIgnored,
    ProtocolViolated,
    RequestReceived,
    ResponseReceived,
)
from mcpio.types.features import (
    CallToolResult,
    ListToolsRequest,
    PingRequest,
)


@pytest.mark.req("RPC-07", "RPC-05")
def test_id_in_flight_on_one_channel_is_refused() -> None:
    connection = server()
    first, second, other = feed(connection, call(1), call(1), call("1"))
    assert isinstance(second, Answered)
    assert isinstance(other, RequestReceived)
    assert [(answer["id"], answer["error"]["code"]) for answer in sent(connection)] == [(1, -32600)]
    connection.send_result(first.id, CallToolResult(()))
    assert "result" in sent(connection)[0]
    again = one(connection, call(1))
    assert isinstance(again, RequestReceived)
    assert again.reused_id


@pytest.mark.req("RPC-05")
def test_outgoing_ids_are_never_reused() -> None:
    connection: Any = client("2025-03-26")
    used = [1]  # that of initialize

    def ids() -> list[int]:
        texts = [each for each in sent(connection) if each is not None]
        messages = [message for each in texts for message in (each if isinstance(each, list) else [each])]
        return [message["id"] for message in messages if "id" in message]

    def ask(**options: Any) -> int:
        id = connection.send_request(PingRequest(), now=connection_now, **options)
        used.extend(ids())
        return int(id)

    connection_now = 0.0
    feed(connection, result(ask()))
    feed(connection, {"jsonrpc": "2.0", "id": ask(), "error": {"code": 1, "message": "no"}})
    feed(connection, {"jsonrpc": "2.0", "id": ask(), "result": None})
    cancelled = ask()
    connection.cancel_request(cancelled)
    feed(connection, result(cancelled))
    ask(timeout=1.0)
    connection.handle_timeout(2.0)
    connection_now = 2.0
    connection.send_batch([PingRequest(), PingRequest()], now=2.0)
    used.extend(ids())
    with pytest.raises(LocalProtocolError):
        connection.send_request(ListToolsRequest(), now=2.0, related_to=99)
    ask()
    list(connection.events())
    connection = type(connection).restore(connection.snapshot(2.0), 2.0)
    ask()
    connection.reset_session(2.0)
    list(connection.events())
    used.append(int(connection.send_initialize(now=2.0)))
    assert used == list(range(1, len(used) + 1))
    assert len(used) == 11


@pytest.mark.req("RPC-07")
def test_exchanges_with_equal_ids_get_their_own_answers() -> None:
    connection = server()
    events = [one(connection, request("tools/call", 1, name=f"t{number}"), via=number) for number in range(12)]
    assert not any(event.reused_id for event in events)
    assert isinstance(one(connection, call(1), via=3), Answered)
    refusal = connection.next_message()
    assert refusal is not None
    assert (refusal.via, refusal.last) == (3, True)
    for event in reversed(events):
        connection.send_raw_result(event.id, json.dumps({"name": event.request.name}).encode())
    answers = {}
    while (message := connection.next_message()) is not None:
        answers[message.via] = json.loads(message.text)
    assert answers == {number: result(1, name=f"t{number}") for number in range(12)}


@pytest.mark.req("PROG-01", "PROG-05")
@pytest.mark.parametrize("token", [1, "1", 0, "", 2**70])
def test_progress_token_is_echoed_unchanged(token: Any) -> None:
    connection = server()
    event = one(connection, call(progressToken=token))
    connection.send_progress(event.id, 0.5)
    assert sent(connection) == [note("progress", progressToken=token, progress=0.5)]


@pytest.mark.req("RPC-08", "RPC-18", "RPC-05")
@pytest.mark.parametrize("wrong", ["2", 2.5, 3, 0, -2, 10**30, "x" * 1000])
def test_unexpected_answer_is_reported_and_changes_nothing(wrong: Any) -> None:
    connection = client()
    id = connection.send_request(ListToolsRequest(), now=0.0)
    assert id == 2
    event = one(connection, result(wrong, tools=[]))
    assert isinstance(event, ProtocolViolated)
    assert connection.pending.outgoing == (id,)
    assert isinstance(
        one(connection, {"jsonrpc": "2.0", "id": wrong, "error": {"code": 1, "message": ""}}), ProtocolViolated
    )
    assert isinstance(one(connection, result(2, tools=[])), ResponseReceived)
    assert [message["method"] for message in sent(connection)] == ["tools/list"]


@pytest.mark.req("RPC-07", "CANC-06")
def test_ambiguous_cancellation_is_ignored() -> None:
    connection = server()
    one_, two, three = (one(connection, call(id), via=via) for id, via in ((1, "a"), (1, "b"), (2, "c")))
    message = note("cancelled", requestId=1)
    ambiguous = MessageIgnored(IgnoreReason.AMBIGUOUS_REQUEST, message, "d")
    assert one(connection, message, via="d") == ambiguous
    assert one(connection, note("cancelled", requestId=2), via="d").id == three.id
    assert one(connection, message, via="a").id == one_.id
    assert one(connection, message, via="d").id == two.id


@pytest.mark.req("CANC-06", "CANC-02", "CANC-03", "CANC-08")
@pytest.mark.parametrize(
    "message",
    [
        note("cancelled", requestId="1"),
        note("cancelled", requestId=2),
        note("cancelled", requestId=0),
        note("cancelled", requestId="unknown", reason="x"),
        note("cancelled", reason="no id: a slip that the latest revision's schema allows"),
    ],
)
def test_cancellation_of_a_finished_request_is_ignored(message: Any) -> None:
    connection = server()
    first = one(connection, call(1))
    connection.send_request(PingRequest(), now=0.0)
    sent(connection)
    assert one(connection, message) == MessageIgnored(IgnoreReason.UNKNOWN_REQUEST, message, None)
    connection.send_result(first.id, CallToolResult(()))
    crossed = note("cancelled", requestId=1)
    assert one(connection, crossed) == MessageIgnored(IgnoreReason.UNKNOWN_REQUEST, crossed, None)
    assert [message["id"] for message in sent(connection)] == [1]
    assert connection.pending.outgoing == (1,)
