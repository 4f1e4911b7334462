"""A server on the SDK's high-level class, as most servers are written with it, for our client."""

from __future__ import annotations

from typing import Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import Completion, ResourceTemplateReference, SamplingMessage, TextContent
from pydantic import BaseModel
from sdk_tools import add_tools

server = MCPServer("the SDK", version="2", instructions="Be kind.", log_level="ERROR")
add_tools(server)

seen: list[str] = []
"""What happened, for the client to ask about."""


class Point(BaseModel):
    x: int
    y: int


@server.tool(title="Sum")
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def mirrored(x: int, y: int) -> Point:
    return Point(x=y, y=x)


@server.tool(structured_output=False)
async def log(ctx: Context[Any, Any]) -> str:
    await ctx.info("told", logger_name="a.logger")
    return "done"


@server.tool(structured_output=False)
async def wait() -> str:
    try:
        await anyio.sleep_forever()
    finally:
        seen.append("wait was cancelled")
    return ""


@server.tool(structured_output=False)
async def what_happened() -> str:
    await anyio.sleep(0.01)
    return " ".join(seen)


@server.tool(structured_output=False)
async def ask_model(ctx: Context[Any, Any]) -> str:
    question = SamplingMessage(role="user", content=TextContent(type="text", text="2+2?"))
    result = await ctx.session.create_message([question], max_tokens=10, system_prompt="You count.", temperature=0.1)
    assert isinstance(result.content, TextContent)
    return f"{result.model}: {result.content.text}"


@server.resource("notes://first", title="The first", mime_type="text/plain")
def first() -> str:
    return "the note first"


@server.resource("data://blob", mime_type="application/octet-stream")
def blob() -> bytes:
    return bytes(range(256))


@server.resource("notes://{name}", mime_type="text/plain")
def note(name: str) -> str:
    return f"the note {name}"


@server.prompt(title="Hello")
def hello(name: str, style: str = "plain") -> str:
    """Greet somebody."""
    return f"Say hello to {name}."


@server.completion()  # type: ignore[no-untyped-call, untyped-decorator]  # it has no annotations
async def complete(ref: Any, argument: Any, context: Any) -> Completion:
    if isinstance(ref, ResourceTemplateReference):
        return Completion(values=[f"{argument.value}{number}" for number in range(100)], total=150, has_more=True)
    chosen = list((context.arguments or {}).values()) if context is not None else []
    return Completion(values=[name for name in ("Ada", "Alan", "Grace") if name.startswith(argument.value)] + chosen)


server.run("stdio")
