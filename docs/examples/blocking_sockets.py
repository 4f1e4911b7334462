"""A server and a client on blocking sockets, each in a thread. ``run`` drives either."""

from __future__ import annotations

import socket
from collections.abc import Callable
from threading import Thread
from time import monotonic

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


def run(
    conn: ClientConnection | ServerConnection,
    sock: socket.socket,
    on_event: Callable[[Event], None],
) -> None:
    """Drive a connection to its end, in the calling thread."""
    while True:
        for event in conn.events():
            on_event(event)
        if conn.closed:
            return
        try:
            if conn.wants_write:
                sock.settimeout(None)
                for chunk in conn.data_to_send():
                    sock.shutdown(socket.SHUT_WR) if chunk is None else sock.sendall(chunk)
            else:
                deadline = conn.next_deadline()
                sock.settimeout(None if deadline is None else max(0, deadline - monotonic()))
                conn.receive_data(sock.recv(65536) or None, monotonic())
        except (TimeoutError, BlockingIOError):
            pass  # The deadline has come. A timeout of 0 raises BlockingIOError.
        except OSError as exc:
            conn.connection_lost(exc, monotonic())
        conn.handle_timeout(monotonic())


def serve(sock: socket.socket) -> None:
    """Serve one client."""
    conn = ServerConnection(
        Implementation("echo", "1.0"), ServerCapabilities(tools=ToolsCapability())
    )
    echo = Tool("echo", {"type": "object", "properties": {"text": {"type": "string"}}})

    def on_event(event: Event) -> None:
        match event:
            case RequestReceived(id, ListToolsRequest()):
                conn.send_result(id, ListToolsResult((echo,)))
            case RequestReceived(id, CallToolRequest("echo", {"text": str(text)})):
                conn.send_result(id, CallToolResult((TextContent(text),)))
            case RequestReceived(id):
                conn.send_error(
                    id, RequestError(-32602, "The only tool is echo, and it wants a text")
                )

    with sock:
        run(conn, sock, on_event)


def ask(sock: socket.socket) -> None:
    """Call the tool, print the result, and close the connection."""
    conn = ClientConnection(Implementation("asker", "1.0"))

    def on_event(event: Event) -> None:
        match event:
            case Negotiated():
                print(f"{event.info.name} speaks {event.revision}")
                conn.send_request(
                    CallToolRequest("echo", {"text": "hello"}), now=monotonic(), cookie="echo"
                )
            case ResponseReceived(cookie="echo"):
                print(f"it says: {event.result.text}")
                conn.close(monotonic())
            case RequestFailed():
                print(f"failed: {event.error}")
                conn.close(monotonic())

    conn.negotiate(now=monotonic())
    with sock:
        run(conn, sock, on_event)


def main() -> None:
    """Run a client and a server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = Thread(target=lambda: ask(socket.create_connection(listener.getsockname())))
        client.start()
        serve(listener.accept()[0])
        client.join()


if __name__ == "__main__":
    main()
