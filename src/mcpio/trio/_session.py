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

    @property
    def unsent(self) -> bool:
        """Whether output was pulled from a connection and not written yet."""

    async def receive(self, connection: Connection) -> None:
        """Wait for input and feed it."""

    def send_now(self, connection: Connection) -> None:
        """Pull output and write what finds room, without waiting. The rest is for ``send``."""

    async def send(self, connection: Connection) -> None:
        """Write what is unsent, or else pull output and write it all."""

    async def aclose(self) -> None:
        """Close the transport."""


class StreamWire:
    """Lines on a ``trio.abc.Stream``. A stream that has ``send_nowait`` saves a turn of the loop for most messages."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._send_nowait: Callable[[bytes], int] | None = getattr(stream, "send_nowait", None)
        self._rest = b""
        self._ends = False
        self._sending = False

    @property
    def unsent(self) -> bool:
        """Whether output was pulled from a connection and not written yet."""
        return bool(self._rest) or self._ends

    async def receive(self, connection: Connection) -> None:
        """Feed what arrives, or the end of it."""
        data = await self._stream.receive_some()
        connection.receive_data(bytes(data) or None, trio.current_time())

    def send_now(self, connection: Connection) -> None:
        """Write what finds room. No checkpoint is passed, so that no cancellation can tear a message."""
        if self._send_nowait is not None and not self._sending and not self.unsent:
            self._pull(connection)
            self._try_to_send()

    async def send(self, connection: Connection) -> None:
        """Write what is unsent, or else everything that the engine has, in one write."""
        self._sending = True
        try:
            if not self.unsent:
                self._pull(connection)
                self._try_to_send()
            if self._rest:
                await self._stream.send_all(self._rest)
                self._rest = b""
            if self._ends:
                self._ends = False
                if isinstance(self._stream, trio.abc.HalfCloseableStream):
                    await self._stream.send_eof()
        finally:
            self._sending = False

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def _pull(self, connection: Connection) -> None:
        chunks = connection.data_to_send()
        self._ends = bool(chunks) and chunks[-1] is None
        self._rest = b"".join([chunk for chunk in chunks if chunk is not None])

    def _try_to_send(self) -> None:
        if self._rest and self._send_nowait is not None:
            try:
                self._rest = self._rest[self._send_nowait(self._rest) :]
            except BROKEN:
                return  # The writer will meet the same, and has somewhere to say it.


class ChannelWire:
    """Whole JSON texts on a ``trio.abc.Channel``, as text or as bytes: what the peer sends decides, text at first."""

    unsent = False

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

    def send_now(self, connection: Connection) -> None:
        """Leave everything to ``send``: a channel cannot tell whether it has room."""

    async def send(self, connection: Connection) -> None:
        """Send every message that the engine has."""
        while (message := connection.next_message()) is not None:
            text = message.text if self._binary else message.text.decode()
            await self._channel.send(text)  # type: ignore[arg-type]  # whichever of the two the peer uses

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
        if connection.wants_write or self._wire.unsent:
            self._may_write.set()
        if connection.wants_read:
            self._may_read.set()
        self._timekeeper.arm(self, connection.next_deadline())
        if connection.closed:
            self._ended.set()
            self._may_write.set()

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
        if self.connection.wants_write:
            self._wire.send_now(self.connection)
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
        connection, wire = self.connection, self._wire
        while not connection.closed or wire.unsent:
            while not connection.wants_write and not wire.unsent and not connection.closed:
                await self._may_write.wait()
            try:
                await wire.send(connection)
            except BROKEN as error:
                connection.connection_lost(error, trio.current_time())
                break
            self.touch()
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
