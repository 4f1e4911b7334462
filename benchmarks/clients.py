"""A client that calls a tool as fast as it can. Prints a JSON object: calls a second, and processor time a call.

    python benchmarks/clients.py CLIENT SERVER --seconds 1

CLIENT is mcpio, mcpio-asyncio, sdk or fastmcp; SERVER is memory (the client's own kind of server, in this process),
stdio (a bare one, as a child process), http (one that runs at ``--url``), or direct (sdk only: a server in this process
with no JSON between). fastmcp has no memory here.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import anyio
from harness import BARE_BLOCKING, Figures

Call: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[Any]]

CALLERS = (1, 64)
HTTP_CALLERS = (1, 16, 64)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Call a tool as fast as possible.")
    parser.add_argument("client", choices=["mcpio", "mcpio-asyncio", "sdk", "fastmcp"])
    parser.add_argument("server", choices=["memory", "stdio", "http", "direct"])
    parser.add_argument("--url", help="where the server is, for http")
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    callers = HTTP_CALLERS if options.server == "http" else CALLERS
    if options.client == "mcpio":
        # anyio, whose task groups serve both clients here, starts nothing but trio.run.
        figures = anyio.run(run, mcpio_client(options.server, options.url), callers, options.seconds, backend="trio")
    elif options.client == "mcpio-asyncio":
        figures = anyio.run(run, asyncio_client(options.server, options.url), callers, options.seconds)
    elif options.client == "fastmcp":
        figures = anyio.run(run, fastmcp_client(options.server, options.url), callers, options.seconds)
    else:
        figures = anyio.run(run, sdk_client(options.server, options.url), callers, options.seconds)
    print(json.dumps(figures))


async def run(client: Any, numbers: Sequence[int], seconds: float) -> Figures:
    """Call with each number of callers in turn."""
    figures: Figures = {}
    async with client as call:
        await rate(call, 1, seconds / 7)  # to warm up
        for callers in numbers:
            per_second, cpu = await rate(call, callers, seconds)
            figures[f"{callers}/s"], figures[f"{callers} CPU"] = per_second, cpu
    return figures


async def rate(call: Call, callers: int, seconds: float) -> tuple[float, float]:
    """Return calls a second, and microseconds of this process's own processor time for each."""
    done = 0
    cpu, began = time.process_time(), time.perf_counter()

    async def caller() -> None:
        nonlocal done
        while not done or time.perf_counter() < began + seconds:
            result = await call("echo", {"text": "hello"})
            if result.content[0].text != "hello":
                raise RuntimeError(f"not what was asked for: {result}")
            done += 1

    async with anyio.create_task_group() as group:
        for _ in range(callers):
            group.start_soon(caller)
    return done / (time.perf_counter() - began), (time.process_time() - cpu) / done * 1e6


@asynccontextmanager
async def mcpio_client(server: str, url: str) -> AsyncIterator[Call]:
    """Give our client's way to call a tool."""
    from echo_server import echo_server

    from mcpio.trio import memory_client, open_http, open_stdio

    opened: Any
    if server == "http":
        opened = open_http(url, era="handshake")
    else:
        opened = (
            open_stdio(BARE_BLOCKING, era="handshake")
            if server == "stdio"
            else memory_client(echo_server(), era="handshake")
        )
    async with opened as client:
        yield client.call_tool


@asynccontextmanager
async def asyncio_client(server: str, url: str) -> AsyncIterator[Call]:
    """Give our client's way on asyncio."""
    from echo_server import echo_server

    from mcpio.asyncio import memory_client, open_http, open_stdio

    opened: Any
    if server == "http":
        opened = open_http(url, era="handshake")
    else:
        opened = (
            open_stdio(BARE_BLOCKING, era="handshake")
            if server == "stdio"
            else memory_client(echo_server(), era="handshake")
        )
    async with opened as client:
        yield client.call_tool


@asynccontextmanager
async def sdk_client(server: str, url: str) -> AsyncIterator[Call]:
    """Give the official SDK's."""
    from mcp import Client, StdioServerParameters
    from peers import sdk_low_level

    target: Any = url if server == "http" else sdk_low_level.server
    if server == "stdio":
        command, *rest = BARE_BLOCKING
        target = StdioServerParameters(command=command, args=rest)
    # Its name for the revisions that begin with a handshake.
    async with Client(target, mode="auto" if server == "direct" else "legacy") as client:
        yield client.call_tool


@asynccontextmanager
async def fastmcp_client(server: str, url: str) -> AsyncIterator[Call]:
    """Give fastmcp's, over stdio or HTTP."""
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    command, *rest = BARE_BLOCKING
    async with Client(StdioTransport(command, rest) if server == "stdio" else url) as client:
        yield client.call_tool


if __name__ == "__main__":
    main()
