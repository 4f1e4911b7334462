"""The echo server on ``fastmcp``, over HTTP under uvicorn and h11.

python benchmarks/peers/fastmcp_server.py
python benchmarks/peers/fastmcp_server.py --http 8000 [--sse] [--stateless]
"""

from __future__ import annotations

import argparse
import os
from typing import Any

os.environ["FASTMCP_LOG_LEVEL"] = "ERROR"  # read when it is imported
os.environ["FASTMCP_CHECK_FOR_UPDATES"] = "off"

from fastmcp import FastMCP
from fastmcp.tools import Tool

server = FastMCP("echo")


def echo(text: str) -> str:
    """Echo the text back to the caller."""
    return text


for name in ["echo"] + [f"tool_{number:03}" for number in range(1, int(os.environ.get("BENCH_TOOLS", "1")))]:
    server.add_tool(Tool.from_function(echo, name=name, output_schema=None))


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description="A server with a tool that echoes, on fastmcp.")
    parser.add_argument("--http", type=int, metavar="PORT", help="serve over HTTP, at /mcp")
    parser.add_argument("--sse", action="store_true", help="over HTTP, answer with events always")
    parser.add_argument("--stateless", action="store_true", help="over HTTP, keep no sessions")
    options = parser.parse_args()
    if options.http is None:
        server.run("stdio", show_banner=False)
    else:
        import uvicorn

        app = server.http_app(json_response=not options.sse, stateless_http=options.stateless)
        quiet: Any = {"log_level": "error", "access_log": False}
        uvicorn.run(app, host="127.0.0.1", port=options.http, http="h11", **quiet)


if __name__ == "__main__":
    main()
