"""A server and a client of package ``mcp``: ``python sdk_peer.py server HOW``, or ``client``.

A server is ``stdio``, or ``http``, which prints its URL first, or ``guarded``, which has authorization too. A client
reads lines, each with a mode, a target and whether to log in as JSON, the target being a URL or the words of a command,
and prints what it saw of each as JSON.
"""

from __future__ import annotations

import json
import socket
import sys
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx2
import uvicorn
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from mcp.types import ElicitResult
from pydantic import BaseModel


class Person(BaseModel):
    name: str


def who() -> Elicit[Person]:
    return Elicit("Who are you?", Person)


def add(a: int, b: int) -> int:
    return a + b


async def count(to: int, ctx: Context[Any, Any]) -> str:
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"step {number}")
    return "done"


async def greet(answer: Annotated[ElicitationResult[Person], Resolve(who)]) -> str:
    return f"{answer.action} {answer.data.name if answer.action == 'accept' else None}"


def fail() -> str:
    raise ToolError("as it should")


def build(**options: Any) -> MCPServer:
    server = MCPServer("the SDK", version="2", log_level="ERROR", **options)
    server.add_tool(add)
    for tool in (count, greet, fail):
        server.add_tool(tool, structured_output=False)
    return server


def guarded(origin: Any) -> MCPServer:
    """Return a server with its own authorization server, whose tokens fastmcp's provider keeps."""
    from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider

    settings = AuthSettings(
        issuer_url=origin,
        resource_server_url=f"{origin}/mcp",  # type: ignore[arg-type]  # pydantic makes a URL of it
        client_registration_options=ClientRegistrationOptions(enabled=True),
        validate_token_resource=False,
    )
    return build(auth_server_provider=InMemoryOAuthProvider(base_url=origin), auth=settings)


def serve(how: str) -> None:
    if how == "stdio":
        build().run("stdio")
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
        print(f"{origin}/mcp", flush=True)
        app = (guarded(origin) if how == "guarded" else build()).streamable_http_app()
        config = uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])


class Tokens:
    """Storage of a client, in memory."""

    def __init__(self) -> None:
        self.tokens: Any = None
        self.client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


def logging_in(url: str) -> OAuthClientProvider:
    """Log in without a browser: the authorization server approves at once."""
    seen: list[str] = []

    async def visit(authorization: str) -> None:
        async with httpx2.AsyncClient() as http:
            seen.append((await http.get(authorization, follow_redirects=False)).headers["location"])

    async def callback() -> AuthorizationCodeResult:
        query = dict(parse_qsl(urlsplit(seen.pop()).query))
        return AuthorizationCodeResult(code=query["code"], state=query["state"], iss=query.get("iss"))

    uris: Any = ["http://127.0.0.1:1/callback"]
    metadata = OAuthClientMetadata(redirect_uris=uris, client_name="the SDK")
    return OAuthClientProvider(url, metadata, Tokens(), visit, callback)


async def report(mode: str, target: list[str], login: bool) -> dict[str, Any]:
    asked, progress = [], []

    async def elicit(ctx: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"name": "Ada"})

    async def step(*numbers: Any) -> None:
        progress.append(numbers)

    place: Any = target[0]
    http = httpx2.AsyncClient(auth=logging_in(place) if login else None, timeout=20)
    if login:
        place = streamable_http_client(place, http_client=http)
    elif not place.startswith("http"):
        place = StdioServerParameters(command=place, args=target[1:])
    open_client: Any = Client
    async with http, open_client(place, mode=mode, elicitation_callback=elicit) as client:
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
