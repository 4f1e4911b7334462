"""A server, a proxy and a client of ``fastmcp``: ``python fastmcp_peer.py ROLE HOW TARGET``.

ROLE ``server`` is ``stdio``, or ``http``, which prints its URL first, or ``guarded``, which has authorization too. So
is ``proxy``, in front of TARGET, a URL or the words of a command. ROLE ``client`` reads lines, each with a mode, a
target and whether to log in as JSON, and prints what it saw of each as JSON.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
import webbrowser
from typing import Any

import anyio
import uvicorn
from fastmcp import Client, Context, FastMCP
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from fastmcp.server import create_proxy
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from mcp import MCPError
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def add(a: int, b: int) -> int:
    return a + b


async def count(to: int, ctx: Context) -> str:
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"step {number}")
    return "done"


# It has no way to ask that works in both eras.
async def greet(ctx: Context) -> Any:
    if ctx.request_context.protocol_version < "2026":
        answer: Any = await ctx.session.elicit("Who are you?", FORM, ctx.request_id)
    elif ctx.input_responses is None:
        params = ElicitRequestFormParams(message="Who are you?", requested_schema=FORM)
        return InputRequiredResult(input_requests={"who": ElicitRequest(params=params)})
    else:
        answer = ctx.input_responses["who"]
    return f"{answer.action} {(answer.content or {}).get('name')}"


def fail() -> str:
    raise ToolError("as it should")


def build(**options: Any) -> Any:
    server: Any = FastMCP("fastmcp", version="4", **options)
    server.tool(add)
    for tool in (count, greet, fail):
        server.tool(tool, output_schema=None)
    return server


def serve(role: str, how: str, target: list[str]) -> None:
    served = create_proxy(place(target)) if role == "proxy" else build()
    if how == "stdio":
        served.run("stdio", show_banner=False)
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
        print(f"{origin}/mcp", flush=True)
        if how == "guarded":
            registration = ClientRegistrationOptions(enabled=True)
            served = build(auth=InMemoryOAuthProvider(base_url=origin, client_registration_options=registration))
        config = uvicorn.Config(served.http_app("/mcp"), log_level="error", ws="none", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])


def place(target: list[str]) -> Any:
    return target[0] if target[0].startswith("http") else StdioTransport(target[0], target[1:])


def visit(url: str, new: int = 0, autoraise: bool = True) -> bool:
    """Log in, as a browser does: the authorization server approves at once. Its caller listens later."""

    def follow() -> None:
        for _ in range(100):
            try:
                urllib.request.urlopen(url).close()
            except urllib.error.URLError:
                time.sleep(0.05)
            else:
                return

    threading.Thread(target=follow, daemon=True).start()
    return True


async def report(mode: str, target: list[str], login: bool) -> dict[str, Any]:
    asked, progress = [], []

    async def elicit(message: str, kind: Any, *_: Any) -> Any:
        asked.append(message)
        return {"name": "Ada"}

    async def step(*numbers: Any) -> None:
        progress.append(numbers)

    async with Client(place(target), mode=mode, elicitation_handler=elicit, auth="oauth" if login else None) as client:
        listed = await client.list_tools()
        added = await client.call_tool("add", {"a": 2, "b": 3})
        counted = await client.call_tool("count", {"to": 3}, progress_handler=step)
        greeted = await client.call_tool("greet", {}, raise_on_error=False)
        failed = await client.call_tool("fail", {}, raise_on_error=False)
        try:
            unknown = (await client.call_tool("none", {}, raise_on_error=False)).is_error
        except MCPError as error:
            unknown = error.code
        return {
            "revision": client.session.protocol_version,
            "server": client.session.server_info.name if client.session.server_info else None,
            "tools": sorted(tool.name for tool in listed),
            "added": added.structured_content,
            "counted": counted.content[0].text,
            "progress": progress,
            "asked": asked,
            "greeted": greeted.content[0].text,
            "failed": [failed.is_error, failed.content[0].text],
            "unknown": unknown,
        }


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    if role != "client":
        serve(role, rest[0], rest[1:])
    else:
        webbrowser.open = visit
        for line in sys.stdin:
            print(json.dumps(anyio.run(report, *json.loads(line))), flush=True)
