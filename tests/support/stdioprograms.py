"""Programs that speak MCP over standard input and output, and what a client writes to them."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

SERVER = """
import os, sys
from contextlib import asynccontextmanager
from mcpio import Context, Server

@asynccontextmanager
async def lifespan(server):
    print("entered", file=sys.stderr)
    try:
        yield
    finally:
        print("left", file=sys.stderr)

server = Server("real", lifespan=lifespan)

@server.tool
def echo(text: str) -> str:
    print("a stray line from a handler")
    os.write(1, b"and one from C\\n")
    return text

@server.tool
async def later(ctx: Context, seconds: float) -> str:
    await ctx.sleep(seconds)
    return "later"

@server.tool
async def never_ends(ctx: Context) -> None:
    ctx.progress(1)
    try:
        await ctx.sleep(3600)
    finally:
        print("never_ends was cancelled", file=sys.stderr)

@server.tool
async def dies(status: int) -> None:
    print("something terrible", file=sys.stderr)
    print("has happened", file=sys.stderr, flush=True)
    os._exit(status)

@server.tool(blocking=True)
def blocks() -> None:
    import time
    time.sleep(60)
"""

WITHOUT_SLOW_CALLBACKS = """
import logging
logging.getLogger("asyncio").addFilter(lambda record: not str(record.msg).startswith("Executing "))
"""
"""As in ``conftest.py``: what asyncio's debug mode tells a program's standard error of callbacks that took long."""

SERVED = {
    "trio": "import trio\nfrom mcpio.trio import serve_stdio\ntrio.run(partial(serve_stdio, server, OPTIONS))",
    "asyncio": "import asyncio\nfrom mcpio.asyncio import serve_stdio\nasyncio.run(serve_stdio(server, OPTIONS))",
    "uvloop": "import uvloop\nfrom mcpio.asyncio import serve_stdio\nuvloop.run(serve_stdio(server, OPTIONS))",
}


def server_on(loop: str, options: str = "") -> list[str]:
    """Return what serves ``SERVER`` on an event loop, with options as they stand in a call."""
    return python(
        f"{WITHOUT_SLOW_CALLBACKS}{SERVER}\nfrom functools import partial\n{SERVED[loop].replace('OPTIONS', options)}"
    )


RAW = """
import json, os, sys

def answer(request, **result):
    os.write(1, json.dumps({"jsonrpc": "2.0", "id": request["id"], **result}).encode() + b"\\n")

def greet():
    request = json.loads(sys.stdin.readline())
    info = {"name": "raw", "version": "1"}
    answer(request, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
    return json.loads(sys.stdin.readline())

def call():
    return json.loads(sys.stdin.readline())
"""
"""A server without a library, which starts quickly and does what a test adds."""


def python(source: str) -> list[str]:
    return [sys.executable, "-c", source]


def raw(source: str) -> list[str]:
    return [sys.executable, "-S", "-c", RAW + source]


POLITE = raw("greet()\nfor line in sys.stdin:\n    answer(json.loads(line), result={'content': []})")

HELLO: dict[str, Any] = {
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}


def lines(*messages: dict[str, Any]) -> bytes:
    return b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages)


def tool(id: int, name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments, "_meta": {"progressToken": id}}
    return {"id": id, "method": "tools/call", "params": params}


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def opened(*messages: dict[str, Any]) -> bytes:
    """Return a conversation that begins with a handshake."""
    return lines(HELLO, {"method": "notifications/initialized"}, *messages)
