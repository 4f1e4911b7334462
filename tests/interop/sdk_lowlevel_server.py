"""A server on the SDK's low-level class that offers something of every kind, for our client."""

from __future__ import annotations

import base64
from typing import Any

import anyio
import mcp.types as types
from mcp import MCPError
from mcp.server import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.stdio import stdio_server

seen: list[str] = []
"""What happened, for the client to ask about."""

subscribed: set[str] = set()
level = "info"
LEVELS = ["debug", "info", "notice", "warning", "error"]


def text(value: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=value)])


# Tools


async def add(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    total = arguments["a"] + arguments.get("b", 1)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=str(total))], structured_content={"result": total}
    )


async def echo(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    return text(arguments["text"])


async def mixed(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    contents = types.TextResourceContents(uri="notes://first", text="within", mime_type="text/plain")
    audience = types.Annotations(audience=["user"], priority=0.5)
    return types.CallToolResult(
        content=[
            types.TextContent(type="text", text="text", annotations=audience),
            types.ImageContent(type="image", data="aW1hZ2U=", mime_type="image/png"),
            types.AudioContent(type="audio", data="YXVkaW8=", mime_type="audio/wav"),
            types.ResourceLink(type="resource_link", uri="notes://first", name="first"),
            types.EmbeddedResource(type="resource", resource=contents),
        ]
    )


async def fail(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text="as it should")], is_error=True)


async def count(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    for number in range(1, arguments["to"] + 1):
        await ctx.session.report_progress(number, arguments["to"], f"step {number}")
    return text("done")


async def log(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    for name, data in (("debug", "too little"), ("info", {"some": "data"}), ("error", "much")):
        if LEVELS.index(name) >= LEVELS.index(level):
            await ctx.session.send_log_message(name, data, "a.logger", related_request_id=ctx.request_id)
    return text("done")


async def wait(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    seen.append("wait began")
    try:
        await anyio.sleep_forever()
    finally:
        seen.append("wait was cancelled")
    return text("")


async def what_happened(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    await anyio.sleep(0.01)
    return text(" ".join(seen))


async def ask_model(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    question = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="2+2?"))
    result = await ctx.session.create_message(
        [question], max_tokens=10, system_prompt="You count.", temperature=0.1, related_request_id=ctx.request_id
    )
    return text(f"{result.model}: {result.content.text}")


async def ask_user(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    form = {"type": "object", "properties": {"name": {"type": "string", "minLength": 1}}, "required": ["name"]}
    result = await ctx.session.elicit_form("Who are you?", form, ctx.request_id)
    return text(f"{result.action} {(result.content or {}).get('name')}")


async def ask_roots(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    result = await ctx.session.list_roots()
    return text(" ".join(f"{root.uri}={root.name}" for root in result.roots))


async def ping_back(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    await ctx.session.send_ping()
    return text(ctx.session.client_params.client_info.name)


async def grow(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    TOOLS["grown"] = echo
    await ctx.session.send_tool_list_changed()
    await ctx.session.send_resource_list_changed()
    await ctx.session.send_prompt_list_changed()
    return text("done")


async def touch(ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
    if arguments["uri"] in subscribed:
        await ctx.session.send_resource_updated(arguments["uri"])
    return text(str(len(subscribed)))


TOOLS = {
    tool.__name__: tool
    for tool in (
        add, echo, mixed, fail, count, log, wait, what_happened, ask_model, ask_user, ask_roots, ping_back, grow, touch
    )
}  # fmt: skip


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    if params.name not in TOOLS:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
    return await TOOLS[params.name](ctx, params.arguments or {})


def paged(items: list[Any], params: types.PaginatedRequestParams | None) -> tuple[list[Any], str | None]:
    start = 0 if params is None or params.cursor is None else int(params.cursor)
    return items[start : start + 3], str(start + 3) if start + 3 < len(items) else None


async def list_tools(ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    result = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}
    tools = [
        types.Tool(
            name=name,
            input_schema={"type": "object"},
            title="Sum" if name == "add" else None,
            output_schema=result if name == "add" else None,
            annotations=types.ToolAnnotations(read_only_hint=True) if name == "add" else None,
        )
        for name in TOOLS
    ]
    page, cursor = paged(tools, params)
    return types.ListToolsResult(tools=page, next_cursor=cursor)


# Resources, prompts, completion


async def list_resources(ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    first = types.Resource(uri="notes://first", name="first", title="The first", mime_type="text/plain")
    others = [types.Resource(uri=f"page://{number}", name=f"page {number}") for number in range(5)]
    page, cursor = paged([first, *others], params)
    return types.ListResourcesResult(resources=page, next_cursor=cursor)


async def list_templates(ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(uri_template="notes://{name}", name="note", mime_type="text/plain")
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = str(params.uri)
    if uri == "data://blob":
        blob = base64.b64encode(bytes(range(256))).decode()
        contents: Any = types.BlobResourceContents(uri=uri, blob=blob, mime_type="application/octet-stream")
    elif uri.startswith("notes://"):
        contents = types.TextResourceContents(uri=uri, text=f"the note {uri[8:]}", mime_type="text/plain")
    else:
        raise MCPError(-32002, f"Resource not found: {uri}", {"uri": uri})
    return types.ReadResourceResult(contents=[contents])


async def subscribe(ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
    subscribed.add(str(params.uri))
    return types.EmptyResult()


async def unsubscribe(ctx: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    subscribed.discard(str(params.uri))
    return types.EmptyResult()


async def list_prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
    arguments = [
        types.PromptArgument(name="name", required=True),
        types.PromptArgument(name="style", description="How to say it"),
    ]
    hello = types.Prompt(name="hello", title="Hello", description="Greet somebody.", arguments=arguments)
    return types.ListPromptsResult(prompts=[hello])


async def get_prompt(ctx: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    if params.name != "hello":
        raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")
    said = types.TextContent(type="text", text=f"Say hello to {(params.arguments or {})['name']}.")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=said)], description="Hello")


async def complete(ctx: Any, params: types.CompleteRequestParams) -> types.CompleteResult:
    if isinstance(params.ref, types.ResourceTemplateReference):
        values = [f"{params.argument.value}{number}" for number in range(100)]
        return types.CompleteResult(completion=types.Completion(values=values, total=150, has_more=True))
    chosen = params.context.arguments if params.context is not None else None
    values = [name for name in ("Ada", "Alan", "Grace") if name.startswith(params.argument.value)]
    return types.CompleteResult(completion=types.Completion(values=[*values, *(chosen or {}).values()]))


async def set_level(ctx: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
    global level  # noqa: PLW0603 - one client, one level
    level = params.level
    return types.EmptyResult()


async def roots_changed(ctx: Any, params: Any) -> None:
    seen.append("the roots changed")


server: Server[Any] = Server(
    "the SDK",
    version="2",
    instructions="Be kind.",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_resources=list_resources,
    on_list_resource_templates=list_templates,
    on_read_resource=read_resource,
    on_subscribe_resource=subscribe,
    on_unsubscribe_resource=unsubscribe,
    on_list_prompts=list_prompts,
    on_get_prompt=get_prompt,
    on_completion=complete,
    on_set_logging_level=set_level,
    on_roots_list_changed=roots_changed,
)


async def main() -> None:
    changing = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options(changing))


anyio.run(main)
