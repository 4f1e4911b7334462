"""A server over HTTP/1.1 on asyncio and h11: sessions, streams, and clients of both eras."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import asynccontextmanager, closing, suppress
from itertools import count
from typing import TYPE_CHECKING, Literal

import h11

from mcpio import (
    CallToolRequest,
    CallToolResult,
    CancelReceived,
    Event,
    Implementation,
    ListToolsRequest,
    ListToolsResult,
    RequestError,
    RequestReceived,
    ServerCapabilities,
    ServerConnection,
    TextContent,
    Tool,
    ToolsCapability,
)
from mcpio.asyncio import open_http
from mcpio.http import (
    Body,
    Calls,
    End,
    HostPolicy,
    HttpOptions,
    HttpServer,
    HttpSession,
    RequestHead,
    RequestItem,
    Reset,
    ResponseHead,
    SessionClosed,
    SessionOpened,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable

    HttpEvent = Event | SessionOpened | SessionClosed

COUNT = Tool("count", {"type": "object", "properties": {"to": {"type": "integer"}}})
READ_AHEAD = 65536


class Adapter:
    """Connects a machine to sockets. Call ``touch`` after using a session elsewhere."""

    def __init__(
        self,
        machine: HttpServer,
        on_event: Callable[[HttpSession | Calls, HttpEvent], None],
    ) -> None:
        self.machine = machine
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._names = count()
        self._has_output: dict[Hashable, asyncio.Event] = {}
        self._timer: asyncio.TimerHandle | None = None

    def touch(self, session: HttpSession | Calls | None = None) -> None:
        """Drain the events, wake the writers, re-arm the deadline."""
        machine = self.machine
        if session is not None:
            machine.touch(session, self._loop.time())
        while (item := machine.next_event()) is not None:
            self._on_event(*item)
        while (exchange := machine.next_ready()) is not None:
            if exchange in self._has_output:
                self._has_output[exchange].set()
        if self._timer is not None:
            self._timer.cancel()
        due = machine.next_deadline()
        self._timer = None if due is None else self._loop.call_at(due, self._expire)

    def _expire(self) -> None:
        self.machine.handle_timeout(self._loop.time())
        self.touch()

    def _feed(self, item: RequestItem) -> None:
        self.machine.receive(item, self._loop.time())
        self.touch()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection. ``asyncio.start_server`` takes this method as it is."""
        conn = h11.Connection(h11.SERVER)
        with closing(writer), suppress(OSError, h11.RemoteProtocolError):
            while (request := await self._next(conn, reader)) is not None:
                await self._exchange(conn, request, reader, writer)
                conn.start_next_cycle()  # raises where this connection cannot be used again

    async def _next(
        self, conn: h11.Connection, reader: asyncio.StreamReader
    ) -> h11.Request | None:
        while (event := conn.next_event()) is h11.NEED_DATA:
            conn.receive_data(await reader.read(65536))
        return event if isinstance(event, h11.Request) else None

    async def _exchange(
        self,
        conn: h11.Connection,
        request: h11.Request,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        exchange = next(self._names)
        has_output = self._has_output[exchange] = asyncio.Event()
        method, target = request.method.decode(), request.target.decode("latin-1")
        self._feed(RequestHead(exchange, method, target, list(request.headers)))
        gone = asyncio.create_task(self._receive(exchange, conn, reader, writer))
        answered = asyncio.create_task(self._respond(exchange, conn, writer, has_output))
        try:
            await asyncio.wait({gone, answered}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            answered.cancel()
            await asyncio.gather(gone, answered, return_exceptions=True)
            del self._has_output[exchange]
            self._feed(Reset(exchange))  # ignored if the response is complete
        if answered.cancelled():
            raise ConnectionError("the client disconnected")
        answered.result()

    async def _receive(
        self,
        exchange: Hashable,
        conn: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Pass on the body, then watch for the client to disconnect."""
        while not isinstance(event := conn.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                self._feed(Body(exchange, bytes(event.data)))
            elif event is h11.NEED_DATA:
                if conn.they_are_waiting_for_100_continue:
                    go_on = h11.InformationalResponse(status_code=100, headers=[])
                    writer.write(conn.send(go_on) or b"")
                conn.receive_data(await reader.read(65536))
        self._feed(End(exchange))
        # The client may send its next requests before it has this answer, but not without end.
        while (data := await reader.read(65536)) and len(conn.trailing_data[0]) < READ_AHEAD:
            conn.receive_data(data)

    async def _respond(
        self,
        exchange: Hashable,
        conn: h11.Connection,
        writer: asyncio.StreamWriter,
        has_output: asyncio.Event,
    ) -> None:
        """Write the response as it comes. Nothing more is pulled until this much is written."""
        while conn.our_state is not h11.DONE:
            await has_output.wait()
            has_output.clear()
            for item in self.machine.responses_to_send(exchange):
                event: h11.Event
                match item:
                    case ResponseHead():
                        headers = list(item.headers)
                        event = h11.Response(status_code=item.status, headers=headers)
                    case Body():
                        event = h11.Data(data=item.data)
                    case End():
                        event = h11.EndOfMessage()
                    case Reset():
                        raise ConnectionError("the response was cut off")
                writer.write(conn.send(event) or b"")
            self.touch()
            await writer.drain()


class Counter:
    """The application: a tool that counts, with a report for each number."""

    def __init__(self, port: int) -> None:
        options = HttpOptions(policy=HostPolicy.for_address("127.0.0.1", port))
        machine = HttpServer(self.connect, entropy=os.urandom, options=options)
        self.adapter = Adapter(machine, self.on_event)
        self.running: dict[tuple[int, object], asyncio.Task[None]] = {}

    def connect(self, principal: Hashable) -> ServerConnection:
        """Return the engine of one session."""
        offer = ServerCapabilities(tools=ToolsCapability())
        return ServerConnection(Implementation("counter", "1.0"), offer)

    def on_event(self, session: HttpSession | Calls, event: HttpEvent) -> None:
        conn = session.connection
        match event:
            case RequestReceived(id, ListToolsRequest()):
                conn.send_result(id, ListToolsResult((COUNT,)))
            case RequestReceived(id, CallToolRequest("count", {"to": int(to)})):
                task = asyncio.create_task(self.count(session, event, to))
                self.running[session.key, id] = task
                task.add_done_callback(lambda _: self.running.pop((session.key, id)))
            case RequestReceived(id):
                conn.send_error(id, RequestError(-32602, "The only tool is count"))
            case CancelReceived(id):
                if (session.key, id) in self.running:
                    self.running[session.key, id].cancel()
            case SessionClosed():
                for (key, _), task in self.running.items():
                    if key == session.key:
                        task.cancel()

    async def count(
        self, session: HttpSession | Calls, event: RequestReceived, to: int
    ) -> None:
        for n in range(to):
            session.connection.send_progress(event.id, n + 1, to)
            self.adapter.touch(session)
            await asyncio.sleep(0.01)
        session.connection.send_result(event.id, CallToolResult((TextContent(f"{to}!"),)))
        self.adapter.touch(session)


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Counter, str]]:
    """Serve on a free port; yield the application and its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        app = Counter(port)
        async with await asyncio.start_server(app.adapter.serve, sock=listener):
            yield app, f"http://127.0.0.1:{port}/mcp"
            app.adapter.machine.close(asyncio.get_running_loop().time(), grace=1.0)
            app.adapter.touch()


async def call(url: str, era: Literal["handshake", "stateless"]) -> None:
    """Call the tool and print what comes."""
    reports: list[float] = []
    async with open_http(url, era=era) as client:
        result = await client.call_tool(
            "count", {"to": 3}, on_progress=lambda done, *_: reports.append(done)
        )
        print(client.connection.revision, reports, result.text)


async def main() -> None:
    """Let a client of each era call the tool."""
    async with serving() as (_, url):
        await call(url, "handshake")
        await call(url, "stateless")


if __name__ == "__main__":
    asyncio.run(main())
