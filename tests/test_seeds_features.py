"""What older documents about the protocol claim of its features, claim by claim, and what holds.

Each test is named after the rows that it answers: C for methods and features, S for security and schemas.
"""

from __future__ import annotations

import html
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from linked import Link
from wires import request as raw_request

from mcpio.app.context import Context
from mcpio.app.middleware.policies import RateLimit, allow
from mcpio.app.server import Server
from mcpio.codec import codec
from mcpio.engine.table import Role
from mcpio.errors import InvalidMessage, RequestError
from mcpio.files import share_directory
from mcpio.methods import METHODS, Direction
from mcpio.revisions import REV_2025_11_25
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    EmbeddedResource,
    EmptyResult,
    ImageContent,
    ListPromptsResult,
    LoggingMessageNotification,
    PromptReference,
    ReadResourceResult,
    ResourceLink,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
    UnknownContent,
    annotations_of,
)


def everything(**options: Any) -> Server:
    server = Server("s", **options)

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def nothing() -> None: ...

    @server.tool
    def link() -> ResourceLink:
        return ResourceLink("notes://unlisted", "unlisted")

    @server.tool
    def embed() -> EmbeddedResource:
        return EmbeddedResource(TextResourceContents("notes://a", "text", "text/plain"))

    @server.resource("notes://{name}")
    def note(name: str) -> str:
        return name

    @server.prompt
    def greet(name: str, tone: str = "dry") -> str:
        return f"{name} {tone}"

    server.completion("name", prompt="greet")(lambda text: ["Ada"])
    return server


def ask(link: Link, method: str, **params: Any) -> Any:
    """Send a request as it stands, and return what comes back: the result, or the error."""
    before = len(link.pair.sent(Role.SERVER))
    link.pair.server.receive_data(json.dumps(raw_request(method, "seed", **params)).encode() + b"\n", link.pair.now)
    link.run()
    for line in link.pair.sent(Role.SERVER)[before:].splitlines():
        answer = json.loads(line)
        if answer.get("id") == "seed":
            return answer.get("result", answer.get("error"))
    raise AssertionError(f"{method} was not answered")


def tell(link: Link, method: str, **params: Any) -> None:
    """Send the client a notification as it stands."""
    link.pair.client.receive_data(
        json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n", link.pair.now
    )
    link.run()


# Tools


@pytest.mark.req("PING-01")
def test_c1_ping_result_is_empty_and_any_object_is_accepted() -> None:
    assert ask(Link(everything()), "ping") == {}
    pong = {"type": "ping", "text": "pong"}
    assert codec(REV_2025_11_25).decode(pong, EmptyResult) == EmptyResult(extra=pong)


@pytest.mark.req("PING-01")
def test_c2_either_side_can_ping() -> None:
    assert METHODS["ping"].direction is Direction.BOTH


@pytest.mark.req("TOOL-02", "PAGE-01")
def test_c3_c50_lists_are_paged_by_cursor() -> None:
    link = Link(everything(page_size=3), era="handshake")
    first = ask(link, "tools/list")
    assert len(first["tools"]) == 3
    second = ask(link, "tools/list", cursor=first["nextCursor"])
    assert [tool["name"] for tool in second["tools"]] == ["embed"]
    assert "nextCursor" not in second


@pytest.mark.req("TOOL-03", "TOOL-05")
def test_c4_c7_tool_without_description_or_arguments_is_valid() -> None:
    tool = ask(Link(everything(), era="handshake"), "tools/list")["tools"][1]
    assert tool["name"] == "nothing"
    assert "description" not in tool
    assert tool["inputSchema"] == {"type": "object", "additionalProperties": False}


@pytest.mark.req("TOOL-03", "TOOL-17", "TOOL-18")
def test_c5_c6_optional_members_of_a_tool() -> None:
    raw = {
        "name": "t",
        "title": "T",
        "inputSchema": {"type": "object"},
        "icons": [{"src": "https://a.example/i.png"}],
        "outputSchema": {"type": "object"},
        "annotations": {"title": "hint", "readOnlyHint": True, "audience": ["user"]},
        "execution": {"taskSupport": "optional"},
        "_meta": {"a": 1},
    }
    tool = codec(REV_2025_11_25).decode(raw, Tool)
    assert tool.display_name == "T"
    assert tool.annotations is not None
    assert (tool.annotations.is_read_only, tool.annotations.extra) == (True, {"audience": ["user"]})
    assert codec(REV_2025_11_25).encode(tool) == raw


@pytest.mark.req("TOOL-08")
def test_c8_result_requires_content_but_not_is_error() -> None:
    assert ask(Link(everything(), era="handshake"), "tools/call", name="nothing") == {"content": []}
    result = codec(REV_2025_11_25).decode({"content": []}, CallToolResult)
    assert not result.is_error


def test_c10_unknown_members_of_a_call_are_kept_and_ignored() -> None:
    raw = {"name": "nothing", "progressToken": 1, "requestId": 5}
    assert ask(Link(everything(), era="handshake"), "tools/call", **raw) == {"content": []}
    assert codec(REV_2025_11_25).decode(raw, CallToolRequest).extra == {"progressToken": 1, "requestId": 5}


@pytest.mark.req("TOOL-09")
def test_c11_c12_unknown_tool_is_a_protocol_error() -> None:
    assert ask(Link(everything(), era="handshake"), "tools/call", name="none") == {
        "code": -32602,
        "message": "Unknown tool: none",
    }
    assert ask(Link(everything(), era="handshake"), "tools/call")["code"] == -32602


@pytest.mark.req("TOOL-11", "TOOL-12")
def test_c13_invalid_arguments_give_an_error_result() -> None:
    link = Link(everything())
    result = link.call("add", a=1, b="x")
    assert result.is_error
    assert result.text == "Invalid value in 'add': arguments.b: expected an integer, got \"x\""
    with pytest.raises(RequestError):
        link.call("none")


# Content


@pytest.mark.req("CONT-01", "CONT-02", "CONT-06")
@pytest.mark.parametrize(
    "raw",
    [
        pytest.param({"type": "resource/link", "uri": "a:b", "name": "a"}, id="C16"),
        pytest.param({"type": "custom", "mimeType": "application/x-anything"}, id="C17"),
    ],
)
def test_c14_c16_c17_unknown_content_type_is_kept(raw: dict[str, Any]) -> None:
    (block,) = codec(REV_2025_11_25).decode({"content": [raw]}, CallToolResult).content
    assert block == UnknownContent(raw["type"], raw)


@pytest.mark.req("CONT-02", "CONT-07")
def test_c15_resource_without_contents_is_skipped_alone() -> None:
    server = everything()
    raw = {"type": "resource", "resource": {"uri": "a:b", "mimeType": "text/plain"}}
    unknown = UnknownContent("resource", raw)
    assert codec(REV_2025_11_25).decode({"content": [raw]}, CallToolResult).content == (unknown,)
    server.handlers["tools/call"] = lambda ctx, request: CallToolResult((unknown, TextContent("hi")))
    link = Link(server, era="handshake")
    assert link.call("nothing").content == (unknown, TextContent("hi"))
    assert "EmbeddedResource.resource: has none of the known shapes" in link.reports[0]
    link.do(link.client.ping())


@pytest.mark.req("CONT-03")
def test_c17_any_mime_type_is_accepted() -> None:
    for mime_type in ("image/x-unheard-of", "application/vnd.acme+json", "text/plain; charset=utf-8"):
        block = ImageContent("", mime_type)
        raw = codec(REV_2025_11_25).encode(CallToolResult((block,)))
        assert codec(REV_2025_11_25).decode(raw, CallToolResult).content == (block,)


@pytest.mark.req("CONT-05", "RES-02", "RES-03")
def test_c18_s20_annotations_of_contents_are_decoded() -> None:
    raw = {"contents": [{"uri": "a:b", "text": "", "annotations": {"audience": ["user"], "priority": 0.5}}]}
    (contents,) = codec(REV_2025_11_25).decode(raw, ReadResourceResult).contents
    annotations = annotations_of(contents)
    assert annotations is not None
    assert (annotations.audience, annotations.priority) == (("user",), 0.5)


# Resources


@pytest.mark.req("RES-06", "RES-08", "RES-09")
def test_c19_c49_subscribe_and_unsubscribe() -> None:
    server = everything()
    link = Link(server, era="handshake")
    assert ask(link, "resources/subscribe", uri="notes://a") == {}
    assert ask(link, "resources/subscribe", uri="notes://a") == {}
    assert server.notify_resource_updated("notes://a") == 1
    assert ask(link, "resources/unsubscribe", uri="notes://a") == {}
    assert server.notify_resource_updated("notes://a") == 0
    assert ask(link, "resources/subscribe", uri="notes://a") == {}
    link.client.close()
    link.run()
    assert server.notify_resource_updated("notes://a") == 0
    assert server.undelivered == 0


@pytest.mark.parametrize(
    "method",
    ["resources/updated", "resources/list_changed", "tools/list_changed", "prompts/list_changed", "progress"],
)
def test_c20_notification_without_prefix_is_custom(method: str) -> None:
    heard: list[Any] = []
    link = Link(everything(), on_notification=heard.append)
    tell(link, method)
    assert [notification.method for notification in heard] == [method]


@pytest.mark.req("RES-04")
def test_c21_c22_templates_are_listed_and_matched() -> None:
    link = Link(everything(), era="handshake")
    (template,) = ask(link, "resources/templates/list")["resourceTemplates"]
    assert template["uriTemplate"] == "notes://{name}"
    assert ask(link, "resources/read", uri="notes://a%20b")["contents"] == [{"uri": "notes://a%20b", "text": "a b"}]


# Prompts and completion


@pytest.mark.req("PROM-02")
def test_c23_prompt_with_schema_arguments_is_skipped_and_reported() -> None:
    server = everything()
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    bad = codec(REV_2025_11_25).decode(
        {"prompts": [{"name": "odd", "arguments": schema}, {"name": "good"}]}, ListPromptsResult
    )
    server.handlers["prompts/list"] = lambda ctx, request: bad
    link = Link(server)
    items = link.client.prompts()

    async def names() -> list[str]:
        return [prompt.name async for prompt in items]

    assert link.do(names()) == ["good"]
    assert [item.raw["arguments"] for item in items.malformed] == [schema]
    assert len(link.reports) == 1


@pytest.mark.req("PROM-02", "PROM-03", "PROM-05")
def test_c24_c25_prompts_are_listed_and_rendered() -> None:
    link = Link(everything(), era="handshake")
    (prompt,) = ask(link, "prompts/list")["prompts"]
    assert [argument.get("required", False) for argument in prompt["arguments"]] == [True, False]
    (message,) = ask(link, "prompts/get", name="greet", arguments={"name": "Ada"})["messages"]
    assert message == {"role": "user", "content": {"type": "text", "text": "Ada dry"}}
    for arguments in ({}, {"name": 5}):
        assert ask(link, "prompts/get", name="greet", arguments=arguments)["code"] == -32602


@pytest.mark.req("COMP-02", "COMP-05")
def test_c36_completion_for_tools_is_refused() -> None:
    link = Link(everything(), era="handshake")
    argument = {"name": "name", "value": ""}
    assert (
        ask(link, "completion/complete", ref={"type": "ref/tool", "name": "add"}, argument=argument)["code"] == -32602
    )
    ref = {"type": "ref/prompt", "name": "greet"}
    assert ask(link, "completion/complete", ref=ref, argument=argument)["completion"]["values"] == ["Ada"]
    assert link.do(link.client.complete(PromptReference("greet"), "name", "")).completion.values == ("Ada",)


@pytest.mark.parametrize("method", ["completion/create", "logging/log", "resources/write", "tools/execute"])
def test_c37_unknown_method_is_not_found(method: str) -> None:
    assert ask(Link(everything()), method)["code"] == -32601


# Sampling and logging


@pytest.mark.parametrize("role", ["system", "tool"])
def test_c53_message_roles_are_user_and_assistant(role: Any) -> None:
    with pytest.raises(InvalidMessage, match="expected one of 'assistant', 'user'"):
        codec(REV_2025_11_25).decode({"role": role, "content": {"type": "text", "text": ""}}, SamplingMessage)
    with pytest.raises(InvalidMessage):
        codec(REV_2025_11_25).encode(SamplingMessage(role, TextContent("")))


def test_c26_c27_sampling_is_requested_by_the_server_only() -> None:
    link = Link(everything(), sampling=lambda scope, request: pytest.fail("it was asked"), era="handshake")
    assert ask(link, "sampling/createMessage", messages=[], maxTokens=1)["code"] == -32601
    before = len(link.pair.sent(Role.CLIENT))
    raw = raw_request("sampling/createMessage", "seed", conversation=[], toolChoice="auto", tools=["search"])
    link.pair.client.receive_data(json.dumps(raw).encode() + b"\n", link.pair.now)
    link.run()
    assert json.loads(link.pair.sent(Role.CLIENT)[before:])["error"]["code"] == -32602


@pytest.mark.req("LOG-03", "LOG-05", "LOG-06")
def test_c28_c29_c30_server_logs_at_the_level_the_client_sets() -> None:
    heard: list[LoggingMessageNotification] = []
    link = Link(everything(), on_log=heard.append, era="handshake")
    assert METHODS["notifications/message"].direction is Direction.TO_CLIENT
    assert ask(link, "logging/setLevel", level="error") == {}
    assert ask(link, "logging/setLevel", level="loud")["code"] == -32602
    link.session.log("warning", "left out")
    link.session.log("critical", {"any": ["data"]}, "a.logger")
    link.run()
    assert heard == [LoggingMessageNotification("critical", {"any": ["data"]}, "a.logger")]


# Security and schemas


@pytest.mark.req("TOOL-19", "RES-10", "SEC-10")
def test_s4_arguments_are_validated_before_the_handler_runs(tmp_path: Path) -> None:
    server = everything()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "docs").mkdir()
    share_directory(server, "docs:///", tmp_path / "docs")
    link = Link(server, era="handshake")
    assert link.call("add", a=1, b=2, c=3).is_error
    assert ask(link, "tools/call", name="add", arguments=[1, 2])["code"] == -32602
    assert ask(link, "resources/read", uri="docs:///../secret")["code"] == -32002
    assert ask(link, "resources/read", uri=5)["code"] == -32602


@pytest.mark.req("TOOL-19")
def test_s5_results_pass_a_hook_and_are_unchanged_without_one() -> None:
    async def escape(ctx: Context, request: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        result = await call_next(request)
        texts = (attrs.evolve(block, text=html.escape(block.text)) for block in result.content)
        return attrs.evolve(result, content=tuple(texts))

    def saying(*layers: Any) -> Link:
        server = Server("s", middleware=layers)
        server.tool(lambda: "<script>", name="say")
        return Link(server)

    assert saying().text("say") == "<script>"
    assert saying(escape).text("say") == "&lt;script&gt;"


@pytest.mark.req("TOOL-19", "COMP-06")
def test_s4_middleware_controls_access_and_limits_calls() -> None:
    layers = [allow(lambda ctx, request: ctx.peer.principal == "ada", methods="tools/call"), RateLimit(2, 1)]
    server = everything(middleware=layers)
    ada = Link(server, principal="ada")
    assert ada.call("add", a=1, b=2).structured_content == {"result": 3}
    with pytest.raises(RequestError) as refused:
        Link(server).call("add", a=1, b=2)
    assert refused.value.code == 1014
    ada.advance(1.0)
    reference = PromptReference("greet")
    for _ in range(2):
        ada.do(ada.client.complete(reference, "name", "A"))
    with pytest.raises(RequestError) as limited:
        ada.do(ada.client.complete(reference, "name", "A"))
    assert limited.value.code == 1057


@pytest.mark.req("TOOL-20", "TOOL-23")
def test_s6_host_can_confirm_a_tool_call_with_its_user() -> None:
    asked: list[Any] = []

    async def approve(call: Any, request: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        if isinstance(request, CallToolRequest):
            asked.append((request.name, request.arguments))
            if request.name != "add":
                return CallToolResult((TextContent("the user said no"),), is_error=True)
        return await call_next(request)

    link = Link(everything(), middleware=[approve])
    assert link.call("add", a=1, b=2).structured_content == {"result": 3}
    assert link.text("nothing") == "failed: the user said no"
    assert asked == [("add", {"a": 1, "b": 2}), ("nothing", {})]


@pytest.mark.req("SCHEMA-01", "SCHEMA-02", "SCHEMA-04", "SCHEMA-09")
def test_s9_schema_dialect_defaults_to_2020_12() -> None:
    server = Server("s")
    tuples = {"type": "object", "properties": {"p": {"prefixItems": [{"type": "string"}], "items": False}}}
    server.tool(lambda p: "ok", name="modern", input_schema=tuples)
    draft_7 = {"type": "object", "properties": {"p": {"items": [{"type": "string"}], "additionalItems": False}}}
    server.tool(
        lambda p: "ok", name="old", input_schema={"$schema": "http://json-schema.org/draft-07/schema#", **draft_7}
    )
    link = Link(server)
    for name in ("modern", "old"):
        assert link.text(name, p=["a"]) == "ok"
        assert link.call(name, p=["a", "b"]).is_error
    with pytest.raises(ValueError, match=r"dialect 'https://example\.com/mine' is not supported"):
        server.tool(lambda: None, name="odd", input_schema={"type": "object", "$schema": "https://example.com/mine"})


@pytest.mark.req("TOOL-05")
@pytest.mark.parametrize("schema", [None, [], "object", True])
def test_s10_tool_without_object_schema_is_skipped(schema: Any) -> None:
    with pytest.raises(InvalidMessage, match=r"^inputSchema: expected an object"):
        codec(REV_2025_11_25).decode({"name": "t", "inputSchema": schema}, Tool)


# Resources in results


@pytest.mark.req("TOOL-21")
def test_resource_link_need_not_be_listed() -> None:
    link = Link(everything(), check_results="raise", era="handshake")
    (block,) = link.call("link").content
    assert isinstance(block, ResourceLink)
    assert ask(link, "resources/list") == {"resources": []}
    assert link.do(link.client.read_resource(block.uri)).contents == (
        TextResourceContents("notes://unlisted", "unlisted"),
    )


@pytest.mark.req("TOOL-22")
def test_server_embedding_resources_may_declare_them() -> None:
    link = Link(everything())
    (block,) = link.call("embed").content
    assert isinstance(block, EmbeddedResource)
    assert link.client.server.capabilities.resources is not None  # type: ignore[union-attr]  # those of a server
