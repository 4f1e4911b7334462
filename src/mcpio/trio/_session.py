"""One session over one transport: a reader, a writer, and the rule that only the writer writes.

The engine is touched only in Trio's thread and only between two checkpoints. A cancelled caller therefore becomes a
message of the protocol, never a torn frame, and closing is a call, not a task.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias

import trio

from mcpio.app.session import Session
from mcpio.engine.connection import Connection
from mcpio.trio._runtime import TrioRuntime
from mcpio.trio._timekeeper import Signal, Timekeeper

__all__ = ["SessionActor", "Transport", "Wire", "report", "wire_for"]

BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)
"""How a transport says that it no longer works."""

LAST_WRITE = 1.0
"""Seconds for the last output to get out, and for the transport to close, before it is closed forcefully."""

Transport: TypeAlias = "trio.abc.Stream | trio.abc.Channel[str] | trio.abc.Channel[bytes]"


class Wire(Protocol):
    """How a connection's bytes or messages travel over one kind of transport."""

    async def receive(self, connection: Connection) -> None:
        """Wait for input and feed it."""

    async def send(self, connection: Connection) -> bool:
        """Pull output and write it all; tell whether there was any."""

    async def aclose(self) -> None:
        """Close the transport."""


class StreamWire:
    """Lines on a ``trio.abc.Stream``."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream

    async def receive(self, connection: Connection) -> None:
        """Feed what arrives, or the end of it."""
        data = await self._stream.receive_some()
        connection.receive_data(bytes(data) or None, trio.current_time())

    async def send(self, connection: Connection) -> bool:
        """Write everything that the engine has, in as few writes as it has chunks of output."""
        chunks = connection.data_to_send()
        if not chunks:
            return False
        data = b"".join([chunk for chunk in chunks if chunk is not None])
        if data:
            await self._stream.send_all(data)
        if chunks[-1] is None and isinstance(self._stream, trio.abc.HalfCloseableStream):
            await self._stream.send_eof()
        return True

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()


class ChannelWire:
    """Whole JSON texts on a ``trio.abc.Channel``, as text or as bytes: what the peer sends decides, text at first."""

    def __init__(self, channel: trio.abc.Channel[str] | trio.abc.Channel[bytes]) -> None:
        self._channel = channel
        self._binary = False

    async def receive(self, connection: Connection) -> None:
        """Feed the next message, or the end."""
        text: str | bytes | None
        try:
            text = await self._channel.receive()
            self._binary = isinstance(text, bytes)
        except trio.EndOfChannel:
            text = None
        connection.receive_message(text, trio.current_time())

    async def send(self, connection: Connection) -> bool:
        """Send every message that the engine has."""
        sent = False
        while (message := connection.next_message()) is not None:
            sent = True
            text = message.text if self._binary else message.text.decode()
            await self._channel.send(text)  # type: ignore[arg-type]  # whichever of the two the peer uses
        return sent

    async def aclose(self) -> None:
        """Close the channel."""
        await self._channel.aclose()


def wire_for(transport: Transport) -> Wire:
    """Return how messages travel over a transport. Raises ``TypeError`` for what is neither a stream nor a channel."""
    if isinstance(transport, trio.abc.Stream):
        return StreamWire(transport)
    if isinstance(transport, trio.abc.Channel):
        return ChannelWire(transport)
    raise TypeError(f"a transport is a trio.abc.Stream or a trio.abc.Channel, not {type(transport).__name__}")


class SessionActor:
    """Runs one session until its connection ends, and is its ``Driver``.

    Nothing that the peer does makes ``run`` raise. ``runtime`` runs the handlers.
    """

    def __init__(
        self,
        connection: Connection,
        transport: Transport,
        timekeeper: Timekeeper,
        runtime: TrioRuntime,
        *,
        after_close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """``after_close`` is awaited, shielded, when the transport is closed, before ``wait_closed`` returns."""
        self.connection = connection
        self._after_close = after_close
        self.runtime = runtime
        self._wire = wire_for(transport)
        self._timekeeper = timekeeper
        self._token = trio.lowlevel.current_trio_token()
        self._may_read = Signal()
        self._may_write = Signal()
        self._ended = trio.Event()
        self._written = trio.Event()
        self._over = trio.Event()
        self._process: Callable[[], None] = self._discard_events

    def attach(self, session: Session) -> None:
        """Say who acts on events."""
        self._process = session.process

    # The driver of the session: called between checkpoints, in Trio's thread

    def now(self) -> float:
        """Return Trio's time."""
        return trio.current_time()

    def wake(self) -> None:
        """Look at the connection again."""
        connection = self.connection
        if connection.wants_write:
            self._may_write.set()
        if connection.wants_read:
            self._may_read.set()
        self._timekeeper.arm(self, connection.next_deadline())
        if connection.closed:
            self._ended.set()

    def report(self, message: str, error: BaseException | None) -> None:
        """Write to the log, under the name ``mcpio``."""
        report(message, error)

    def handle_timeout(self) -> None:
        """Let deadlines expire. The timekeeper calls this."""
        self.connection.handle_timeout(trio.current_time())
        self.touch()

    def touch(self) -> None:
        """Act on what the connection has to say. Due after everything that may have given it an event."""
        self._process()
        self.wake()

    # Called from anywhere

    def close(self, grace: float) -> None:
        """Close in order. It takes effect at the loop's next turn, so that a signal handler may call it too."""
        try:
            self._token.run_sync_soon(self._close, grace)
        except trio.RunFinishedError:
            return

    async def wait_closed(self) -> None:
        """Wait until everything is over."""
        await self._over.wait()

    # The tasks

    async def run(self) -> None:
        """Carry the session until its connection ends; then close the transport."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read)
                nursery.start_soon(self._write)
                self.touch()
                await self._ended.wait()
                with trio.move_on_after(LAST_WRITE):
                    await self._written.wait()
                nursery.cancel_scope.cancel()
        finally:
            self.connection.abort()
            self.touch()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + LAST_WRITE):
                await self._close_wire()
            if self._after_close is not None:
                with trio.CancelScope(shield=True):
                    await self._after_close()
            self._over.set()

    async def _read(self) -> None:
        connection = self.connection
        while True:
            while not connection.wants_read:
                await self._may_read.wait()
            try:
                await self._wire.receive(connection)
            except BROKEN as error:
                connection.connection_lost(error, trio.current_time())
            self.touch()

    async def _write(self) -> None:
        connection = self.connection
        while not connection.closed:
            while not connection.wants_write and not connection.closed:
                await self._may_write.wait()
            try:
                await self._wire.send(connection)
            except BROKEN as error:
                connection.connection_lost(error, trio.current_time())
            self.touch()
        self._written.set()

    async def _close_wire(self) -> None:
        try:
            await self._wire.aclose()
        except BROKEN as error:
            self.report("closing the transport failed", error)

    def _close(self, grace: float) -> None:
        self.connection.close(trio.current_time(), grace)
        self.touch()

    def _discard_events(self) -> None:
        for _ in self.connection.events():
            pass


def report(message: str, error: BaseException | None) -> None:
    """Write to the log, under the name ``mcpio``: a warning, or an error with its traceback."""
    if error is None:
        logging.getLogger("mcpio").warning("%s", message)
    else:
        logging.getLogger("mcpio").error("%s", message, exc_info=error)
