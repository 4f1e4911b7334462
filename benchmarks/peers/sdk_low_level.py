"""The echo server on the low-level server of the official SDK (``mcp`` 2.x)."""

from __future__ import annotations

import os
from typing import Any

import anyio
import mcp.types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NAMES = ["echo"] + [f"tool_{number:03}" for number in range(1, int(os.environ.get("BENCH_TOOLS", "1")))]
TOOLS = [types.Tool(name=name, description="Echo the text back to the caller.", input_schema=SCHEMA) for name in NAMES]


async def list_tools(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    """Answer ``tools/list``."""
    return types.ListToolsResult(tools=TOOLS)


async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    """Answer ``tools/call``."""
    arguments = params.arguments or {}
    return types.CallToolResult(content=[types.TextContent(type="text", text=arguments["text"])])


server = Server("echo", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def main() -> None:
    """Serve the parent process."""
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
