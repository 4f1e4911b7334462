"""Rules that a server of ours keeps towards a peer that a test plays: a message in, and the messages out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from rawpeer import Played, played_client, played_server

from mcpio import Context, Server
from mcpio.errors import InvalidMessage, LocalProtocolError
from mcpio.types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    Icon,
    PromptReference,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

CALL = {"method": "tools/call"}


def workshop() -> Server:
    server = Server("workshop", "2", page_size=4)

    @server.tool(
        annotations=ToolAnnotations(title="Sum", read_only_hint=True), icons=(Icon("https://x.example/i.png"),)
    )
    def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    def fail() -> str:
        raise ValueError("the saw is blunt")

    @server.tool
    def show() -> CallToolResult:
        return CallToolResult((TextContent("a"), ResourceLink(uri="bench://Vice", name="vice")))

    @server.tool
    async def where(ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.roots()]

    @server.tool
    def warn(ctx: Context) -> None:
        ctx.info("dust")
        ctx.error("fire")

    @server.resource("bench://Vice", name="vice")
    def vice() -> str:
        return "iron"

    @server.resource("bench://drawer/{number}", name="drawer")
    def drawer(number: int) -> str:
        return f"drawer {number}"

    @server.prompt
    def ask(thing: str) -> str:
        return f"Where is the {thing}?"

    server.completion("thing", prompt="ask")(lambda value: [f"{value}{number}" for number in range(150)])
    return server


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], **more}


RESULTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "defaults of a tool": (
        "tools/call",
        {"name": "add", "arguments": {"a": 2}},
        text('{"result":3}', structuredContent={"result": 3}),
    ),
    "failure of a tool": (
        "tools/call",
        {"name": "fail"},
        text("'fail' failed: ValueError: the saw is blunt", isError=True),
    ),
    "invalid argument of a tool": (
        "tools/call",
        {"name": "add", "arguments": {"a": "x"}},
        text("Invalid value in 'add': arguments.a: expected an integer, got \"x\"", isError=True),
    ),
    "link to a resource": (
        "tools/call",
        {"name": "show"},
        {"content": [{"type": "text", "text": "a"}, {"type": "resource_link", "uri": "bench://Vice", "name": "vice"}]},
    ),
    "resource": ("resources/read", {"uri": "bench://Vice"}, {"contents": [{"uri": "bench://Vice", "text": "iron"}]}),
    "resource of a template": (
        "resources/read",
        {"uri": "bench://drawer/7"},
        {"contents": [{"uri": "bench://drawer/7", "text": "drawer 7"}]},
    ),
    "prompt": (
        "prompts/get",
        {"name": "ask", "arguments": {"thing": "saw"}},
        {"messages": [{"role": "user", "content": {"type": "text", "text": "Where is the saw?"}}]},
    ),
    "prompts": ("prompts/list", {}, {"prompts": [{"name": "ask", "arguments": [{"name": "thing", "required": True}]}]}),
    "resources": ("resources/list", {}, {"resources": [{"uri": "bench://Vice", "name": "vice"}]}),
    "suggestions": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "ask"}, "argument": {"name": "thing", "value": "s"}},
        {"completion": {"values": [f"s{number}" for number in range(100)], "total": 150, "hasMore": True}},
    ),
}


@pytest.mark.req(
    "TOOL-10",
    "TOOL-11",
    "TOOL-13",
    "TOOL-15",
    "TOOL-19",
    "CONT-01",
    "CONT-02",
    "RES-03",
    "RES-12",
    "PROM-04",
    "COMP-04",
)
@pytest.mark.parametrize("row", RESULTS)
def test_request_has_the_result(row: str) -> None:
    method, params, result = RESULTS[row]
    peer = played_server(workshop(), {})
    peer.say({"id": "q", "method": method, "params": params})
    assert peer.got() == [{"jsonrpc": "2.0", "id": "q", "result": result}]


@pytest.mark.req("RPC-20", "TOOL-07", "PROM-03", "PROM-06", "PAGE-03")
@pytest.mark.parametrize(
    ("method", "params", "code", "data"),
    [
        ("tools/call", {"name": "add", "arguments": [2]}, -32602, {"path": "params.arguments"}),
        ("resources/read", {"uri": "bench://vice"}, -32002, {"uri": "bench://vice"}),
        ("prompts/get", {"name": "ask"}, -32602, {"path": "arguments"}),
        ("prompts/get", {"name": "ask", "arguments": {"thing": 5}}, -32602, {"path": "params.arguments.thing"}),
        ("tools/list", {"cursor": ""}, -32602, {"cursor": ""}),
        ("logging/setLevel", {"level": "loud"}, -32602, {"path": "params.level"}),
    ],
)
def test_request_has_the_error(method: str, params: dict[str, Any], code: int, data: dict[str, Any]) -> None:
    peer = played_server(workshop(), {})
    peer.say({"id": "q", "method": method, "params": params})
    (answer,) = peer.got()
    assert (answer["error"]["code"], answer["error"]["data"]) == (code, data)


@pytest.mark.req("TOOL-17", "SCHEMA-01", "SCHEMA-09", "PAGE-03", "GONE-05")
def test_tools_come_in_pages_with_their_schemas_and_annotations() -> None:
    peer = played_server(workshop(), {})
    peer.say({"id": 1, "method": "tools/list"})
    (first,) = (message["result"] for message in peer.got())
    assert first["tools"][0] == {
        "name": "add",
        "description": "Add two numbers.",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}},
            "required": ["a"],
            "additionalProperties": False,
        },
        "outputSchema": {
            "type": "object",
            "properties": {"result": {"type": "integer"}},
            "required": ["result"],
        },
        "annotations": {"title": "Sum", "readOnlyHint": True},
        "icons": [{"src": "https://x.example/i.png"}],
    }
    peer.say({"id": 2, "method": "tools/list", "params": {"cursor": first["nextCursor"]}})
    (last,) = (message["result"] for message in peer.got())
    assert [tool["name"] for tool in (*first["tools"], *last["tools"])] == ["add", "fail", "show", "where", "warn"]
    assert "nextCursor" not in last


@pytest.mark.req("SAMP-16", "RPC-05")
def test_server_asks_within_the_request_and_uses_ids_of_its_own() -> None:
    peer = played_server(workshop(), {"roots": {}})
    peer.say({"id": 1, **CALL, "params": {"name": "where"}})
    assert peer.got() == [{"jsonrpc": "2.0", "id": 1, "method": "roots/list"}]
    peer.say({"id": 1, "result": {"roots": [{"uri": "file:///a", "name": "A"}]}})
    (answer,) = peer.got()
    assert (answer["id"], answer["result"]["structuredContent"]) == (1, {"result": ["file:///a"]})


@pytest.mark.req("LOG-02", "LOG-04", "LOG-08")
@pytest.mark.parametrize(
    ("level", "sent"),
    [(None, ["info", "error"]), ("debug", ["info", "error"]), ("error", ["error"]), ("emergency", [])],
)
def test_log_messages_from_the_level_on_are_sent(level: str | None, sent: list[str]) -> None:
    peer = played_server(workshop(), {})
    if level is not None:
        peer.say({"id": 1, "method": "logging/setLevel", "params": {"level": level}})
        assert peer.got() == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
    peer.say({"id": 2, **CALL, "params": {"name": "warn"}})
    *logs, _ = peer.got()
    assert [log["params"]["level"] for log in logs] == sent


@pytest.mark.req("TOOL-01", "RES-01", "PROM-01", "COMP-01")
@pytest.mark.parametrize(
    ("server", "declared"),
    [
        (workshop(), {"tools", "resources", "prompts", "completions", "logging"}),
        (Server("empty", "1", log_level=None), set()),
    ],
    ids=["workshop", "empty"],
)
def test_server_declares_what_it_offers(server: Server, declared: set[str]) -> None:
    connection = server.connection()
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "peer", "version": "1"}}
    peer: Played[Any] = Played(connection)
    peer.session = server.session(connection, peer, None)
    peer.say({"id": 0, "method": "initialize", "params": hello})
    (answer,) = peer.got()
    assert set(answer["result"]["capabilities"]) == declared


@pytest.mark.req("PAGE-02", "PAGE-03", "GONE-05")
@pytest.mark.parametrize("cursor", ["", " é\n", "x" * 300])
def test_client_sends_a_cursor_back_as_it_came(cursor: str) -> None:
    peer = played_client({"tools": {}})
    wait = peer.start(peer.session.list_tools())
    request = peer.asked("tools/list")
    assert "cursor" not in request.get("params", {})
    peer.answer(request, tools=[{"name": "a", "inputSchema": {"type": "object"}}], nextCursor=cursor)
    assert wait.result.next_cursor == cursor
    again = peer.start(peer.session.list_tools(cursor=cursor))
    request = peer.asked("tools/list")
    assert request["params"]["cursor"] == cursor
    peer.answer(request, tools=[])
    assert again.result.next_cursor is None


@pytest.mark.req("TOOL-12")
def test_text_of_a_failure_reaches_the_program() -> None:
    peer = played_client({"tools": {}})
    wait = peer.start(peer.session.call_tool("cut", {"depth": 2}))
    request = peer.asked("tools/call")
    assert request["params"] == {"name": "cut", "arguments": {"depth": 2}}
    peer.answer(request, **text("the saw is blunt", isError=True))
    assert (wait.result.is_error, wait.result.text) == (True, "the saw is blunt")


@pytest.mark.req("RPC-19")
def test_exception_of_a_handler_is_not_sent() -> None:
    server = Server("breaking", mask_errors=True)

    @server.prompt
    def ask() -> str:
        raise ValueError("the secret of the saw")

    server.resource("bench://saw", name="saw")(ask)
    server.tool(ask)
    peer = played_server(server, {})
    for method, params in (("prompts/get", {"name": "ask"}), ("resources/read", {"uri": "bench://saw"})):
        peer.say({"id": 1, "method": method, "params": params})
        assert peer.got() == [{"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "Internal error"}}]
    peer.say({"id": 2, **CALL, "params": {"name": "ask"}})
    (answer,) = peer.got()
    assert (answer["result"]["isError"], "secret" in str(answer)) == (True, False)
    assert [report.endswith("the secret of the saw") for report in peer.reports] == [True] * 3


CHANGES: dict[str, Callable[[Server], object]] = {
    "tools": lambda server: server.tools.remove("add"),
    "prompts": lambda server: server.prompts.remove("ask"),
    "resources": lambda server: server.resources.static.remove("bench://Vice"),
}


@pytest.mark.req("TOOL-16", "PROM-07", "RES-08")
@pytest.mark.parametrize("kind", CHANGES)
def test_change_of_a_list_is_told_once(kind: str) -> None:
    server = workshop()
    peer = played_server(server, {})
    CHANGES[kind](server)
    peer.advance(1.0)
    assert peer.got() == [{"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"}]
    peer.say({"id": 1, "method": f"{kind}/list"})
    assert [message["id"] for message in peer.got()] == [1]


@pytest.mark.req("TOOL-16", "PROM-07")
@pytest.mark.parametrize("kind", ["tools", "prompts"])
def test_client_tells_the_program_of_a_changed_list(kind: str) -> None:
    heard: list[str] = []
    peer = played_client({kind: {"listChanged": True}}, on_notification=lambda told: heard.append(type(told).__name__))
    peer.say({"method": f"notifications/{kind}/list_changed"})
    assert heard == [f"{kind.capitalize().removesuffix('s')}ListChangedNotification"]


@pytest.mark.req("PROM-08")
@pytest.mark.parametrize(
    ("resource", "sent"),
    [
        (TextResourceContents("bench://a", "iron", "text/plain"), {"text": "iron", "mimeType": "text/plain"}),
        (BlobResourceContents("bench://a", "aGk=", "image/png"), {"blob": "aGk=", "mimeType": "image/png"}),
        (TextResourceContents("bench://a", "iron"), None),
    ],
)
def test_resource_in_a_prompt_has_a_type(resource: Any, sent: dict[str, Any] | None) -> None:
    server = Server("giving")
    server.prompt(lambda: EmbeddedResource(resource), name="show")
    peer = played_server(server, {})
    peer.say({"id": 1, "method": "prompts/get", "params": {"name": "show"}})
    (answer,) = peer.got()
    if sent is None:
        assert answer["error"]["code"] == -32603
    else:
        content = {"type": "resource", "resource": {"uri": "bench://a", **sent}}
        assert answer["result"]["messages"] == [{"role": "user", "content": content}]


@pytest.mark.req("PROM-09", "CAP-02")
def test_client_walks_the_pages_of_prompts_of_a_server_that_declares_them() -> None:
    peer = played_client({"prompts": {}})

    async def names() -> list[str]:
        return [prompt.name async for prompt in peer.session.prompts()]

    wait = peer.start(names())
    peer.answer(peer.asked("prompts/list"), prompts=[{"name": "a"}], nextCursor="2")
    request = peer.asked("prompts/list")
    assert request["params"] == {"cursor": "2"}
    peer.answer(request, prompts=[{"name": "b"}])
    assert wait.result == ["a", "b"]
    other = played_client({"tools": {}})
    refused = other.start(other.session.list_prompts())
    assert other.got() == []
    with pytest.raises(LocalProtocolError, match="prompts"):
        refused.result  # noqa: B018 - it raises the failure of the call


@pytest.mark.req("COMP-03")
def test_chosen_values_reach_the_completion() -> None:
    server = Server("completing")
    server.prompt(lambda style, language: f"{style} {language}", name="review")
    seen: list[Any] = []

    @server.completion("language", prompt="review")
    def suggest(value: str, chosen: Mapping[str, str]) -> list[str]:
        seen.append(dict(chosen))
        return [value]

    peer = played_server(server, {})
    params = {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "language", "value": "p"}}
    contexts: list[dict[str, Any]] = [{"context": {"arguments": {"style": "pep8"}}}, {"context": {}}, {}]
    for context in contexts:
        peer.say({"id": 1, "method": "completion/complete", "params": {**params, **context}})
        (answer,) = peer.got()
        assert answer["result"]["completion"]["values"] == ["p"]
    assert seen == [{"style": "pep8"}, {}, {}]


@pytest.mark.req("COMP-03", "COMP-07")
@pytest.mark.parametrize(("revision", "is_sent"), [("2025-03-26", False), ("2025-06-18", True)])
def test_client_sends_chosen_values_and_copes_with_partial_results(revision: str, is_sent: bool) -> None:
    peer = played_client({"completions": {}}, revision)
    call = peer.session.complete(PromptReference("review"), "language", "p", chosen={"style": "pep8"})
    wait = peer.start(call)
    (request,) = peer.got()
    context = {"context": {"arguments": {"style": "pep8"}}} if is_sent else {}
    argument = {"argument": {"name": "language", "value": "p"}}
    assert request["params"] == {"ref": {"type": "ref/prompt", "name": "review"}, **argument, **context}
    peer.answer(request, completion={"values": []})
    completion = wait.result.completion
    assert (completion.values, completion.total, completion.has_more) == ((), None, None)


COUNT = {"name": "count", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object", "required": ["n"]}}


@pytest.mark.req("TOOL-14")
@pytest.mark.parametrize(("structured", "is_wrong"), [({"n": 1}, False), ({}, True)])
def test_client_checks_structured_content(structured: dict[str, Any], is_wrong: bool) -> None:
    pytest.importorskip("jsonschema")
    peer = played_client({"tools": {}}, check_results="raise")
    wait = peer.start(peer.session.call_tool("count"))
    peer.answer(peer.asked("tools/list"), tools=[COUNT])
    peer.answer(peer.asked("tools/call"), content=[], structuredContent=structured)
    if is_wrong:  # perhaps the tool has another schema by now, since no change of the list would be heard of
        peer.answer(peer.asked("tools/list"), tools=[COUNT])
    assert wait.state == ("failed" if is_wrong else "returned")
    assert isinstance(wait.error, InvalidMessage) is is_wrong


@pytest.mark.req("PROG-06")
def test_progress_that_the_peer_does_not_read_is_replaced_by_the_newest() -> None:
    server = Server("slow")

    @server.tool
    def work(ctx: Context) -> str:
        for step in range(100):
            ctx.progress(step, 100)
        return "done"

    peer = played_server(server, {})
    peer.say({"id": 1, **CALL, "params": {"name": "work", "_meta": {"progressToken": "t"}}})
    *reports, answer = peer.got()
    assert [report["params"] for report in reports] == [{"progressToken": "t", "progress": 99, "total": 100}]
    assert answer["result"]["content"] == [{"type": "text", "text": "done"}]
