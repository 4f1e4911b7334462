"""A server and a client under asyncio. ``run`` drives either."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import closing

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


async def run(
    conn: ClientConnection | ServerConnection,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    on_event: Callable[[Event], None],
    wake: asyncio.Event,
) -> None:
    """Drive a connection to its end. Set ``wake`` after using it outside ``on_event``."""
    clock = asyncio.get_running_loop().time
    can_read, can_write = asyncio.Event(), asyncio.Event()

    async def pump_in() -> None:
        while await can_read.wait():
            data = await reader.read(65536)
            can_read.clear()
            conn.receive_data(data or None, clock())
            wake.set()

    async def pump_out() -> None:
        while await can_write.wait():
            can_write.clear()
            for chunk in conn.data_to_send():
                writer.close() if chunk is None else writer.write(chunk)
            wake.set()
            await writer.drain()

    async def until_lost(pump: Coroutine[None, None, None]) -> None:
        try:
            await pump
        except OSError as exc:
            conn.connection_lost(exc, clock())
            wake.set()

    async with asyncio.TaskGroup() as tasks:
        pumps = [tasks.create_task(until_lost(pump)) for pump in (pump_in(), pump_out())]
        wake.set()
        while not conn.closed:
            try:
                async with asyncio.timeout_at(conn.next_deadline()):
                    await wake.wait()
                wake.clear()
            except TimeoutError:
                conn.handle_timeout(clock())
            for event in conn.events():
                on_event(event)
            if conn.wants_read:
                can_read.set()
            if conn.wants_write:
                can_write.set()
        for pump in pumps:
            pump.cancel()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one client. ``asyncio.start_server`` takes this function as it is."""
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

    with closing(writer):
        await run(conn, reader, writer, on_event, asyncio.Event())


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Call the tool, print the result, and close the connection."""
    conn = ClientConnection(Implementation("asker", "1.0"))
    clock = asyncio.get_running_loop().time

    def on_event(event: Event) -> None:
        match event:
            case Negotiated():
                print(f"{event.info.name} speaks {event.revision}")
                conn.send_request(
                    CallToolRequest("echo", {"text": "hello"}), now=clock(), cookie="echo"
                )
            case ResponseReceived(cookie="echo"):
                print(f"it says: {event.result.text}")
                conn.close(clock())
            case RequestFailed():
                print(f"failed: {event.error}")
                conn.close(clock())

    conn.negotiate(now=clock())
    with closing(writer):
        await run(conn, reader, writer, on_event, asyncio.Event())


async def main() -> None:
    """Run a client and a server."""
    here, there = socket.socketpair()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(serve(*await asyncio.open_connection(sock=there)))
        tasks.create_task(ask(*await asyncio.open_connection(sock=here)))


if __name__ == "__main__":
    asyncio.run(main())
