"""The interface between shared drivers and an event loop. Trio and asyncio each implement it once."""

from __future__ import annotations

import os
import ssl
from contextlib import AbstractAsyncContextManager
from socket import gaierror
from types import TracebackType
from typing import Any, Final, Protocol, Self

from mcpio._drivers.tcp_keep_alive import TCP_KEEP_ALIVE
from mcpio.app.runtime import Runtime

__all__ = ["RECEIVE_SIZE", "ByteStream", "CancelScope", "EventLoop", "Flag", "reason_of"]

RECEIVE_SIZE: Final = 65536
"""Bytes asked for by one read."""


class Flag(Protocol):
    """Can be set, and waited for."""

    def set(self) -> object:
        """Wake the waiting tasks."""

    async def wait(self) -> object:
        """Wait until the flag is set."""


class CancelScope(Protocol):
    """Block that ends quietly when it is cancelled, as Trio's of the same name."""

    deadline: float
    """The loop's time at which the block is cut off; infinity for never. It may be changed at any time."""

    @property
    def cancelled_caught(self) -> bool:
        """Whether the block was cut off."""

    def cancel(self) -> None:
        """Cut the block off at its current or next wait; before the block begins, at its first."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool: ...


class ByteStream(Protocol):
    """A connection. Its methods raise what ``EventLoop.broken`` lists when it is closed or broken.

    A stream may have two more methods. ``send_nowait(data)`` writes what finds room, without waiting, and returns how
    many bytes that was. ``await send_eof()`` ends the output and leaves the input open.
    """

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Wait for bytes; empty at the end."""

    async def send_all(self, data: bytes | memoryview) -> None:
        """Write all of the data."""

    async def aclose(self) -> None:
        """Close the connection gracefully; if cancelled, at once."""


class EventLoop(Protocol):
    """A running event loop."""

    @property
    def broken(self) -> tuple[type[Exception], ...]:
        """The exceptions that a closed or broken stream raises."""

    @property
    def cancelled(self) -> type[BaseException]:
        """The exception that a cancelled wait raises."""

    def now(self) -> float:
        """Return the loop's time in seconds."""

    def signal(self) -> Flag:
        """Return a flag that waiting lowers again, for one waiting task."""

    def event(self) -> Flag:
        """Return a flag that stays up."""

    def lock(self) -> AbstractAsyncContextManager[object]:
        """Return a lock that one task holds at a time, in the order in which they came."""

    def scope(self, seconds: float | None = None) -> CancelScope:
        """Return a block that can be cancelled; ``seconds`` is how long it may take, ``None`` for no limit."""

    def group(self) -> AbstractAsyncContextManager[Runtime]:
        """Return a block whose end waits for the tasks that its ``Runtime`` has spawned.

        An exception of the body, or one that ends the program, cancels the tasks and propagates unwrapped.
        """

    def last_moment(self, seconds: float | None) -> AbstractAsyncContextManager[None]:
        """Return a block of at most that many seconds which an earlier cancellation does not cut off."""

    async def resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host, the preferred one first. Raises OSError."""

    async def checkpoint(self) -> None:
        """Yield to other tasks."""

    async def open_stream(
        self, host: str, port: int, unix: str | None, keep_alive: float | None = TCP_KEEP_ALIVE
    ) -> ByteStream:
        """Connect to a host and port, or to the Unix socket at a path. Raises OSError.

        A TCP connection is kept alive by the system, since streams may be quiet for hours: without that, a server that
        vanished would never be noticed. ``keep_alive`` is the seconds of silence before the first probe, ``None`` for
        no probes.
        """

    async def start_tls(
        self, stream: Any, context: ssl.SSLContext, host: str, *, https_compatible: bool = True
    ) -> ByteStream:
        """Return the stream under TLS, with the certificate checked for ``host``. Raises OSError.

        ``https_compatible`` is for protocols that mark their own end: see ``trio.SSLStream``.
        """

    def is_readable(self, stream: Any) -> bool:
        """Whether input is waiting, which on a connection without a request means its end."""

    async def abort(self, stream: Any) -> None:
        """Close a stream at once, without waiting for the peer, and without raising."""


def reason_of(error: BaseException) -> str:
    """Return the reason of an error in one line: that of its deepest cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(reason_of(each) for each in error.exceptions))
    # The texts of event loops repeat the address, once for each that was tried. TLS and name look-ups have their own
    # numbers.
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError | gaierror) and error.errno is not None:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
