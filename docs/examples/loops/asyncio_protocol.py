"""A server and a client on asyncio, as a protocol class: callbacks, without tasks."""

from __future__ import annotations

import asyncio
from typing import cast

from echo_app import App, Caller, EchoServer

LINGER = 5.0
"""Seconds that a peer has to read the last output."""


class Driver(asyncio.Protocol):
    """Drives a connection. Call ``touch`` after using it outside ``on_event``."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._can_write = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        self.app.conn.receive_data(data, self._loop.time())
        self.touch()

    def eof_received(self) -> bool:
        self.app.conn.receive_data(None, self._loop.time())
        self.touch()
        return True  # Keep writing: answers may be due. ``touch`` closes the transport.

    def connection_lost(self, exc: Exception | None) -> None:
        self._can_write = False
        self.app.conn.connection_lost(exc, self._loop.time())
        self.touch()
        self._set_timer(None)
        self.ended.set_result(None)

    def pause_writing(self) -> None:
        self._can_write = False

    def resume_writing(self) -> None:
        self._can_write = True
        self.touch()

    def touch(self) -> None:
        """Drain the events, write the chunks, re-arm the deadline."""
        conn, transport = self.app.conn, self._transport
        self._drain()
        while self._can_write and conn.wants_write:
            transport.write(b"".join(filter(None, conn.data_to_send())))
            self._drain()
        if conn.closed:
            transport.close()
            self._set_timer(self._loop.call_later(LINGER, transport.abort))
            return
        transport.resume_reading() if conn.wants_read else transport.pause_reading()
        when = conn.next_deadline()
        self._set_timer(None if when is None else self._loop.call_at(when, self._expire))

    def _drain(self) -> None:
        for event in self.app.conn.events():
            self.app.on_event(event)

    def _expire(self) -> None:
        self.app.conn.handle_timeout(self._loop.time())
        self.touch()

    def _set_timer(self, timer: asyncio.TimerHandle | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer


async def main() -> None:
    """Run a client and a server."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Driver(EchoServer()), "127.0.0.1", 0)
    async with server:
        address = server.sockets[0].getsockname()
        _, client = await loop.create_connection(lambda: Driver(Caller()), *address)
        await client.ended


if __name__ == "__main__":
    asyncio.run(main())
