"""A server and a client of package ``mcp``: ``python sdk_peer.py server HOW``, or ``client``.

A server is ``stdio``, or ``http``, which prints its URL first. A client reads lines, each with a
mode and a target as JSON, the target being a URL or the words of a command, and prints what it saw of each as JSON.
"""

from __future__ import annotations

import json
import socket
import sys
from typing import Annotated, Any

import anyio
import uvicorn
from mcp import Client, MCPError, StdioServerParameters
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.types import ElicitResult
from pydantic import BaseModel

server = MCPServer("the SDK", version="2", log_level="ERROR")


class Person(BaseModel):
    name: str


def who() -> Elicit[Person]:
    return Elicit("Who are you?", Person)


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool(structured_output=False)
async def count(to: int, ctx: Context[Any, Any]) -> str:
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"step {number}")
    return "done"


@server.tool(structured_output=False)
async def greet(answer: Annotated[ElicitationResult[Person], Resolve(who)]) -> str:
    return f"{answer.action} {answer.data.name if answer.action == 'accept' else None}"


@server.tool(structured_output=False)
def fail() -> str:
    raise ToolError("as it should")


def serve(how: str) -> None:
    if how == "stdio":
        server.run("stdio")
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        config = uvicorn.Config(server.streamable_http_app(), log_level="error", ws="none", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])


async def report(mode: str, target: list[str]) -> dict[str, Any]:
    asked, progress = [], []

    async def elicit(ctx: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"name": "Ada"})

    async def step(*numbers: Any) -> None:
        progress.append(numbers)

    place = target[0] if target[0].startswith("http") else StdioServerParameters(command=target[0], args=target[1:])
    open_client: Any = Client
    async with open_client(place, mode=mode, elicitation_callback=elicit) as client:
        listed = await client.list_tools()
        added = await client.call_tool("add", {"a": 2, "b": 3})
        counted = await client.call_tool("count", {"to": 3}, progress_callback=step)
        greeted = await client.call_tool("greet", {})
        failed = await client.call_tool("fail", {})
        try:
            unknown = (await client.call_tool("none", {})).is_error
        except MCPError as error:
            unknown = error.code
        return {
            "revision": client.protocol_version,
            "server": client.server_info.name if client.server_info else None,
            "tools": sorted(tool.name for tool in listed.tools),
            "added": added.structured_content,
            "counted": counted.content[0].text,
            "progress": progress,
            "asked": asked,
            "greeted": greeted.content[0].text,
            "failed": [failed.is_error, failed.content[0].text],
            "unknown": unknown,
        }


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve(sys.argv[2])
    else:
        for line in sys.stdin:
            print(json.dumps(anyio.run(report, *json.loads(line))), flush=True)
