"""The demo's client: the engine and a stream, in one task, one request after the other.

``mcpio.trio`` would do all of this, with concurrent requests. Here the engine gets one message at a time, so that the
phase after each can be shown.
"""

from __future__ import annotations

import math
from typing import Any

import trio

import mcpio
from mcpio.cli.demo.view import View
from mcpio.engine.client import ClientConnection
from mcpio.engine.options import Options
from mcpio.events import Event, Negotiated, OutgoingId, ProgressReceived, RequestFailed, ResponseReceived
from mcpio.framing.lines import LineFramer
from mcpio.types.features import Implementation


class Speaker:
    """A client of the server at the other end of a stream."""

    def __init__(self, stream: trio.abc.HalfCloseableStream, view: View) -> None:
        self._stream = stream
        self._view = view
        self._framer = LineFramer()
        self._info = Implementation("mcpio-demo-client", mcpio.__version__)
        self._connection = ClientConnection(self._info)

    async def initialize(self) -> None:
        """Perform the handshake, up to ``notifications/initialized``."""
        await self._outcome(self._connection.send_initialize(now=trio.current_time()))
        await self._write()

    async def discover(self) -> None:
        """Be a client of 2026-07-28 from now on, which opens with ``server/discover``. No request may be in flight."""
        self._connection = ClientConnection(self._info, options=Options(era="stateless"))
        self._connection.negotiate(trio.current_time())
        await self._outcome(None)

    async def ask(self, request: Any, *, progress: bool = False) -> Any:
        """Send a request and return its result. Raises the error of a request that fails."""
        return await self._outcome(self._connection.send_request(request, now=trio.current_time(), progress=progress))

    async def ask_and_cancel(self, request: Any, *, after: int) -> None:
        """Send a request, and cancel it after ``after`` reports of progress."""
        id = self._connection.send_request(request, now=trio.current_time(), progress=True)
        reports = 0
        while reports < after:
            reports += sum(isinstance(event, ProgressReceived) for event in await self._turn())
        self._connection.cancel_request(id, "seen enough")
        await self._write()

    async def close(self) -> None:
        """Close our end, and wait for the server to close its end."""
        self._connection.close(trio.current_time())
        await self._write()
        while data := await self._stream.receive_some():
            self._feed(data)
        self._view.received("(end of output)", self._phase, is_message=False)

    async def _outcome(self, id: OutgoingId | None) -> Any:
        """Return the outcome of a request, or of the opening, or raise its error."""
        while True:
            for event in await self._turn():
                match event:
                    case ResponseReceived() if event.id == id:
                        return event.result
                    case Negotiated():
                        return event
                    case RequestFailed() if event.id == id or id is None:
                        raise event.error

    async def _turn(self) -> list[Event]:
        """Write the output, wait for input or the deadline, and return the events."""
        await self._write()
        deadline = self._connection.next_deadline()
        with trio.move_on_at(math.inf if deadline is None else deadline):
            return self._feed(await self._stream.receive_some())
        self._connection.handle_timeout(trio.current_time())
        return list(self._connection.events())

    def _feed(self, data: bytes | bytearray) -> list[Event]:
        """Feed the engine message by message, and show each with the phase after it."""
        now = trio.current_time()
        if not data:
            self._connection.receive_data(None, now)
            return list(self._connection.events())
        events: list[Event] = []
        self._framer.receive(data)
        while isinstance(line := self._framer.next_line(), bytes):
            self._connection.receive_data(line + b"\n", now)
            events += self._connection.events()
            self._view.received(line.decode(), self._phase)
        return events

    async def _write(self) -> None:
        while chunks := self._connection.data_to_send():
            for chunk in chunks:
                if chunk is None:
                    self._view.sent("(end of input)", self._phase, is_message=False)
                    await self._stream.send_eof()
                else:
                    self._view.sent(chunk.decode().rstrip("\n"), self._phase)
                    await self._stream.send_all(chunk)

    @property
    def _phase(self) -> str:
        return self._connection.phase.value
