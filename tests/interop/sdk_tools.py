"""Tools on the SDK's high-level class, for servers over any transport."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

__all__ = ["add_tools"]


class Name(BaseModel):
    name: str


def add_tools(server: MCPServer) -> None:
    """Give a server tools that answer, fail, report and ask."""

    @server.tool(structured_output=False)
    def echo(text: str) -> str:
        return text

    @server.tool(structured_output=False)
    def fail() -> str:
        raise ValueError("as it should")

    @server.tool(structured_output=False)
    async def count(to: int, ctx: Context[Any, Any]) -> str:
        for number in range(1, to + 1):
            await ctx.report_progress(number, to, f"step {number}")
        return "done"

    @server.tool(structured_output=False)
    async def ask_user(ctx: Context[Any, Any]) -> str:
        result = await ctx.elicit("Who are you?", Name)
        return f"{result.action} {result.data.name if result.action == 'accept' else None}"

    @server.tool(structured_output=False)
    async def ask_roots(ctx: Context[Any, Any]) -> str:
        # Over HTTP it belongs to no request, so it comes to whoever listens.
        result = await ctx.session.list_roots()
        return " ".join(f"{root.uri}={root.name}" for root in result.roots)
