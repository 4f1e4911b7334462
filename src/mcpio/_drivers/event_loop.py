"""The interface to an event loop that drivers stand on."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from socket import gaierror
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from mcpio.app.runtime import Runtime
from mcpio.engine.connection import Connection
from mcpio.engine.table import Phase

if TYPE_CHECKING:
    from mcpio._drivers.signals import ExitTimer

# ------------------------------------------------------------------------------------------------------- tcp keep alive
# TCP keep-alive: how a driver notices a peer whose machine vanished.

TCP_KEEP_ALIVE: Final = 60.0
"""Seconds of silence before the first TCP keep-alive probe, by default."""

MOST: Final = 32767
"""The longest time in seconds that every system accepts."""

INTERVAL: Final = 15.0
"""Seconds between two keep-alive probes; after four without an answer, the connection is lost."""


def set_tcp_keep_alive(connected: Any, seconds: float) -> None:
    """Enable TCP keep-alive on a socket, after that many seconds of silence. Does nothing to a Unix socket."""
    if connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    times = {"TCP_KEEPIDLE": seconds, "TCP_KEEPALIVE": seconds, "TCP_KEEPINTVL": INTERVAL, "TCP_KEEPCNT": 4}
    with suppress(OSError):  # The peer is gone already.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in times.items():
            if hasattr(socket, name):  # Which options exist depends on the system.
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), int(min(max(1, value), MOST)))


# ------------------------------------------------------------------------------------------------------------- timeouts
# How long the drivers wait for a peer, a transport or a store when a session ends.

FINAL_READ_TIMEOUT: Final = 1.0
"""Seconds to continue reading after writing failed: the last answers of a dead peer may still arrive."""

FINAL_WRITE_TIMEOUT: Final = 0.5
"""Seconds for a cancelled session to notify its peer of cancelled requests."""

TRANSPORT_CANCEL_TIMEOUT: Final = 0.5
"""Seconds for a transport to end a read and a write that were cancelled, before it is closed under them."""

TRANSPORT_CLOSE_TIMEOUT: Final = 1.0
"""Seconds for a transport to close gracefully before it is closed forcefully."""

LINGER: Final = 0.9
"""Seconds of ``TRANSPORT_CLOSE_TIMEOUT`` to read what a peer still sends to a socket that is closed."""

QUIET: Final = 0.1
"""Seconds without input after which such a peer is not waited for any more."""

STORE_TIMEOUT: Final = 1.0
"""Seconds for a store, at the end, to record how sessions or tasks ended."""


# ----------------------------------------------------------------------------------------------------------- event loop
# The interface between shared drivers and an event loop. Trio and asyncio each implement it once.

RECEIVE_SIZE: Final = 65536
"""Bytes asked for by one read."""

BACKLOG: Final = 1024
"""How many connections the system keeps waiting to be accepted."""


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
        """Wait for bytes; empty at the end. Without a number, about 64 KiB at most.

        Further bytes that have arrived already are returned by the next call, after a turn of the loop.
        """

    async def send_all(self, data: bytes | memoryview) -> None:
        """Write all of the data."""

    async def aclose(self) -> None:
        """Close the connection gracefully; if cancelled, at once."""


class Timed(Protocol):
    """Has a deadline."""

    def handle_timeout(self) -> None:
        """Handle an expired deadline."""


class Deadlines(Protocol):
    """Lets the deadlines of sessions expire. Never touches a transport, so no peer can hold it up."""

    def arm(self, timed: Timed, deadline: float | None) -> None:
        """Call ``handle_timeout`` at that time, or earlier, in place of an earlier one; ``None`` for never."""

    def stop(self) -> None:
        """Let no deadline expire any more. Further calls do nothing."""


class ListenerClosed(Exception):
    """Raised by ``EventLoop.accept``: the listener was closed."""


class EventLoop(Protocol):
    """A running event loop."""

    @property
    def broken(self) -> tuple[type[Exception], ...]:
        """The exceptions that a closed or broken stream raises."""

    @property
    def runtime(self) -> Runtime:
        """The loop as the application layer uses it, without tasks."""

    def is_current(self) -> bool:
        """Whether it is the loop that runs now. May be asked anywhere."""

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

    def lasting(self) -> AbstractAsyncContextManager[Runtime]:
        """Return a block whose ``Runtime`` spawns tasks that a cancellation of the block does not reach.

        They go on while the body ends, and are cancelled at the end of the block.
        """

    def timekeeper(self, runtime: Runtime) -> Deadlines:
        """Return the deadlines of any number of ``Timed``; ``runtime`` runs the task that watches them, if any."""

    def alarm(self, runtime: Runtime, shared: Deadlines | None = None) -> Deadlines:
        """Return the deadlines of one ``Timed``: those that it may share with others, where that costs less."""

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

    async def linger(self, stream: Any) -> None:
        """Read and drop input for a while before a stream is closed whose output has ended.

        To close a socket over unread input resets it, and can take the last output from a peer that has not read it
        yet. Returns when the peer has ended too, is quiet for ``QUIET`` seconds, or after ``LINGER``.
        """

    def quickened(self, stream: Any) -> Any:
        """Return a stream that saves turns of the loop in place of a plain socket; any other as it is."""

    # Servers. A listener is what the loop's users listen with; an accepted connection is not a stream yet.

    def terminate_on_signals(self, timer: ExitTimer) -> AbstractContextManager[None]:
        """Return a block that SIGINT and SIGTERM cancel. After it the process ends, at the latest by ``timer``."""

    async def listen(self, host: str | None, port: int) -> list[Any]:
        """Return listeners on every address of a host, each with a backlog of ``BACKLOG``. Raises OSError."""

    def listener(self, bound: socket.socket) -> Any:
        """Return the listener of a socket that listens, without blocking."""

    def given_listeners(self, listeners: Sequence[Any]) -> Sequence[Any]:
        """Return the caller's listeners. Raises TypeError for anything else than a listener."""

    async def accept(self, listener: Any) -> Any:
        """Wait for a connection. Raises ListenerClosed, and OSError if the system cannot accept it."""

    async def accept_waiting(self, listener: Any) -> Any:
        """Return a connection that the system has accepted already, or ``None``, even if cancelled."""

    def socket_of(self, listener: Any) -> Any:
        """Return the socket of a listener or of an accepted connection; ``None`` if it has none."""

    async def server_stream(
        self, accepted: Any, context: ssl.SSLContext | None, timeout: float | None, *, https_compatible: bool
    ) -> Any:
        """Return the stream of an accepted connection, as ``quickened`` does, or under TLS as a server.

        ``None`` if the TLS handshake fails, or takes longer than ``timeout`` seconds.
        """

    def tls_of(self, stream: Any) -> Any:
        """Return the ``ssl.SSLObject`` of a stream, or what has its methods; ``None`` without TLS."""

    async def abandon(self, accepted: Any) -> None:
        """Close an accepted connection forcefully. Further calls do nothing."""

    async def close_listener(self, listener: Any) -> None:
        """Close a listener. Further calls do nothing."""


async def end_output(stream: Any) -> None:
    """End the output of a stream that can do so and leave its input open."""
    send_eof = getattr(stream, "send_eof", None)
    if send_eof is not None:
        await send_eof()


async def read_out(stream: ByteStream, loop: EventLoop) -> None:
    """Read and drop input until its end, or until nothing comes for a moment."""
    data: bytes | bytearray = b"?"
    while data:
        data = b""
        with loop.scope(QUIET):
            data = await stream.receive_some(RECEIVE_SIZE)


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


# ------------------------------------------------------------------------------------------------------- stream adapter
# The transport adapter over a stream of bytes: one message a line.


class StreamAdapter:
    """Carries lines over a stream, which it owns.

    A stream that has ``send_nowait`` saves a turn of the loop for most messages.
    """

    def __init__(self, stream: ByteStream, loop: EventLoop, *, end_is_loss: bool = False) -> None:
        """With ``end_is_loss``, ``receive`` raises ConnectionResetError when the peer ends the stream."""
        self.stream = stream
        self._loop = loop
        self._now = loop.now
        self._end_is_loss = end_is_loss
        self._send_nowait: Callable[[bytes], int] | None = getattr(stream, "send_nowait", None)
        self._send_eof: Callable[[], Awaitable[None]] | None = getattr(stream, "send_eof", None)
        self._rest = b""
        self._ends = self._has_ended = False
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
                self._ends, self._has_ended = False, True
        finally:
            self._sending = False

    def session_lost(self) -> None:
        """Do nothing: this adapter has only one stream."""

    async def aclose(self) -> None:
        """Close the stream. After a graceful end, first let the peer read all of the output."""
        if self._has_ended:
            with self._loop.scope(LINGER), suppress(*self._loop.broken):
                await self._loop.linger(self.stream)
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


def stream_adapter(stream: Any, loop: EventLoop, *, end_is_loss: bool = False) -> StreamAdapter:
    """Return the adapter of a stream. A plain socket saves a turn of the loop for most messages."""
    return StreamAdapter(loop.quickened(stream), loop, end_is_loss=end_is_loss)
