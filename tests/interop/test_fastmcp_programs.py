"""fastmcp's side of the tables and programs: what the tables name exists, and its programs do what ours do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from comparisons import BEFORE, faults, loaded, rows
from fastmcp import Client, Context, FastMCP, dependencies, exceptions
from fastmcp.client.client import CallToolResult
from fastmcp.server import create_proxy
from fastmcp.server.dependencies import get_access_token, get_http_headers
from fastmcp.utilities.types import Image
from mcp_types import ToolAnnotations
from tree import ROOT

THEIRS: dict[str, Any] = {
    "FastMCP": FastMCP,
    "mcp": FastMCP,
    "Client": Client,
    "client": Client,
    "Context": Context,
    "ctx": Context,
    "CurrentContext": dependencies.CurrentContext,
    "Depends": dependencies.Depends,
    "create_proxy": create_proxy,
    "ToolError": exceptions.ToolError,
    "Image": Image,
    "get_access_token": get_access_token,
    "get_http_headers": get_http_headers,
    "provider": object(),  # of any kind
    "ToolAnnotations": ToolAnnotations,
    "result": CallToolResult,
}


def test_fastmcp_names_in_the_table_exist() -> None:
    found = rows(ROOT / "docs" / "coming-from-fastmcp.md")
    assert {row.theirs: wrong for row in found if (wrong := faults(row.theirs, THEIRS))} == {}


async def call(server: Any, name: str, arguments: dict[str, Any]) -> str:
    async with Client(server) as client:
        result = await client.call_tool(name, arguments, raise_on_error=False)
        return "\n".join(block.text for block in result.content)


@pytest.mark.parametrize(
    ("program", "server", "name", "arguments", "said"),
    [
        ("echo", "mcp", "say", {"text": "hi"}, "hi"),
        ("smart_home", "home", "lamps_dim", {"name": "attic", "percent": 5}, "there is no lamp 'attic'"),
        ("memory", "mcp", "remember", {"contents": ["It rains"]}, "Remembered: It rains"),
    ],
)
def test_fastmcp_programs_return_the_same_as_ours(
    program: str, server: str, name: str, arguments: dict[str, Any], said: str
) -> None:
    found = getattr(loaded(BEFORE / f"{program}.py"), server)
    assert said in asyncio.run(call(found, name, arguments))
