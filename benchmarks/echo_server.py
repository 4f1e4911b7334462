"""The server that the benchmarks drive: a tool ``echo``, and as many others as ``BENCH_TOOLS`` says in all.

python benchmarks/echo_server.py --stdio
"""

from __future__ import annotations

import argparse
import os

import trio

from mcpio import Server
from mcpio.trio import serve_stdio


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description="A server with a tool that echoes.")
    transport = parser.add_mutually_exclusive_group(required=True)
    transport.add_argument("--stdio", action="store_true", help="serve the parent process")
    parser.parse_args()
    trio.run(serve_stdio, echo_server(int(os.environ.get("BENCH_TOOLS", "1"))))


def echo_server(tools: int = 1) -> Server:
    """Return a server with so many tools."""
    server = Server("echo")
    server.tool(echo)
    for number in range(1, tools):
        server.tool(name=f"tool_{number:03}")(echo)
    return server


def echo(text: str) -> str:
    """Echo the text back to the caller."""
    return text


if __name__ == "__main__":
    main()
