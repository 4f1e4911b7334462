"""The transport adapter over a stream of bytes: one message a line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mcpio._drivers.event_loop import RECEIVE_SIZE, ByteStream, EventLoop
from mcpio.engine.connection import Connection
from mcpio.engine.table import Phase

__all__ = ["StreamAdapter"]


class StreamAdapter:
    """Carries lines over a stream, which it owns.

    A stream that has ``send_nowait`` saves a turn of the loop for most messages.
    """

    def __init__(self, stream: ByteStream, loop: EventLoop, *, end_is_loss: bool = False) -> None:
        """With ``end_is_loss``, ``receive`` raises ConnectionResetError when the peer ends the stream."""
        self.stream = stream
        self._now = loop.now
        self._end_is_loss = end_is_loss
        self._send_nowait: Callable[[bytes], int] | None = getattr(stream, "send_nowait", None)
        self._send_eof: Callable[[], Awaitable[None]] | None = getattr(stream, "send_eof", None)
        self._rest = b""
        self._ends = False
        self._sending = False

    @property
    def unsent(self) -> bool:
        """Whether output was pulled from a connection and not written yet."""
        return bool(self._rest) or self._ends

    @property
    def ending(self) -> bool:
        """Whether the graceful end was pulled, and it or the output before it is not written yet."""
        return self._ends

    async def receive(self, connection: Connection) -> None:
        """Wait for input, and feed it or the end of the stream."""
        data = bytes(await self.stream.receive_some(RECEIVE_SIZE))
        if not data and self._end_is_loss and connection.phase is not Phase.CLOSING:
            raise ConnectionResetError("the peer closed the connection")
        connection.receive_data(data or None, self._now())

    def send_now(self, connection: Connection) -> None:
        """Write without waiting, as much as the stream accepts, so that no cancellation can split a message."""
        if self._send_nowait is not None and not (self._sending or self._rest or self._ends):
            self._pull(connection)
            connection.set_unwritten(len(self._rest))

    async def send(self, connection: Connection) -> None:
        """Write unsent output, or else about 64 KiB of the engine's output, in one write."""
        self._sending = True
        try:
            if not self.unsent:
                self._pull(connection)
            connection.set_unwritten(len(self._rest))
            if self._rest:
                await self.stream.send_all(self._rest)
                self._rest = b""
                connection.set_unwritten(0)
            if self._ends:
                if self._send_eof is not None:
                    await self._send_eof()
                self._ends = False
        finally:
            self._sending = False

    def session_lost(self) -> None:
        """Do nothing: this adapter has only one stream."""

    async def aclose(self) -> None:
        """Close the stream."""
        await self.stream.aclose()

    def _pull(self, connection: Connection) -> None:
        """Pull output, and write what finds room."""
        chunks = connection.data_to_send()
        self._ends = bool(chunks) and chunks[-1] is None
        self._rest = rest = b"".join(filter(None, chunks))
        if rest and self._send_nowait is not None:
            try:
                self._rest = rest[self._send_nowait(rest) :]
            except Exception:
                return  # The writer will meet the same error, and reports it.
