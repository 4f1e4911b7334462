"""Messages with more values, or more items to decode, than the limits allow; and long ones that are within them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from operating import call, lines, operating_client, operating_server, ping
from wires import sent

from mcpio.engine.client import ClientConnection
from mcpio.engine.limits import Limits
from mcpio.engine.server import ServerConnection
from mcpio.errors import InvalidMessage
from mcpio.events import (
    Answered,
    ProtocolViolated,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
)
from mcpio.framing.jsonrpc import MOST_VALUES
from mcpio.types.content import TextContent
from mcpio.types.features import CallToolRequest, ClientCapabilities, ListToolsRequest, SamplingCapability

VALUES: dict[str, Any] = {"message_values": 30}
ITEMS: dict[str, Any] = {"message_items": 10}
TOOL = {"name": "t", "inputSchema": {"type": "object"}}


def feed(connection: ClientConnection | ServerConnection, text: str | bytes) -> list[Any]:
    connection.receive_message(text, 0.0)
    return list(connection.events())


def errors(connection: ClientConnection | ServerConnection) -> list[tuple[Any, int]]:
    return [(message.get("id"), message["error"]["code"]) for message in sent(connection)]


MANY = json.dumps([0] * 60)
ARGUMENTS = f'"params":{{"name":"x","arguments":{{"a":{MANY}}}}}'


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize(
    ("text", "id"),
    [
        (f'{{"jsonrpc":"2.0","id":5,"method":"tools/call",{ARGUMENTS}}}', 5),
        (f'{{"id":"a b","jsonrpc":"2.0","method":"tools/call",{ARGUMENTS}}}', "a b"),
        (f'{{"method":"tools/call",{ARGUMENTS},"jsonrpc":"2.0","id":7}}', 7),
        (f'{{"jsonrpc": "2.0", "method": "tools/call", {ARGUMENTS}, "id": "x" }}', "x"),
        (f'{{"method":"tools/call",{ARGUMENTS},"id":7,"jsonrpc":"2.0"}}', 7),
        (f'{{{ARGUMENTS},"method":"tools/call","id":7,"jsonrpc":"2.0"}}', None),
        (f'{{"jsonrpc":"2.0","id":"\\u0041","method":"tools/call",{ARGUMENTS}}}', None),
        (MANY, None),
    ],
)
def test_request_with_too_many_values_is_refused_by_its_id(text: str, id: Any) -> None:
    for form in (text, text.encode()):
        server = operating_server(**VALUES)
        (event,) = feed(server, form)
        assert isinstance(event, ProtocolViolated)
        assert str(event.error) == "a message has more than 30 values"
        assert errors(server) == [(id, -32600)]
        (event,) = feed(server, json.dumps(call(9)))
        assert isinstance(event, RequestReceived)


def test_request_with_too_many_values_is_refused_while_requests_wait_for_room() -> None:
    server = operating_server(peer_bytes=20_000, **VALUES)
    for id in range(8):
        feed(server, json.dumps(call(id)))
    assert server.has_deferred(None)
    (event,) = feed(server, f'{{"jsonrpc":"2.0","id":50,"method":"tools/call",{ARGUMENTS}}}')
    assert isinstance(event, ProtocolViolated)
    assert errors(server) == [(50, -32600)]


def test_response_with_too_many_values_fails_its_request() -> None:
    client = operating_client(limits=Limits(**VALUES))
    id = client.send_request(CallToolRequest("x"), 0.0)
    (event,) = feed(client, f'{{"jsonrpc":"2.0","id":{id},"result":{{"structuredContent":{{"a":{MANY}}}}}}}')
    assert isinstance(event, RequestFailed)
    assert str(event.error) == "the answer is malformed: a message has more than 30 values"


@pytest.mark.parametrize("text", [",[{" * 100, '\\",[{' * 100, "\\\\,{" * 100, '\\\\\\",' * 100])
def test_separators_in_a_string_are_no_values(text: str) -> None:
    server = operating_server(**VALUES)
    (event,) = feed(server, f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{text}"}}}}')
    assert isinstance(event, RequestReceived)


def test_line_with_too_many_values_costs_itself_alone() -> None:
    server = operating_server(**VALUES)
    many = {**call(1), "params": {"name": "x", "arguments": {"a": [0] * 60}}}
    server.receive_data(lines(call(0), many, ping(2)), 0.0)
    assert [type(event) for event in server.events()] == [RequestReceived, ProtocolViolated, Answered]


# Items


def page(*tools: Any) -> str:
    return json.dumps({"tools": tools})


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize(
    "result",
    [
        page(*[TOOL] * 11),
        page(*[5] * 11),
        page(*[TOOL, {}] * 6),
        page({**TOOL, "icons": [{"src": "a"}] * 10}),
        page(*[{**TOOL, "icons": [{"src": "a"}]}] * 6),
        page({**TOOL, "icons": [5] * 11}),
    ],
)
def test_page_with_too_many_items_fails_its_request(result: str) -> None:
    client = operating_client(limits=Limits(**ITEMS))
    id = client.send_request(ListToolsRequest(), 0.0)
    (event,) = feed(client, f'{{"jsonrpc":"2.0","id":{id},"result":{result}}}')
    assert isinstance(event, RequestFailed)
    assert isinstance(event.error, InvalidMessage)
    assert event.error.reason == "more than 10 items"


@pytest.mark.parametrize("tools", [[TOOL] * 10, [TOOL, {}] * 5, [{**TOOL, "icons": [{"src": "a"}]}] * 5])
def test_page_within_the_limit_is_read(tools: list[Any]) -> None:
    client = operating_client(limits=Limits(**ITEMS))
    id = client.send_request(ListToolsRequest(), 0.0)
    (event,) = feed(client, f'{{"jsonrpc":"2.0","id":{id},"result":{page(*tools)}}}')
    assert isinstance(event, ResponseReceived)
    assert len(event.result.tools) + len(event.result.malformed) == len(tools)


def asked_client(accept_batches: bool = False, **limits: Any) -> ClientConnection:
    client = operating_client(accept_batches=accept_batches, limits=Limits(**limits))
    client.capabilities = ClientCapabilities(sampling=SamplingCapability())
    return client


def sampling(id: int, count: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": {"type": "text", "text": "a"}}] * count
    params = {"maxTokens": 1, "messages": messages}
    return {"jsonrpc": "2.0", "id": id, "method": "sampling/createMessage", "params": params}


def test_request_with_too_many_items_is_refused_by_its_id() -> None:
    client = asked_client(**ITEMS)
    (event,) = feed(client, json.dumps(sampling(5, 11)))
    assert isinstance(event, Answered)
    assert errors(client) == [(5, -32602)]


def test_what_is_not_decoded_is_not_counted_as_items() -> None:
    server = operating_server(**ITEMS)
    members: dict[str, Any] = {f"a{number}": [{}] for number in range(100)}
    params = {"name": "x", "arguments": members, "_meta": members, **members}
    (event,) = feed(server, json.dumps({**call(1), "params": params}))
    assert isinstance(event, RequestReceived)
    assert event.request == CallToolRequest("x", members, meta=members, extra=members)


def test_messages_of_a_batch_share_the_limit() -> None:
    client = asked_client(accept_batches=True, **ITEMS)
    messages = feed(client, json.dumps([sampling(id, 4) for id in (5, 6, 7)]))
    assert [type(event) for event in messages] == [RequestReceived, RequestReceived, Answered]
    assert errors(client) == [(7, -32602)]
    (event,) = feed(client, json.dumps(sampling(8, 4)))
    assert isinstance(event, RequestReceived)


def test_long_text_passes_with_the_usual_limits() -> None:
    client = operating_client()
    id = client.send_request(CallToolRequest("x"), 0.0)
    text = "0,[{" * 1_000_000
    answer = {"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}}
    (event,) = feed(client, json.dumps(answer))
    assert isinstance(event, ResponseReceived)
    assert event.result.content == (TextContent(text),)


def test_half_a_million_numbers_pass_with_the_usual_limits() -> None:
    client = operating_client()
    id = client.send_request(CallToolRequest("x"), 0.0)
    numbers = "0.5," * 499_999 + "0.5"
    (event,) = feed(
        client, f'{{"jsonrpc":"2.0","id":{id},"result":{{"content":[],"structuredContent":{{"a":[{numbers}]}}}}}}'
    )
    assert isinstance(event, ResponseReceived)
    assert len(event.result.structured_content["a"]) == 500_000


def test_default_number_of_values_is_that_of_the_parser() -> None:
    assert operating_server().options.limits.message_values == MOST_VALUES
