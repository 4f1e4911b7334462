"""A client that does what each scenario of the official conformance suite asks for: ``python client.py URL``.

The suite names the scenario in the environment variable ``MCP_CONFORMANCE_SCENARIO``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable

import trio

from mcpio import Client
from mcpio.app import RequestScope
from mcpio.trio import open_http
from mcpio.types import ElicitFormRequest, ElicitResult, ElicitURLRequest

DEADLINE = 30.0
"""Seconds for a whole scenario: nobody else ends a client that hangs."""


async def main(url: str) -> None:
    """Hold the conversation of one scenario."""
    scenario = SCENARIOS.get(os.environ.get("MCP_CONFORMANCE_SCENARIO", ""), list_tools)
    with trio.fail_after(DEADLINE):
        async with open_http(url, elicitation=accept_defaults) as client:
            await scenario(client)


def accept_defaults(scope: RequestScope, request: ElicitFormRequest | ElicitURLRequest) -> ElicitResult:
    """Accept a form as it stands: what it has defaults for is filled in with them."""
    return ElicitResult("accept", {})


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

if __name__ == "__main__":
    trio.run(main, sys.argv[-1])
