"""A connection on asyncio as a stream: what arrives waits in a buffer, and what leaves waits for room."""

from __future__ import annotations

import asyncio
import select
import socket
import sys
from contextlib import suppress
from typing import Any, Final

__all__ = ["SocketStream"]

READ_AHEAD: Final = 131_072
"""Bytes in the buffer beyond which the socket is not read."""


WRITE_AHEAD: Final = 16384
"""Bytes that the system takes beyond what it has sent, of a TCP connection. By default it would take megabytes, and a
message written later, such as a cancellation, would wait behind them. Trio sets the same."""

_NOT_SENT: Final = getattr(socket, "TCP_NOTSENT_LOWAT", None)


class SocketStream(asyncio.Protocol):
    """A byte stream with one reading and one writing task.

    Not asyncio's reader and writer: those cannot tell whether unexpected input came, and hold 64 KiB of
    output before they wait.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._received = bytearray()
        self._has_ended = False
        self._is_paused = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._may_write = True
        self._closed: asyncio.Future[None] = self._loop.create_future()

    # The stream

    @property
    def is_readable(self) -> bool:
        """Whether input is waiting, or its end: here, or in the system, which the loop may not have asked yet."""
        if self._received or self._has_ended or self._error is not None:
            return True
        return _has_input(self.get_extra_info("socket").fileno())

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for bytes; ``b""`` at the end. Raises OSError if the connection broke."""
        while not self._received:
            if self._error is not None:
                raise self._error
            if self._has_ended:
                return b""
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        data = bytes(self._received[:max_bytes])
        del self._received[:max_bytes]
        if self._is_paused and not self._has_ended and len(self._received) < READ_AHEAD:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    async def send_all(self, data: bytes | memoryview) -> None:
        """Write all of the data: wait until only the socket's buffer holds any of it."""
        self._check_open()
        self._transport.write(data)
        await self._drain()

    def send_nowait(self, data: bytes) -> int:
        """Accept all of the data if the system has accepted all earlier data, or else none; return how much."""
        self._check_open()
        if not self._may_write:
            return 0
        self._transport.write(data)
        return len(data)

    async def send_eof(self) -> None:
        """End the output, when the system has taken all of it. Under TLS, only wait: the input would end too."""
        await self._drain()
        self._check_open()  # uvloop takes a transport that was aborted for a bug of ours
        if self._transport.can_write_eof():
            self._transport.write_eof()

    async def start_tls(self, context: Any, host: str) -> None:
        """Shake hands as a client; all later bytes are encrypted. Raises OSError."""
        try:
            self._transport = await self._loop.start_tls(self._transport, self, context, server_hostname=host)
        except BaseException:
            # During the handshake asyncio's TLS layer takes the transport, and its end with it.
            self._transport.abort()
            self.connection_lost(None)
            raise
        self._limit_buffer()

    async def aclose(self) -> None:
        """Close when the system has taken all of the output; if cancelled, at once."""
        self._transport.close()
        try:
            await asyncio.wait([self._closed])
        except BaseException:
            self.cut()
            raise

    async def abort(self) -> None:
        """Close without waiting for the peer."""
        self.cut()
        await asyncio.wait([self._closed])

    def cut(self) -> None:
        """Close without waiting. Does nothing once it is closed: asyncio's transports then have no loop to abort in."""
        if not self._closed.done():
            self._transport.abort()

    def get_extra_info(self, name: str) -> Any:
        """Return a property of the connection, like ``asyncio.BaseTransport.get_extra_info``."""
        return self._transport.get_extra_info(name)

    async def _drain(self) -> None:
        while not self._may_write:
            self._writer = self._loop.create_future()
            try:
                await self._writer
            finally:
                self._writer = None
            self._check_open()

    def _limit_buffer(self) -> None:
        """Make the transport report when it buffers anything, so that writers wait until the system has the data."""
        # Under TLS asyncio compares otherwise: with a limit of 0 it would pause with an empty buffer.
        self._transport.set_write_buffer_limits(0 if self.get_extra_info("sslcontext") is None else 1, 0)

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error
        if self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")

    # The protocol of the transport

    def connection_made(self, transport: Any) -> None:
        """Store the transport."""
        self._transport = transport
        self._limit_buffer()
        if _NOT_SENT is not None:
            with suppress(OSError):  # a Unix socket has no such option
                self.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, _NOT_SENT, WRITE_AHEAD)

    def data_received(self, data: bytes) -> None:
        """Store received bytes."""
        self._received += data
        if len(self._received) >= READ_AHEAD and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> bool:
        """Record the end of input. Output continues, except under TLS, where that is impossible."""
        self._has_ended = True
        _wake(self._reader)
        return self._transport.get_extra_info("sslcontext") is None

    def connection_lost(self, error: Exception | None) -> None:
        """Note the end."""
        self._has_ended = True
        self._error = error if error is None or isinstance(error, OSError) else ConnectionResetError(str(error))
        _wake(self._reader)
        _wake(self._writer)
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        """Wait before more is written."""
        self._may_write = False

    def resume_writing(self) -> None:
        """Resume writing."""
        self._may_write = True
        _wake(self._writer)


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def _has_input(descriptor: int) -> bool:
    """Ask the system whether a socket has input, or its end."""
    if sys.platform == "win32":  # pragma: no cover - tests run on Linux
        return descriptor < 0 or bool(select.select([descriptor], [], [], 0)[0])
    if descriptor < 0:  # closed
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
