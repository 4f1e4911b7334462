"""The official SDK's side of the table for those who come from it: what it names exists."""

from __future__ import annotations

from typing import Any

from comparisons import faults, rows
from mcp import Client, ClientSessionGroup, stdio_client
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult
from tree import ROOT

THEIRS: dict[str, Any] = {
    "MCPServer": MCPServer,
    "server": MCPServer,
    "ctx": Context,
    "Client": Client,
    "client": Client,
    "ClientSessionGroup": ClientSessionGroup,
    "stdio_client": stdio_client,
    "Image": Image,
    "ToolError": ToolError,
    "result": CallToolResult,
}


def test_sdk_names_in_the_table_exist() -> None:
    found = rows(ROOT / "docs" / "coming-from-the-sdk.md")
    assert {row.theirs: wrong for row in found if (wrong := faults(row.theirs, THEIRS))} == {}
