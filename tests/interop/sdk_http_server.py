"""A server written with the official SDK, over HTTP, for our client: ``python sdk_http_server.py MODE``.

It prints its port. MODE is ``json``, ``sse``, ``resumable``, ``stateless-json``, ``stateless-sse`` or ``legacy``, the
transport of 2024-11-05.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http import EventMessage, EventStore
from sdk_tools import add_tools

server = MCPServer("the SDK", version="2", log_level="ERROR")
add_tools(server)


@server.tool(structured_output=False)
async def wait(ctx: Context[Any, Any]) -> str:
    await anyio.sleep_forever()
    return ""


@server.tool(structured_output=False)
async def grow(ctx: Context[Any, Any]) -> str:
    await ctx.session.send_tool_list_changed()
    return "done"


@server.tool(structured_output=False)
async def poll(ctx: Context[Any, Any]) -> str:
    await ctx.report_progress(1, 2, "before")
    await ctx.close_sse_stream()
    await ctx.report_progress(2, 2, "after")
    return "polled"


class Events(EventStore):
    """What was sent, in memory."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        last = int(last_event_id)
        if not 1 <= last <= len(self.events):
            return None
        stream_id, _ = self.events[last - 1]
        for number, (stream, message) in enumerate(self.events[last:], last + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


def app(mode: str) -> Any:
    match mode:
        case "legacy":
            return server.sse_app()
        case "resumable":
            return server.streamable_http_app(event_store=Events(), retry_interval=50)
        case _:
            return server.streamable_http_app(json_response="json" in mode, stateless_http="stateless" in mode)


if __name__ == "__main__":
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(app(sys.argv[1]), log_level="error", ws="none", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])
