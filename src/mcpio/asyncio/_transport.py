"""The transport adapter over asyncio's reader and writer."""

from __future__ import annotations

import asyncio
from typing import Final

from mcpio.engine.connection import Connection
from mcpio.engine.table import Phase

__all__ = ["ReaderWriterAdapter"]

RECEIVE_SIZE: Final = 65536
"""Bytes asked for by one read."""

WRITE_AHEAD: Final = 8192
"""Bytes in the transport's buffer beyond which no more output is pulled from the connection."""


class ReaderWriterAdapter:
    """Carries lines over a reader and a writer, which it owns from then on.

    Output goes to the writer's transport, which writes what it can and buffers the rest. No more is pulled from the
    connection while the transport buffers more than ``WRITE_AHEAD``. A cancellation tears no message: the transport has
    all of it, or none.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, end_is_loss: bool = False
    ) -> None:
        """Own the streams from now on. Raises TypeError if they are not a StreamReader and a StreamWriter.

        With ``end_is_loss``, ``receive`` raises ConnectionResetError when the peer ends the stream.
        """
        for name, value, kind in (("reader", reader, asyncio.StreamReader), ("writer", writer, asyncio.StreamWriter)):
            if not isinstance(value, kind):
                raise TypeError(f"a {name} is an asyncio.{kind.__name__}, not {type(value).__name__}")
        self.unsent = self.ending = False
        self._end_is_loss = end_is_loss
        self._reader = reader
        self._writer = writer
        self._clock = asyncio.get_running_loop().time
        self._has_more = self._is_closed = False
        self._fault: Exception | None = None

    async def receive(self, connection: Connection) -> None:
        """Wait for input, and feed it or the end of the stream."""
        if self._has_more:
            # The reader returns buffered input without a turn of the loop, in which other sessions could run.
            await asyncio.sleep(0)
        data = await self._reader.read(RECEIVE_SIZE)
        self._has_more = len(data) == RECEIVE_SIZE
        if not data and self._end_is_loss and connection.phase is not Phase.CLOSING:
            raise ConnectionResetError("the peer closed the connection")
        connection.receive_data(data or None, self._clock())

    def send_now(self, connection: Connection) -> None:
        """Pass about 64 KiB of the engine's output to the transport, unless that has enough."""
        if not self.unsent:
            self._put(connection)

    async def send(self, connection: Connection) -> None:
        """Pass on the engine's output, and wait until the transport wants more; after the end, until all is written."""
        if not self.unsent:
            self._put(connection)
        if self._fault is not None:
            raise self._fault
        await self._writer.drain()
        connection.set_unwritten(self._writer.transport.get_write_buffer_size())
        if self.ending:
            await self.aclose()
        self.unsent = self.ending = False

    def session_lost(self) -> None:
        """Do nothing: this adapter has only one stream."""

    async def aclose(self) -> None:
        """Close the writer after it has written its buffer."""
        try:
            self._writer.close()
            await self._writer.wait_closed()
        except OSError:
            pass  # how it was lost
        except asyncio.CancelledError:
            self.abort()
            raise
        self._is_closed = True

    def abort(self) -> None:
        """Close the transport without writing its buffer, unless it is closed."""
        if not self._is_closed:
            self._is_closed = True
            self._writer.transport.abort()

    def _put(self, connection: Connection) -> None:
        chunks = connection.data_to_send()
        ends = bool(chunks) and chunks[-1] is None
        data = b"".join([chunk for chunk in chunks if chunk is not None])
        transport = self._writer.transport
        # A fault is not that of the caller with output. The task that writes reports it.
        if transport.is_closing():
            self._fault = ConnectionResetError("the stream is closed")
        else:
            try:
                transport.write(data)
                if ends and transport.can_write_eof():
                    transport.write_eof()
            except Exception as error:
                self._fault = error
        connection.set_unwritten(transport.get_write_buffer_size())
        self.ending = ends
        self.unsent = ends or self._fault is not None or transport.get_write_buffer_size() >= WRITE_AHEAD
