"""One handshake and one ``tools/call`` through both engines: what a program pays that uses them. It imports no loop."""

from __future__ import annotations

from mcpio import ClientConnection, Implementation, RequestReceived, ServerCapabilities, ServerConnection
from mcpio.types import CallToolRequest, CallToolResult, TextContent, ToolsCapability


def main() -> None:
    """Hold the conversation."""
    server = ServerConnection(Implementation("server", "1"), ServerCapabilities(tools=ToolsCapability()))
    client = ClientConnection(Implementation("client", "1"))
    client.send_initialize(now=0.0)
    _carry(client, server)
    client.send_request(CallToolRequest("echo", {"text": "hello"}), now=0.0)
    result = _carry(client, server)
    if result != CallToolResult((TextContent("hello"),)):
        raise RuntimeError(f"not what was asked for: {result}")


def _carry(client: ClientConnection, server: ServerConnection) -> object:
    """Carry bytes to and fro until both are quiet; return the last result that the client had."""
    result: object = None
    while client.wants_write or server.wants_write:
        for chunk in client.data_to_send():
            server.receive_data(chunk, 0.0)
        for event in server.events():
            if isinstance(event, RequestReceived):
                server.send_result(event.id, CallToolResult((TextContent(event.request.arguments["text"]),)))
        for chunk in server.data_to_send():
            client.receive_data(chunk, 0.0)
        for received in client.events():
            result = getattr(received, "result", result)
    return result
