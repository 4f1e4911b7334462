"""The echo server on the low-level server of the official SDK (``mcp`` 2.x), over HTTP under uvicorn.

python benchmarks/peers/sdk_low_level.py
python benchmarks/peers/sdk_low_level.py --http 8000 [--sse] [--parser httptools]
"""

from __future__ import annotations

import argparse
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


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description="A server with a tool that echoes, on the official SDK.")
    parser.add_argument("--http", type=int, metavar="PORT", help="serve over HTTP, at /mcp")
    parser.add_argument("--sse", action="store_true", help="over HTTP, answer with events always")
    parser.add_argument(
        "--parser", choices=("h11", "httptools"), default="h11", help="what parses HTTP: h11 is what the SDK depends on"
    )
    options = parser.parse_args()
    if options.http is None:
        anyio.run(serve_parent)
    else:
        import uvicorn

        app = server.streamable_http_app(json_response=not options.sse)
        quiet: Any = {"log_level": "error", "access_log": False}
        uvicorn.run(app, host="127.0.0.1", port=options.http, http=options.parser, **quiet)


async def serve_parent() -> None:
    """Serve the parent process."""
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    main()
