"""A socket as a stream, with fewer system calls and turns of the loop than Trio's own takes. For POSIX."""

from __future__ import annotations

import trio

from mcpio.trio._halves import PollInput, PollOutput

__all__ = ["QuickSocketStream"]


class QuickSocketStream(trio.abc.HalfCloseableStream):
    """A plain ``trio.SocketStream``, which it owns from then on."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.socket = stream.socket
        self._stream = stream
        fd = stream.socket.fileno()
        self._source = PollInput(fd, close=lambda _: stream.socket.close())
        self._sink = PollOutput(fd, close=lambda _: None)  # there is only one descriptor
        self._is_sending = self._has_ended = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for bytes; ``b""`` is the end."""
        return await self._source.receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of it."""
        self._begin_sending()
        try:
            await self._sink.send_all(data)
        finally:
            self._is_sending = False

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        """Write what finds room at once, without a checkpoint, and return how many bytes of ``data`` that was."""
        self._check_sending()
        return self._sink.send_nowait(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room."""
        self._begin_sending()
        try:
            await self._sink.wait_send_all_might_not_block()
        finally:
            self._is_sending = False

    async def send_eof(self) -> None:
        """Tell the peer that no more comes. A second call does nothing."""
        if self._is_sending:
            raise trio.BusyResourceError("another task is sending on this stream")
        await self._stream.send_eof()
        self._has_ended = True

    async def aclose(self) -> None:
        """Close it."""
        self._sink.close()
        self._source.close()
        await self._stream.aclose()

    def _begin_sending(self) -> None:
        self._check_sending()
        self._is_sending = True

    def _check_sending(self) -> None:
        if self._is_sending:
            raise trio.BusyResourceError("another task is sending on this stream")
        if self._has_ended:
            raise trio.ClosedResourceError("this end was closed")
