"""Does what each scenario of the official conformance suite asks of a client: ``python client.py [--asyncio] URL``.

The suite names the scenario in the environment variable ``MCP_CONFORMANCE_SCENARIO``. The client runs on Trio, or on
asyncio.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import trio

import mcpio.asyncio
import mcpio.trio
from mcpio import Client
from mcpio.app import RequestScope
from mcpio.auth import (
    AskUser,
    ClientCredentials,
    EnterpriseManaged,
    MemoryCredentials,
    OAuth,
    ShowCode,
    WorkloadIdentity,
    load_signer,
)
from mcpio.errors import ConnectFailed, McpError
from mcpio.types import ElicitFormRequest, ElicitResult, ElicitURLRequest

DEADLINE = 30.0
"""Seconds for a whole scenario: nobody else ends a client that hangs."""

CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
"""What the suite tells about a scenario, such as the client that is registered."""


async def main(open_http: Callable[..., Any], url: str) -> None:
    """Hold the conversation of one scenario."""
    name = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    options: dict[str, Any] = {"elicitation": accept_defaults}
    if name.startswith("auth/"):
        options = {"auth": authorization(name), "credentials": MemoryCredentials(), "ask_user": visit}
    scenario = SCENARIOS.get(name, use_protected if name.startswith("auth/") else list_tools)
    try:
        async with open_http(url, **options) as client:
            await scenario(client)
    except (ConnectFailed, McpError):
        # A server that is to be mistrusted, or never content: giving up is what is asked for.
        if name not in GIVE_UP:
            raise


async def on_trio(url: str) -> None:
    """Hold the conversation on Trio."""
    with trio.fail_after(DEADLINE):
        await main(mcpio.trio.open_http, url)


async def on_asyncio(url: str) -> None:
    """Hold the conversation on asyncio."""
    async with asyncio.timeout(DEADLINE):
        await main(mcpio.asyncio.open_http, url)


def accept_defaults(scope: RequestScope, request: ElicitFormRequest | ElicitURLRequest) -> ElicitResult:
    """Accept a form as it stands: what it has defaults for is filled in with them."""
    return ElicitResult("accept", {})


def authorization(name: str) -> Any:
    """Return how to be authorized in a scenario."""
    client_id: str = CONTEXT.get("client_id", "")
    secret: str | None = CONTEXT.get("client_secret")
    match name:
        case "auth/client-credentials-basic":
            return ClientCredentials(client_id, secret=secret)
        case "auth/client-credentials-jwt":
            return ClientCredentials(client_id, signer=load_signer(CONTEXT["private_key_pem"]))
        case "auth/enterprise-managed-authorization":
            return EnterpriseManaged(
                client_id=client_id,
                client_secret=secret,
                idp_issuer=CONTEXT["idp_issuer"],
                idp_token_endpoint=CONTEXT["idp_token_endpoint"],
                idp_client_id=CONTEXT["idp_client_id"],
                assertion=CONTEXT["idp_id_token"],
            )
        case "auth/wif-jwt-bearer":
            return WorkloadIdentity(client_id, assertion=CONTEXT["valid_jwt"])
        case _ if client_id:
            return OAuth(client_id=client_id, client_secret=secret)
        case _:
            return OAuth(client_metadata_url="https://conformance-test.local/client-metadata.json")


def visit(effect: AskUser | ShowCode) -> str | None:
    """Log in as a person does, whom these servers ask nothing: return where the browser is sent."""
    assert isinstance(effect, AskUser)
    parts = urlsplit(effect.url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    connection.request("GET", f"{parts.path}?{parts.query}")
    return connection.getresponse().headers["location"]


async def use_protected(client: Client) -> None:
    """List the tools, and call the first."""
    tools = await client.list_tools()
    await client.call_tool(tools.tools[0].name, {})


async def do_nothing(client: Client) -> None:
    """Leave it at the handshake: this server offers nothing."""


async def list_tools(client: Client) -> None:
    """Ask for the tools."""
    await client.list_tools()


async def call_tool(client: Client) -> None:
    """Add two numbers."""
    await client.list_tools()
    await client.call_tool("add_numbers", {"a": 5, "b": 3})


async def be_asked(client: Client) -> None:
    """Call the tool that asks for a form."""
    await client.list_tools()
    await client.call_tool("test_client_elicitation_defaults", {})


async def come_back(client: Client) -> None:
    """Call the tool whose answer has to be fetched."""
    await client.list_tools()
    await client.call_tool("test_reconnection", {})


async def echo_schema(client: Client) -> None:
    """Send a tool's schema back just as it came."""
    tools = {tool.name: tool async for tool in client.tools()}
    schema = tools["json_schema_2020_12_tool"].input_schema
    await client.call_tool("json_schema_echo", {"schema": schema})


SCENARIOS: dict[str, Callable[[Client], Awaitable[None]]] = {
    "initialize": do_nothing,
    "tools_call": call_tool,
    "elicitation-sep1034-client-defaults": be_asked,
    "sse-retry": come_back,
    "json-schema-2020-12-preservation": echo_schema,
}
"""What to do, by the name of the scenario; else, list the tools."""

GIVE_UP = {
    "auth/scope-retry-limit",
    "auth/resource-mismatch",
    "auth/metadata-issuer-mismatch",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
}
"""The scenarios in which the client has to give up."""

if __name__ == "__main__":
    if "--asyncio" in sys.argv:
        asyncio.run(on_asyncio(sys.argv[-1]))
    else:
        trio.run(on_trio, sys.argv[-1])
