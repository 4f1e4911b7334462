"""Transport adapters: a connection's bytes or messages over a Trio stream or channel."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final, TypeAlias

import trio

from mcpio._drivers.actor import TransportAdapter
from mcpio.engine.connection import Connection
from mcpio.engine.table import Phase
from mcpio.trio._fd_streams import RECEIVE_SIZE

__all__ = [
    "BROKEN",
    "ChannelAdapter",
    "StreamAdapter",
    "Transport",
    "TransportAdapter",
    "adapter_for",
    "close_forcefully",
    "quickened",
]

Transport: TypeAlias = "trio.abc.Stream | trio.abc.Channel[str] | trio.abc.Channel[bytes]"
"""Carries a conversation: a stream of bytes, or a channel of whole messages."""

BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)
"""What a stream raises that is closed or broken."""


class StreamAdapter:
    """Carries lines over a ``trio.abc.Stream``.

    A plain socket, and a stream that has ``send_nowait``, saves a turn of the loop for most messages.
    """

    def __init__(self, stream: trio.abc.Stream, *, end_is_loss: bool = False) -> None:
        """With ``end_is_loss``, ``receive`` raises ``trio.BrokenResourceError`` when the peer ends the stream."""
        self._stream = stream = quickened(stream)
        self._end_is_loss = end_is_loss
        self._send_nowait: Callable[[bytes], int] | None = getattr(stream, "send_nowait", None)
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
        data = bytes(await self._stream.receive_some(RECEIVE_SIZE))
        if not data and self._end_is_loss and connection.phase is not Phase.CLOSING:
            raise trio.BrokenResourceError("the peer closed the connection")
        connection.receive_data(data or None, trio.current_time())

    def send_now(self, connection: Connection) -> None:
        """Write what finds room. There is no checkpoint, so no cancellation can tear a message."""
        if self._send_nowait is not None and not (self._sending or self._rest or self._ends):
            self._pull(connection)
            self._try_to_send()
            connection.set_unwritten(len(self._rest))

    async def send(self, connection: Connection) -> None:
        """Write what is unsent, or else about 64 KiB of the engine's output, in one write."""
        self._sending = True
        try:
            if not self.unsent:
                self._pull(connection)
                self._try_to_send()
            connection.set_unwritten(len(self._rest))
            if self._rest:
                await self._stream.send_all(self._rest)
                self._rest = b""
                connection.set_unwritten(0)
            if self._ends:
                if isinstance(self._stream, trio.abc.HalfCloseableStream):
                    await self._stream.send_eof()
                self._ends = False
        finally:
            self._sending = False

    def session_lost(self) -> None:
        """Do nothing: there is no other stream."""

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def _pull(self, connection: Connection) -> None:
        chunks = connection.data_to_send()
        self._ends = bool(chunks) and chunks[-1] is None
        self._rest = b"".join(filter(None, chunks))

    def _try_to_send(self) -> None:
        if self._rest and self._send_nowait is not None:
            try:
                self._rest = self._rest[self._send_nowait(self._rest) :]
            except Exception:
                return  # The writer will meet the same error, and reports it.


class ChannelAdapter:
    """Carries whole JSON texts over a ``trio.abc.Channel``.

    They are sent as str or bytes, whichever the peer sent last. Until it has sent something, ``binary`` decides.
    """

    unsent = False
    ending = False

    def __init__(self, channel: trio.abc.Channel[str] | trio.abc.Channel[bytes], *, binary: bool) -> None:
        self._channel = channel
        self._binary = binary

    async def receive(self, connection: Connection) -> None:
        """Wait for the next message, and feed it or the end of the channel."""
        try:
            message: object = await self._channel.receive()
        except trio.EndOfChannel:
            connection.receive_message(None, trio.current_time())
            return
        if not isinstance(message, str | bytes | bytearray | memoryview):
            raise TypeError(f"a channel's messages are str or bytes, not {type(message).__name__}")
        self._binary = not isinstance(message, str)
        text = message if isinstance(message, str) else bytes(message)
        connection.receive_message(text, trio.current_time())

    def send_now(self, connection: Connection) -> None:
        """Do nothing: a channel cannot tell whether it has room, so all is left to ``send``."""

    async def send(self, connection: Connection) -> None:
        """Send every message that the engine has."""
        while (message := connection.next_message()) is not None:
            text = message.text if self._binary else message.text.decode()
            connection.set_unwritten(len(message.text))
            await self._channel.send(text)  # type: ignore[arg-type]  # whichever of the two the peer uses
            connection.set_unwritten(0)

    def session_lost(self) -> None:
        """Do nothing: there is no other channel."""

    async def aclose(self) -> None:
        """Close the channel."""
        await self._channel.aclose()


def adapter_for(transport: Transport, *, binary: bool = False) -> TransportAdapter:
    """Return the adapter of a transport. Raises TypeError if it is neither a stream nor a channel."""
    if isinstance(transport, trio.abc.Stream):
        return StreamAdapter(transport)
    if isinstance(transport, trio.abc.Channel):
        return ChannelAdapter(transport, binary=binary)
    raise TypeError(f"a transport must be a trio.abc.Stream or a trio.abc.Channel, not {type(transport).__name__}")


def quickened(stream: trio.abc.Stream) -> trio.abc.Stream:
    """Return a stream that saves turns of the loop in place of a plain socket; any other as it is."""
    if os.name == "posix" and isinstance(stream, trio.SocketStream):
        from mcpio.trio._socket_stream import QuickSocketStream  # only where there are sockets

        return QuickSocketStream(stream)
    return stream


async def close_forcefully(adapter: TransportAdapter) -> None:
    """Close a transport without waiting, and without raising."""
    with trio.CancelScope() as scope, contextlib.suppress(Exception):
        scope.cancel()
        await adapter.aclose()
