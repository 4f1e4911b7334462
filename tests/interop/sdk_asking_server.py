"""A server on the SDK's low-level class that asks everything a client may be asked, for our client."""

from __future__ import annotations

import json
from typing import Any

import anyio
import mcp.types as types
from mcp import UrlElicitationRequiredError
from mcp.server import Server
from mcp.server.stdio import stdio_server

changes: list[str] = []


def text(value: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=value)])


async def book(ctx: Any) -> types.CallToolResult:
    form = {
        "type": "object",
        "properties": {
            "to": {"type": "string", "minLength": 3},
            "seat": {"type": "string", "oneOf": [{"const": "w", "title": "Window"}], "default": "w"},
            "extras": {"type": "array", "items": {"type": "string", "enum": ["meal", "bag"]}, "default": ["bag"]},
        },
        "required": ["to"],
    }
    result = await ctx.session.elicit_form("Where to?", form, ctx.request_id)
    return text(json.dumps([result.action, result.content]))


async def connect(ctx: Any) -> types.CallToolResult:
    result = await ctx.session.elicit_url("Log in", "https://example.com/connect", "visit", ctx.request_id)
    for id in ("unknown", "visit", "visit"):
        await ctx.session.send_elicit_complete(id, ctx.request_id)
    return text(result.action)


async def locked(ctx: Any) -> types.CallToolResult:
    visit = types.ElicitRequestURLParams(
        mode="url", message="Log in", url="https://example.com/first", elicitation_id="first"
    )
    raise UrlElicitationRequiredError([visit])


async def advise(ctx: Any) -> types.CallToolResult:
    messages = [types.SamplingMessage(role="user", content=types.TextContent(type="text", text="How warm is it?"))]
    tools = [types.Tool(name="temperature", input_schema={"type": "object"})]
    first = await ctx.session.create_message(
        messages,
        max_tokens=100,
        tools=tools,
        tool_choice=types.ToolChoice(mode="required"),
        related_request_id=ctx.request_id,
    )
    (use,) = first.content_as_list
    returned = types.ToolResultContent(
        type="tool_result", tool_use_id=use.id, content=[types.TextContent(type="text", text="4")]
    )
    messages += [
        types.SamplingMessage(role="assistant", content=[use]),
        types.SamplingMessage(role="user", content=[returned]),
    ]
    last = await ctx.session.create_message(messages, max_tokens=100, tools=tools, related_request_id=ctx.request_id)
    return text(" ".join(block.text for block in last.content_as_list))


async def places(ctx: Any) -> types.CallToolResult:
    result = await ctx.session.list_roots()
    return text(" ".join([*changes, *(str(root.uri) for root in result.roots)]))


TOOLS = {tool.__name__: tool for tool in (book, connect, locked, advise, places)}


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    return await TOOLS[params.name](ctx)


async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in TOOLS])


async def roots_changed(ctx: Any, params: Any) -> None:
    changes.append("changed")


server: Server[Any] = Server(
    "the SDK", on_list_tools=list_tools, on_call_tool=call_tool, on_roots_list_changed=roots_changed
)


async def main() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)
