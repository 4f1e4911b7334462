"""Transport adapters: a connection's bytes or messages over a Trio stream or channel."""

from __future__ import annotations

from typing import TypeAlias

import trio

from mcpio._drivers import actor
from mcpio._drivers.actor import TransportAdapter
from mcpio._drivers.event_loop import stream_adapter
from mcpio.engine.connection import Connection
from mcpio.trio._event_loop import TrioEventLoop

__all__ = [
    "ChannelAdapter",
    "Transport",
    "TransportAdapter",
    "adapter_for",
    "close_forcefully",
]

Transport: TypeAlias = "trio.abc.Stream | trio.abc.Channel[str] | trio.abc.Channel[bytes]"
"""Carries a conversation: a stream of bytes, or a channel of whole messages."""


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
            raise TypeError(f"a channel's messages must be str or bytes, not {type(message).__name__}")
        self._binary = not isinstance(message, str)
        text = message if isinstance(message, str) else bytes(message)
        connection.receive_message(text, trio.current_time())

    def send_now(self, connection: Connection) -> None:
        """Do nothing: a channel does not tell whether ``send`` would wait, so ``send`` does all the writing."""

    async def send(self, connection: Connection) -> None:
        """Send every message that the engine has."""
        while (message := connection.next_message()) is not None:
            text = message.text if self._binary else message.text.decode()
            connection.set_unwritten(len(message.text))
            await self._channel.send(text)  # type: ignore[arg-type]  # whichever of the two the peer uses
            connection.set_unwritten(0)

    def session_lost(self) -> None:
        """Do nothing: this adapter has only one channel."""

    async def aclose(self) -> None:
        """Close the channel."""
        await self._channel.aclose()


def adapter_for(transport: Transport, *, binary: bool = False) -> TransportAdapter:
    """Return the adapter of a transport. Raises TypeError if it is neither a stream nor a channel."""
    if isinstance(transport, trio.abc.Stream):
        return stream_adapter(transport, TrioEventLoop())
    if isinstance(transport, trio.abc.Channel):
        return ChannelAdapter(transport, binary=binary)
    raise TypeError(f"a transport must be a trio.abc.Stream or a trio.abc.Channel, not {type(transport).__name__}")


async def close_forcefully(adapter: TransportAdapter) -> None:
    """Close a transport without waiting, and without raising."""
    await actor.close_forcefully(adapter, TrioEventLoop())
