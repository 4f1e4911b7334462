"""P7: ids cannot cross wires. Routing keys are ours; a peer's id is only echoed, on the exchange it came from."""

from __future__ import annotations

import json
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpio.engine.server import ServerConnection
from mcpio.errors import LocalProtocolError
from mcpio.events import Answered, CancelReceived, IgnoreReason, IncomingId, MessageIgnored, RequestReceived
from mcpio.types import CallToolResult, Implementation, ServerCapabilities, TextContent, ToolsCapability

WIRE_IDS: list[int | str] = [1, "1", 0, "0", "", -1, 2**64, str(2**64), "1.0", "true", "null"]
"""Ids that compare equal in Python but differ in JSON."""


@settings(max_examples=examples(50))
@given(order=st.permutations(WIRE_IDS), answers=st.permutations(range(len(WIRE_IDS))))
@pytest.mark.req("RPC-07", "RPC-08", "RPC-21")
def test_each_response_on_one_channel_has_the_id_of_its_request(order: list[int | str], answers: list[int]) -> None:
    server = _server()
    received = [_call(server, wire_id) for wire_id in order]
    assert len({event.id for event in received}) == len(order)
    for at in answers:
        server.send_result(received[at].id, CallToolResult((TextContent(repr(order[at])),)))
    sent = [json.loads(chunk or b"") for chunk in server.data_to_send()]
    assert len(sent) == len(order)
    assert all(message["result"]["content"][0]["text"] == repr(message["id"]) for message in sent)


def test_result_that_is_kept_is_sent_under_the_id_of_each_request() -> None:
    server, kept = _server(), dict[Any, bytes]()
    for event in [_call(server, wire_id) for wire_id in WIRE_IDS]:
        server.send_result(event.id, CallToolResult(()), kept=kept)
    assert len(kept) == 1
    assert [json.loads(chunk or b"")["id"] for chunk in server.data_to_send()] == WIRE_IDS


@settings(max_examples=examples(50))
@given(second=st.sampled_from(WIRE_IDS), first=st.sampled_from(WIRE_IDS))
@pytest.mark.req("RPC-07")
def test_duplicate_id_in_flight_is_refused_and_first_request_continues(first: int | str, second: int | str) -> None:
    server = _server()
    running = _call(server, first)
    _feed(server, id=second, method="tools/call", params={"name": "t"})
    (event,) = server.events()
    if type(first) is type(second) and first == second:
        assert isinstance(event, Answered)
        assert [json.loads(chunk or b"")["error"]["code"] for chunk in server.data_to_send()] == [-32600]
    else:
        assert isinstance(event, RequestReceived)
    server.send_result(running.id, CallToolResult(()))
    assert [json.loads(chunk or b"")["id"] for chunk in server.data_to_send()] == [first]


@settings(max_examples=examples(50))
@given(
    calls=st.lists(st.tuples(st.sampled_from(["a", "b", 3]), st.sampled_from([1, "1", 2])), unique=True, max_size=9),
    data=st.data(),
)
@pytest.mark.req("RPC-07")
def test_each_response_goes_to_the_exchange_of_its_request(
    calls: list[tuple[Any, int | str]], data: st.DataObject
) -> None:
    server = _server()
    received = {call: _call(server, call[1], via=call[0]) for call in calls}
    assert all(event.context.via == via for (via, _), event in received.items())
    for call in data.draw(st.permutations(calls)):
        server.send_result(received[call].id, CallToolResult((TextContent(repr(call)),)))
    sent = []
    while (message := server.next_message()) is not None:
        text = json.loads(message.text)
        assert text["result"]["content"][0]["text"] == repr((message.via, text["id"]))
        assert message.last
        sent.append((message.via, text["id"]))
    assert sorted(map(repr, sent)) == sorted(map(repr, calls))


@pytest.mark.req("RPC-07", "CANC-06")
def test_cancellation_of_an_id_used_by_twelve_exchanges_is_ambiguous() -> None:
    server = _server()
    ids = [_call(server, 1, via=exchange).id for exchange in range(1, 13)]
    _feed(server, "another", method="notifications/cancelled", params={"requestId": 1})
    (ignored,) = server.events()
    assert isinstance(ignored, MessageIgnored)
    assert (ignored.reason, ignored.via) == (IgnoreReason.AMBIGUOUS_REQUEST, "another")
    _feed(server, 5, method="notifications/cancelled", params={"requestId": 1})
    (cancelled,) = server.events()
    assert isinstance(cancelled, CancelReceived)
    assert cancelled.id == ids[4]
    for id in ids:
        server.send_result(id, CallToolResult(()))
    routes = []
    while (message := server.next_message()) is not None:
        routes.append((message.via, message.text))
    answer = b'{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'
    assert sorted(routes) == [(exchange, answer) for exchange in range(1, 13) if exchange != 5]


@pytest.mark.parametrize("id", [0, -1, 2, 99])
def test_unknown_request_key_is_refused(id: int) -> None:
    server = _server()
    _call(server, id)
    with pytest.raises(LocalProtocolError):
        server.send_result(IncomingId(id), CallToolResult(()))
    assert not server.wants_write


def _server() -> ServerConnection:
    server = ServerConnection(Implementation("s", "1"), ServerCapabilities(tools=ToolsCapability()))
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    _feed(server, id="initialize", method="initialize", params=params)
    _feed(server, method="notifications/initialized")
    assert len(list(server.events())) == 2
    server.data_to_send()
    return server


def _feed(server: ServerConnection, via: Any = None, **message: Any) -> None:
    server.receive_message(json.dumps({"jsonrpc": "2.0", **message}), 0.0, via=via)


def _call(server: ServerConnection, wire_id: int | str, via: Any = None) -> RequestReceived:
    _feed(server, via, id=wire_id, method="tools/call", params={"name": "t"})
    (event,) = server.events()
    assert isinstance(event, RequestReceived)
    return event
