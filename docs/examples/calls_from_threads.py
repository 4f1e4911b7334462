"""Calls from many threads: one drives the connection, the others wait for futures."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from select import select
from threading import Thread
from time import monotonic
from typing import Any

from mcpio import (
    CallToolRequest,
    CallToolResult,
    ClientConnection,
    Event,
    Implementation,
    McpError,
    Negotiated,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    ServerCapabilities,
    ServerConnection,
    TextContent,
    ToolsCapability,
)


class Driver:
    """Drives a connection in a dedicated thread, where other threads can call functions."""

    def __init__(self, conn: ClientConnection | ServerConnection, sock: socket.socket) -> None:
        self.conn = conn
        self._sock = sock
        self._unsent = b""
        self._todo: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def do(self, act: Callable[[], object]) -> None:
        """Call a function in the thread, or in this one if the connection has ended."""
        self._todo.put(act)
        try:
            self._wake_sender.send(b"!")
        except OSError:
            self._do_all()  # unless the thread has called it already

    def ask(self, send: Callable[[Future[Any]], object]) -> Any:
        """Send a request with a future as its cookie; return the result or raise the error."""
        future: Future[Any] = Future()

        def act() -> None:
            try:
                send(future)
            except McpError as error:
                future.set_exception(error)

        self.do(act)
        return future.result()

    def close(self) -> None:
        """Close the connection, and wait until the thread has ended."""
        self.do(lambda: self.conn.close(monotonic()))
        self._thread.join()

    def on_event(self, event: Event) -> None:
        """Settle the futures of requests that were sent; answer requests of the peer."""
        match event:
            case Negotiated(cookie=Future() as future):
                future.set_result(event.info)
            case ResponseReceived(cookie=Future() as future):
                future.set_result(event.result)
            case RequestFailed(cookie=Future() as future):
                future.set_exception(event.error)
            case RequestReceived(id, CallToolRequest(_, {"n": int(n)})):
                self.conn.send_result(id, CallToolResult((TextContent(f"{n * n}"),)))

    def _run(self) -> None:
        conn = self.conn
        with self._sock, self._wake_receiver:
            self._sock.setblocking(False)
            while True:
                for event in conn.events():
                    self.on_event(event)
                if conn.closed:
                    break
                try:
                    self._turn()
                except OSError as exc:
                    conn.connection_lost(exc, monotonic())
                conn.handle_timeout(monotonic())
            self._sock.settimeout(1)
            with suppress(OSError):
                self._sock.sendall(self._unsent)
        self._wake_sender.close()  # From here on ``do`` calls functions itself.
        self._do_all()

    def _turn(self) -> None:
        """Wait for input, room to write, a function or the deadline, whichever comes first."""
        conn, sock = self.conn, self._sock
        deadline = conn.next_deadline()
        readable, writable, _ = select(
            [self._wake_receiver, sock] if conn.wants_read else [self._wake_receiver],
            [sock] if self._unsent or conn.wants_write else [],
            [],
            None if deadline is None else max(0, deadline - monotonic()),
        )
        if self._wake_receiver in readable:
            self._wake_receiver.recv(4096)
            self._do_all()
        if sock in readable:
            conn.receive_data(sock.recv(65536) or None, monotonic())
        if sock in writable:
            if not self._unsent:
                self._unsent = b"".join(
                    chunk for chunk in conn.data_to_send() if chunk is not None
                )
            self._unsent = self._unsent[sock.send(self._unsent) :]

    def _do_all(self) -> None:
        with suppress(Empty):
            while True:
                self._todo.get_nowait()()


def main() -> None:
    """Call one server from eight threads."""
    here, there = socket.socketpair()
    server = Driver(
        ServerConnection(
            Implementation("squares", "1.0"), ServerCapabilities(tools=ToolsCapability())
        ),
        there,
    )
    conn = ClientConnection(Implementation("asker", "1.0"))
    client = Driver(conn, here)
    client.ask(lambda future: conn.negotiate(now=monotonic(), cookie=future))

    def square(n: int) -> str:
        request = CallToolRequest("square", {"n": n})
        result = client.ask(
            lambda future: conn.send_request(request, now=monotonic(), cookie=future)
        )
        return str(result.text)

    with ThreadPoolExecutor(8) as threads:
        print(", ".join(threads.map(square, range(12))))
    client.close()
    server.close()


if __name__ == "__main__":
    main()
