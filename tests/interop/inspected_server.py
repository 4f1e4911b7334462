"""A server for the inspector's page, friendly and hostile: what it says is markup, long, or far too much."""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mcpio import Context, Server
from mcpio.app import TaskOptions
from mcpio.types import CallToolResult, ImageContent, ListToolsResult, TextContent, Tool

MARKUP = "<img src=x onerror='window.ran=1'><script>window.ran=1</script><a href='javascript:window.ran=1'>x</a>"
SVG = "<svg xmlns='http://www.w3.org/2000/svg' onload='window.ran=1'><script>window.ran=1</script></svg>"


@dataclass
class Seats:
    seats: int


server = Server("kitchen", "1.0", instructions="Bake.", tasks=TaskOptions())


@server.tool
async def bake(ctx: Context, kind: Literal["rye", "wheat"], count: int = 1, note: str | None = None) -> dict[str, int]:
    """Bake loaves."""
    ctx.progress(1, 2, "rising")
    print("in the oven", file=sys.stderr)
    return {"loaves": count}


@server.tool
async def seat(ctx: Context) -> str:
    """Ask for seats."""
    return f"{await ctx.elicit('How many seats?', Seats)}"


@server.tool
async def sleep(ctx: Context) -> str:
    """Sleep for long."""
    await ctx.sleep(1000)
    return "awake"


@server.tool(task_support="optional")
async def knead() -> str:
    """Knead the dough."""
    return "kneaded"


@server.tool
def flood(count: int) -> str:
    """Write many lines."""
    for number in range(count):
        print(f"line {number}", file=sys.stderr)
    return "done"


@server.resource("note://one")
def one() -> str:
    return "a note"


@server.resource("note://{name}/text")
def named(name: str) -> str:
    return f"a note of {name}"


@server.prompt
def greet(name: str) -> str:
    """Greet a person."""
    return f"Hello {name}"


hostile = Server(MARKUP, MARKUP, title=MARKUP, instructions=MARKUP, website_url="javascript:window.ran=1")
LONG = "n" * 1_000_000
MANY = [Tool(f"tool{number}", {"type": "object"}, description=MARKUP) for number in range(100_000)]


FEW = (
    Tool("say", {"type": "object", "properties": {MARKUP: {"type": "string", "title": MARKUP, "default": MARKUP}}}),
    Tool("long", {"type": "object"}, title=LONG),
    Tool("ask", {"type": "object"}),
)


def _list_few(ctx: Context, request: Any) -> ListToolsResult:
    return ListToolsResult(FEW)


def _list(ctx: Context, request: Any) -> ListToolsResult:
    start = int(request.cursor or 0)
    end = start + 10_000
    page = (*(() if start else FEW), *MANY[start:end])
    return ListToolsResult(page, next_cursor=str(end) if end < len(MANY) else None)


async def _call(ctx: Context, request: Any) -> CallToolResult:
    arguments: Mapping[str, Any] = request.arguments or {}
    if request.name == "long":
        return CallToolResult((TextContent("x" * 12_000_000),))
    if request.name == "ask":
        return CallToolResult((TextContent(f"{await ctx.elicit(MARKUP, Seats)}"),))
    print(MARKUP, file=sys.stderr)
    picture = ImageContent(b64encode(SVG.encode()).decode(), "image/svg+xml")
    odd = ImageContent(b64encode(MARKUP.encode()).decode(), "text/html")
    return CallToolResult((TextContent(MARKUP), picture, odd), structured_content={MARKUP: MARKUP, "got": [*arguments]})


endless = Server("endless")

for each in (hostile, endless):

    @each.tool
    def say() -> str:
        """Say something, by the handlers below."""
        return ""

    each.handlers["tools/list"] = _list if each is endless else _list_few
    each.handlers["tools/call"] = _call
