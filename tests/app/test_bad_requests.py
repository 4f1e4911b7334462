"""Requests and answers of tools, resources, prompts, completion and logging that make no sense, and what comes of them.

Each costs only itself: the next request is served, and the next call returns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from linked import Link
from wires import request as raw_request

from mcpio.app.client import Client
from mcpio.app.server import Server
from mcpio.engine.table import Role
from mcpio.errors import InvalidMessage
from mcpio.types import PromptReference


def everything() -> Server:
    server = Server("s")

    @server.tool
    def add(a: int, b: int = 0) -> int:
        return a + b

    @server.resource("notes://{number}")
    def note(number: int) -> str:
        return str(number)

    @server.prompt
    def greet(name: str) -> str:
        return name

    server.completion("name", prompt="greet")(lambda text: [text])
    return server


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tools/list", {"cursor": "nonsense"}, -32602),
        ("tools/list", {"cursor": ""}, -32602),
        ("tools/list", {"cursor": "0" * 100_000}, -32602),
        ("tools/call", {}, -32602),
        ("tools/call", {"name": ""}, -32602),
        ("tools/call", {"name": "x" * 100_000}, -32602),
        ("tools/call", {"name": "add", "arguments": "a=1"}, -32602),
        ("resources/read", {}, -32602),
        ("resources/read", {"uri": None}, -32602),
        ("resources/read", {"uri": ""}, -32002),
        ("resources/read", {"uri": "notes://"}, -32002),
        ("resources/read", {"uri": "notes://many"}, -32602),
        ("resources/read", {"uri": "notes://%zz"}, -32002),
        ("resources/read", {"uri": "notes://" + "1" * 100_000}, -32002),
        ("resources/read", {"uri": "NOTES://1"}, -32002),
        ("resources/subscribe", {}, -32602),
        ("resources/subscribe", {"uri": "other://1"}, -32002),
        ("resources/unsubscribe", {"uri": 5}, -32602),
        ("resources/templates/list", {"cursor": "nonsense"}, -32602),
        ("prompts/get", {}, -32602),
        ("prompts/get", {"name": "none"}, -32602),
        ("prompts/get", {"name": "greet"}, -32602),
        ("prompts/get", {"name": "greet", "arguments": {"name": 5}}, -32602),
        ("prompts/get", {"name": "greet", "arguments": {"name": "a", "more": "b"}}, -32602),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "none"}, "argument": {}}, -32602),
        ("completion/complete", {"ref": "greet", "argument": {"name": "name", "value": ""}}, -32602),
        ("logging/setLevel", {}, -32602),
        ("logging/setLevel", {"level": "loud"}, -32602),
        ("logging/setLevel", {"level": 3}, -32602),
    ],
)
@pytest.mark.req("TOOL-09", "RES-05", "PROM-05", "COMP-05", "LOG-06", "PAGE-04")
def test_malformed_request_is_refused(method: str, params: dict[str, Any], code: int) -> None:
    link = Link(everything(), era="handshake")
    before = len(link.pair.sent(Role.SERVER))
    link.pair.server.receive_data(json.dumps(raw_request(method, "bad", **params)).encode() + b"\n", 0.0)
    link.run()
    answer = json.loads(link.pair.sent(Role.SERVER)[before:])
    assert (answer["id"], answer["error"]["code"]) == ("bad", code)
    assert len(json.dumps(answer)) < 1000 + len(str(params.get("uri")))  # only a URI comes back whole
    assert link.call("add", a=1).structured_content == {"result": 1}
    (report,) = link.reports  # the client's, which never asked
    assert report.startswith("the peer broke a rule: a response to id 'bad', which was never sent")


OutgoingCall = Callable[[Client], Coroutine[Any, Any, Any]]


@pytest.mark.parametrize(
    ("call", "result", "fault"),
    [
        (lambda client: client.list_tools(), {}, "tools: missing"),
        (lambda client: client.list_tools(), {"tools": {}}, "tools: expected an array"),
        (lambda client: client.list_tools(), {"tools": [], "nextCursor": 5}, "nextCursor: expected a string"),
        (lambda client: client.call_tool("x"), {}, "content: missing"),
        (lambda client: client.call_tool("x"), {"content": ["text"]}, "content[0]: expected an object"),
        (lambda client: client.read_resource("a:b"), {"contents": [{"uri": "a:b"}]}, "contents[0]: has none"),
        (lambda client: client.get_prompt("x"), {"messages": [{"role": "system"}]}, "messages[0]."),
        (
            lambda client: client.get_prompt("x"),
            {"messages": [{"role": "user", "content": []}]},
            "messages[0].content: expected an object",
        ),
        (
            lambda client: client.complete(PromptReference("x"), "a", ""),
            {"completion": {"values": [5]}},
            "completion.values[0]: expected a string",
        ),
        (lambda client: client.complete(PromptReference("x"), "a", ""), {"completion": []}, "completion: exp"),
    ],
)
@pytest.mark.req("TOOL-20")
def test_malformed_answer_fails_one_call(call: OutgoingCall, result: Any, fault: str) -> None:
    link = Link(everything(), era="handshake")
    link.pair.stall(Role.CLIENT)  # the server hears nothing, and the test answers in its place
    asked = link.start(call(link.client))
    (waiting,) = link.client.connection.pending.outgoing
    message = {"jsonrpc": "2.0", "id": int(waiting), "result": result}
    link.pair.client.receive_data(json.dumps(message).encode() + b"\n", 0.0)
    link.run()
    assert isinstance(asked.error, InvalidMessage)
    assert fault in str(asked.error)
    link.pair.resume(Role.CLIENT)
    link.run()
    link.do(link.client.ping())


@pytest.mark.parametrize(
    ("result", "dropped"),
    [
        ({"content": [], "isError": None}, "CallToolResult.isError: expected a boolean, got null"),
        ({"content": [], "structuredContent": None}, "CallToolResult.structuredContent: expected an object, got null"),
        (
            {"content": [], "structuredContent": [1]},
            "CallToolResult.structuredContent: expected an object, got an array",
        ),
        ({"content": [], "_meta": None}, "CallToolResult._meta: expected an object, got null"),
        (
            {"content": [{"type": "text"}, {"type": "image"}], "isError": None},
            "TextContent.text: missing (and 2 more)",
        ),
    ],
)
@pytest.mark.req("CONT-04")
def test_malformed_optional_member_of_an_answer_is_dropped_and_reported(result: Any, dropped: str) -> None:
    link = Link(everything(), era="handshake")
    link.pair.stall(Role.CLIENT)
    asked = link.start(link.client.call_tool("x"))
    (waiting,) = link.client.connection.pending.outgoing
    message = {"jsonrpc": "2.0", "id": int(waiting), "result": result}
    link.pair.client.receive_data(json.dumps(message).encode() + b"\n", 0.0)
    link.run()
    assert asked.error is None
    assert asked.result.structured_content is None
    assert asked.result.is_error is False
    assert f"the result of tools/call is read without a member: {dropped}" in link.reports[0]
