"""The application of the programs here: an echo server and its client, on the bare engine."""

from __future__ import annotations

from time import monotonic
from typing import Protocol

from mcpio import (
    CallToolRequest,
    CallToolResult,
    ClientConnection,
    Event,
    Implementation,
    ListToolsRequest,
    ListToolsResult,
    Negotiated,
    RequestError,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    ServerCapabilities,
    ServerConnection,
    TextContent,
    Tool,
    ToolsCapability,
)
from mcpio.engine import StatelessEngine

ECHO = Tool("echo", {"type": "object", "properties": {"text": {"type": "string"}}})


def new_server() -> ServerConnection:
    """Return the engine of the server, for one connection."""
    offer = ServerCapabilities(tools=ToolsCapability())
    return ServerConnection(Implementation("echo", "1.0"), offer)


def answer(conn: ServerConnection | StatelessEngine, event: Event) -> None:
    """Answer a request."""
    match event:
        case RequestReceived(id, ListToolsRequest()):
            conn.send_result(id, ListToolsResult((ECHO,)))
        case RequestReceived(id, CallToolRequest("echo", {"text": str(text)})):
            conn.send_result(id, CallToolResult((TextContent(text),)))
        case RequestReceived(id):
            conn.send_error(
                id, RequestError(-32602, "The only tool is echo, and it wants a text")
            )


class App(Protocol):
    """One side of a connection, for any event loop: the engine and a handler of its events."""

    @property
    def conn(self) -> ClientConnection | ServerConnection:
        """The connection."""
        ...

    def on_event(self, event: Event) -> None:
        """Handle an event. It may use ``conn``: the loop calls ``touch`` afterwards."""


class EchoServer:
    """A server that answers calls of ``echo``. Each connection has its own."""

    def __init__(self) -> None:
        self.conn = new_server()

    def on_event(self, event: Event) -> None:
        answer(self.conn, event)


class Caller:
    """A client that makes one call, prints the result, and closes the connection."""

    def __init__(self) -> None:
        self.conn = ClientConnection(Implementation("caller", "1.0"))
        self.conn.negotiate(now=monotonic())

    def on_event(self, event: Event) -> None:
        match event:
            case Negotiated():
                print(f"{event.info.name} speaks {event.revision}")
                request = CallToolRequest("echo", {"text": "hello"})
                self.conn.send_request(request, now=monotonic(), cookie="echo")
            case ResponseReceived(cookie="echo"):
                print(f"it says: {event.result.text}")
                self.conn.close(monotonic())
            case RequestFailed():
                print(f"failed: {event.error}")
                self.conn.close(monotonic())
