"""P8: decoding is total and lossless: a gateway of two engines forwards unknown members."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpio.engine.client import ClientConnection
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.errors import ErrorCode, LocalProtocolError
from mcpio.events import Answered, NotificationReceived, RequestReceived, ResponseReceived
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    Implementation,
    ListToolsRequest,
    ListToolsResult,
    RawNotification,
    RawRequest,
    ServerCapabilities,
    TextContent,
    Tool,
    ToolsCapability,
    UnknownContent,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
unknown = st.dictionaries(st.sampled_from(["x", "acme/y", "X", "_z", "é", "toolz"]), values, max_size=3)

CALL = {"name": "t", "arguments": {"a": [1, 2.5, None, "é"]}, "_meta": {"com.example/k": 1}}
RESULT = {
    "content": [
        {"type": "text", "text": "hi", "annotations": {"audience": ["user"], "priority": 0.5}},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "x:y", "text": "t", "mimeType": "text/plain"}},
        {"type": "resource_link", "uri": "x:y", "name": "n", "icons": [{"src": "data:,", "sizes": ["1x1"]}]},
        {"type": "hologram", "depth": 3},
    ],
    "structuredContent": {"n": 12345678901234567890123},
    "isError": False,
    "_meta": {"b": {}},
}
TOOLS: dict[str, Any] = {
    "tools": [
        {
            "name": f"tool {number}",
            "inputSchema": {"type": "object", "$defs": {"a": {"$anchor": "b"}}, "x-other": [1]},
            "annotations": {"readOnlyHint": True},
            "execution": {"taskSupport": "forbidden"},
        }
        for number in range(312)
    ],
    "nextCursor": "",
}


more = st.lists(st.tuples(st.integers(0, 40), unknown), max_size=4)


def _sprinkled(value: Any, more: list[tuple[int, dict[str, Any]]]) -> Any:
    """Return a copy with unknown members added to the numbered objects, at any depth."""
    value = copy.deepcopy(value)
    objects = list(_objects(value))
    for number, members in more:
        inside = objects[number % len(objects)]
        inside.update({key: each for key, each in members.items() if key not in inside})
    return value


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every nested object except ``_meta``, whose keys follow other rules (META-02)."""
    if isinstance(value, dict):
        yield value
        value = [each for key, each in value.items() if key != "_meta"]
    if isinstance(value, list):
        for inside in value:
            yield from _objects(inside)


@settings(max_examples=examples(50))
@given(with_call=more, with_result=more)
@pytest.mark.req("RPC-17", "META-01")
def test_gateway_passes_call_and_result_unchanged(with_call: Any, with_result: Any) -> None:
    front, back = _gateway()
    params, result = _sprinkled(CALL, with_call), _sprinkled(RESULT, with_result)
    assert _asked(front, back, "tools/call", params) == params
    assert _answered(front, back, result) == result


def test_one_malformed_tool_among_many_costs_one_tool() -> None:
    tools = copy.deepcopy(TOOLS)
    tools["tools"][100] = {"name": 5, "inputSchema": {}}
    front, back = _gateway()
    _asked(front, back, "tools/list", {})
    back.receive_data(_line(id=2, result=tools), 0.0)
    (event,) = back.events()
    assert isinstance(event, ResponseReceived)
    assert isinstance(event.result, ListToolsResult)
    assert len(event.result.tools) == 311
    (bad,) = event.result.malformed
    assert (bad.index, bad.raw) == (100, tools["tools"][100])
    front.send_result(front.pending.incoming[0], event.result)
    assert _sent(front)["result"] == tools


@pytest.mark.parametrize("count", [1, 9, 10, 11, 1000])
def test_gateway_passes_each_item_of_a_list(count: int) -> None:
    result = {"content": [{"type": "text", "text": str(number)} for number in range(count)]}
    params = {"name": "t", "arguments": {"rows": list(range(count))}}
    front, back = _gateway()
    assert _asked(front, back, "tools/call", params) == params
    assert _answered(front, back, result) == result


def test_gateway_passes_messages_of_an_extension_unchanged() -> None:
    front, back = _gateway()
    params = {"a": [1, None, {"b": 2.5}], "_meta": {"com.example/k": 1}}
    front.receive_data(_line(method="acme/told", params=params), 0.0)
    front.receive_data(_line(id="x", method="acme/ask", params=params), 0.0)
    told, asked = front.events()
    assert isinstance(told, NotificationReceived)
    assert isinstance(asked, RequestReceived)
    back.send_notification(told.notification)
    back.send_request(asked.request, now=0.0)
    back.send_notification(RawNotification("acme/told", params))
    back.send_request(RawRequest("acme/ask", params), now=0.0)
    sent = [json.loads(chunk or b"") for chunk in back.data_to_send(10**6)]
    assert [each["params"] for each in sent] == [params] * 4
    result = {"anything": [None, {"at": "all"}]}
    assert _answered(front, back, result) == result


def test_response_event_has_the_message_as_it_came() -> None:
    front, back = _gateway()
    _asked(front, back, "tools/call", {"name": "t"})
    message = {"jsonrpc": "2.0", "id": 2, "result": RESULT, "x": [1]}
    back.receive_data(json.dumps(message).encode() + b"\n", 0.0)
    (event,) = back.events()
    assert isinstance(event, ResponseReceived)
    assert event.raw == message


def test_request_with_a_wrong_optional_member_is_refused_not_served_without_it() -> None:
    # Without its cursor, the request asks for the first page: its sender would read that page for ever.
    front, _ = _gateway()
    front.receive_data(_line(id="a", method="tools/list", params={"cursor": 5}), 0.0)
    assert [type(event) for event in front.events()] == [Answered]
    assert _sent(front)["error"]["code"] == ErrorCode.INVALID_PARAMS


@pytest.mark.parametrize("wrong", ["a text", 5, None, TextContent("other")])
def test_result_with_an_item_of_another_class_is_refused_and_names_it(wrong: Any) -> None:
    front, back = _gateway()
    _asked(front, back, "tools/list", {})
    (id,) = front.pending.incoming
    with pytest.raises(LocalProtocolError, match=r"tools\[1\]: expected Tool"):
        front.send_result(id, ListToolsResult((Tool("t", {"type": "object"}), wrong)))
    assert front.pending.incoming == (id,)
    assert front.data_to_send() == []


def test_unknown_content_type_is_a_value() -> None:
    front, back = _gateway()
    _asked(front, back, "tools/call", {"name": "t"})
    back.receive_data(_line(id=2, result=RESULT), 0.0)
    (event,) = back.events()
    assert isinstance(event, ResponseReceived)
    assert isinstance(event.result, CallToolResult)
    assert event.result.content[-1] == UnknownContent("hologram", {"type": "hologram", "depth": 3})


@settings(max_examples=examples(50))
@given(params=st.dictionaries(st.text(max_size=4), values, max_size=3) | values, result=values)
def test_any_json_is_decoded_or_refused(params: Any, result: Any) -> None:
    front, back = _gateway()
    front.receive_data(_line(id="a", method="tools/call", params=params), 0.0)
    assert len(list(front.events())) == 1
    back.send_request(CallToolRequest("t"), now=0.0)
    back.receive_data(_line(id=2, result=result), 0.0)
    assert len(list(back.events())) == 1


def _asked(front: ServerConnection, back: ClientConnection, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send a request to the gateway; return the params that leave it."""
    front.receive_data(_line(id="outside", method=method, params=params), 0.0)
    (event,) = front.events()
    assert isinstance(event, RequestReceived)
    assert isinstance(event.request, CallToolRequest | ListToolsRequest)
    back.send_request(event.request, now=0.0)
    passed: dict[str, Any] = _sent(back).get("params", {})
    return passed


def _answered(front: ServerConnection, back: ClientConnection, result: dict[str, Any]) -> dict[str, Any]:
    """Answer the forwarded request; return the result that reaches the client."""
    back.receive_data(_line(id=2, result=result), 0.0)
    (event,) = back.events()
    assert isinstance(event, ResponseReceived)
    front.send_result(front.pending.incoming[0], event.result)
    passed: dict[str, Any] = _sent(front)["result"]
    return passed


def _gateway() -> tuple[ServerConnection, ClientConnection]:
    about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
    options = Options(custom_methods={"acme/ask"})
    front = ServerConnection(
        Implementation("gateway", "1"), ServerCapabilities(tools=ToolsCapability()), options=options
    )
    front.receive_data(
        _line(id=0, method="initialize", params={**about, "clientInfo": {"name": "c", "version": ""}}), 0.0
    )
    front.receive_data(_line(method="notifications/initialized"), 0.0)
    back = ClientConnection(Implementation("gateway", "1"))
    back.send_initialize(now=0.0)
    back.receive_data(_line(id=1, result={**about, "serverInfo": {"name": "s", "version": ""}}), 0.0)
    assert len([*front.events(), *back.events()]) == 3
    front.data_to_send()
    back.data_to_send()
    return front, back


def _line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def _sent(connection: ServerConnection | ClientConnection) -> dict[str, Any]:
    (chunk,) = connection.data_to_send()
    message: dict[str, Any] = json.loads(chunk or b"")
    return message
