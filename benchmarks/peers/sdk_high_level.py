"""The echo server on the high-level server of the official SDK (``mcp`` 2.x)."""

from __future__ import annotations

import os

from mcp.server import MCPServer

server = MCPServer("echo", log_level="ERROR")


def echo(text: str) -> str:
    """Echo the text back to the caller."""
    return text


for name in ["echo"] + [f"tool_{number:03}" for number in range(1, int(os.environ.get("BENCH_TOOLS", "1")))]:
    server.add_tool(echo, name=name, structured_output=False)

if __name__ == "__main__":
    server.run("stdio")
