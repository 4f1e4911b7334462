"""asyncio as the drivers see it."""

from __future__ import annotations

import asyncio
import math
import os
import select
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, suppress
from functools import cached_property, partial
from types import TracebackType
from typing import Any, Final, Self

import attrs

from mcpio._checks import required
from mcpio._drivers.event_loop import (
    BACKLOG,
    RECEIVE_SIZE,
    TCP_KEEP_ALIVE,
    Deadlines,
    ListenerClosed,
    Timed,
    read_out,
    set_tcp_keep_alive,
)
from mcpio._drivers.signals import DEFAULT_TIMEOUT, ExitTimer, ended_by_signals
from mcpio.app.runtime import Runtime
from mcpio.asyncio._runtime import AsyncioRuntime, AsyncioTask, last_moment, ungrouped

# -------------------------------------------------------------------------------------------------------- socket stream
# A connection on asyncio as a stream: what arrives waits in a buffer, and what leaves waits for room.

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
        self._has_more = False
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
        if self._has_more:
            # asyncio reads up to 256 KiB at once. Between two parts of that, other tasks have a turn, as on Trio.
            await asyncio.sleep(0)
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
        size = RECEIVE_SIZE if max_bytes is None else max_bytes
        data = bytes(self._received[:size])
        del self._received[:size]
        self._has_more = bool(self._received)
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
        limit_buffer(self._transport)

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

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error
        if self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")

    # The protocol of the transport

    def connection_made(self, transport: Any) -> None:
        """Store the transport."""
        self._transport = transport
        limit_buffer(self._transport)
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


def limit_buffer(transport: Any) -> None:
    """Make a transport report when it buffers anything, so that writers wait until the system has the data."""
    # Under TLS asyncio compares otherwise: with a limit of 0 it would pause with an empty buffer.
    transport.set_write_buffer_limits(0 if transport.get_extra_info("sslcontext") is None else 1, 0)


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


# ----------------------------------------------------------------------------------------------------------- event loop
# The interface of the shared drivers to asyncio.


class Signal:
    """A flag that one task waits for; waiting lowers it. It takes less than half of an ``asyncio.Event``."""

    __slots__ = ("_is_up", "_waiter")

    def __init__(self) -> None:
        self._is_up = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Raise the flag."""
        self._is_up = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until the flag is up, and lower it. Other tasks have a turn, also where it is up already, as on Trio."""
        if self._is_up:
            await asyncio.sleep(0)
        else:
            waiter = self._waiter = asyncio.get_running_loop().create_future()
            try:
                await waiter
            finally:
                if self._waiter is waiter:  # a cancelled task may leave when the next one waits already
                    self._waiter = None
        self._is_up = False


class CancelScope:
    """Block that ends quietly when it is cancelled or times out, like Trio's class of the same name.

    ``asyncio.timeout`` raises TimeoutError, and cannot be cancelled before it is entered.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = math.inf if seconds is None else self._loop.time() + seconds
        self._task: asyncio.Task[Any] | None = None
        self._handle: asyncio.Handle | None = None
        self._is_cancelled = self._is_delivered = False
        self.cancelled_caught = False

    @property
    def deadline(self) -> float:
        """The loop's time at which the block is cut off; infinity for never. It may be changed at any time."""
        return self._deadline

    @deadline.setter
    def deadline(self, deadline: float) -> None:
        self._deadline = deadline
        if self._task is not None and not self._is_cancelled:
            self._arm()

    def cancel(self) -> None:
        """Cut the block off at its current or next wait; before the block begins, at its first."""
        self._is_cancelled = True
        if self._task is not None and not self._is_delivered:
            # Not at once: a task that cancels its own block would be cut off at its first wait after the block.
            self._call(self._loop.call_soon(self._deliver))

    def __enter__(self) -> Self:
        """Enter the block, in the task that it can cancel."""
        self._task = asyncio.current_task()
        assert self._task is not None
        self._before = self._task.cancelling()
        if self._is_cancelled:
            self.cancel()
        else:
            self._arm()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """End the block."""
        task, self._task = self._task, None
        if self._handle is not None:
            self._handle.cancel()
        if not self._is_delivered or task is None:
            return False
        # A cancellation from outside that came as well goes on.
        is_ours = task.uncancel() <= self._before
        self.cancelled_caught = is_ours and isinstance(error, asyncio.CancelledError)
        return self.cancelled_caught

    def _arm(self) -> None:
        self._call(None if self._deadline == math.inf else self._loop.call_at(self._deadline, self._deliver))

    def _call(self, handle: asyncio.Handle | None) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = handle

    def _deliver(self) -> None:
        if self._task is not None:
            self._is_delivered = True
            self._task.cancel()


class AsyncioEventLoop:
    """``mcpio._drivers.event_loop.EventLoop`` for asyncio."""

    broken: tuple[type[Exception], ...] = (OSError,)

    def __init__(self) -> None:
        """Create it inside the running loop."""
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time

    @cached_property
    def runtime(self) -> AsyncioRuntime:
        """A runtime without a group."""
        return AsyncioRuntime(None)

    def is_current(self) -> bool:
        """Whether it is the loop that this runs in."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def signal(self) -> Signal:
        """Return a flag that waiting lowers again."""
        return Signal()

    def event(self) -> asyncio.Event:
        """Return a flag that stays up."""
        return asyncio.Event()

    def lock(self) -> asyncio.Lock:
        """Return a lock."""
        return asyncio.Lock()

    def scope(self, seconds: float | None = None) -> CancelScope:
        """Return a cancel scope."""
        return CancelScope(seconds)

    @asynccontextmanager
    async def group(self) -> AsyncIterator[AsyncioRuntime]:
        """Return a task group as a runtime."""
        with ungrouped():
            async with asyncio.TaskGroup() as tasks:
                try:
                    yield AsyncioRuntime(tasks)
                except (Exception, asyncio.CancelledError):
                    # The group cancels its tasks now. One that has not started would never run its ``finally``.
                    await asyncio.sleep(0)
                    raise

    @asynccontextmanager
    async def lasting(self) -> AsyncIterator[AsyncioRuntime]:
        """Return a task group as a runtime: a cancellation of the block reaches only the block's own task."""
        with ungrouped():
            async with asyncio.TaskGroup() as tasks:
                runtime = _Lasting(tasks)
                try:
                    yield runtime
                finally:
                    runtime.cancel()

    def timekeeper(self, runtime: Runtime) -> Alarms:
        """Return timers of the loop."""
        return Alarms(self._loop)

    def alarm(self, runtime: Runtime, shared: Deadlines | None = None) -> Alarm:
        """Return a timer of the loop, which costs less than to look up one of several."""
        return Alarm(self._loop)

    def last_moment(self, seconds: float | None) -> AbstractAsyncContextManager[None]:
        """Return a block that an earlier cancellation does not cut off."""
        return last_moment(seconds)

    async def resolve(self, host: str, port: int) -> list[str]:
        """Ask the system in a thread."""
        addresses = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for *_, address in addresses))

    async def checkpoint(self) -> None:
        """Yield to other tasks."""
        await asyncio.sleep(0)

    async def open_stream(
        self, host: str, port: int, unix: str | None, keep_alive: float | None = TCP_KEEP_ALIVE
    ) -> SocketStream:
        """Connect."""
        if unix is not None:
            _, stream = await self._loop.create_unix_connection(SocketStream, unix)
            return stream
        # The addresses of a name are tried side by side, as Trio does (RFC 8305). uvloop tries one after another. There
        # is no race for one address: asyncio leaves a socket unclosed if that is cancelled just when it ends. Nor is
        # there one with a task factory: before Python 3.12.8, eager tasks break it (python/cpython issue 124309).
        is_address = ":" in host or host.replace(".", "").isdecimal()
        takes_races = isinstance(self._loop, asyncio.BaseEventLoop) and self._loop.get_task_factory() is None
        races = takes_races and not is_address
        hurried: Any = {"happy_eyeballs_delay": 0.25} if races else {}
        transport, stream = await self._loop.create_connection(SocketStream, host, port, **hurried)
        if keep_alive is not None:
            set_tcp_keep_alive(transport.get_extra_info("socket"), keep_alive)
        return stream

    async def start_tls(
        self, stream: SocketStream, context: ssl.SSLContext, host: str, *, https_compatible: bool = True
    ) -> SocketStream:
        """Shake hands as a client."""
        await stream.start_tls(context, host)
        return stream

    def is_readable(self, stream: SocketStream) -> bool:
        """Ask the system whether input is waiting."""
        return stream.is_readable

    async def abort(self, stream: SocketStream) -> None:
        """Close a stream without waiting for the peer."""
        await stream.abort()

    async def linger(self, stream: Any) -> None:
        """Read a socket out. Under TLS the peer is not told of the end: asyncio ends both directions at once."""
        if stream.get_extra_info("socket") is not None:
            await read_out(stream, self)

    def quickened(self, stream: Any) -> Any:
        """Return the stream, which is quick."""
        return stream

    def terminate_on_signals(self, timer: ExitTimer) -> AbstractContextManager[None]:
        """Return a block that signals end."""
        return ended_by_signals(CancelScope(), self._loop.call_soon_threadsafe, timer)

    async def listen(self, host: str | None, port: int) -> list[socket.socket]:
        """Listen on every address of a host."""
        listeners: list[socket.socket] = []
        try:
            addresses = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, kind, protocol, _, address in dict.fromkeys(addresses):
                listeners.append(made := socket.socket(family, kind, protocol))
                made.setblocking(False)
                if os.name == "posix":
                    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                made.bind(address)
                made.listen(BACKLOG)
                if port == 0:
                    break
        except BaseException:
            for listener in listeners:
                listener.close()
            raise
        return listeners

    def listener(self, bound: socket.socket) -> socket.socket:
        """Return the socket."""
        return bound

    def given_listeners(self, listeners: Sequence[Any]) -> Sequence[socket.socket]:
        """Return sockets that listen."""
        for listener in listeners:
            # asyncio accepts from a blocking socket too, and holds up the event loop until a client comes.
            required("listeners", listener, socket.socket).setblocking(False)
        return listeners

    async def accept(self, listener: socket.socket) -> Accepted:
        """Wait for a connection."""
        # Not ``sock_accept``: cancelled just when a client comes, it loses that client's socket, which stays open.
        while True:
            # ``accept_waiting`` does not wait: while clients queue, no other task would run, and no cancellation come.
            await asyncio.sleep(0)
            if listener.fileno() < 0:
                raise ListenerClosed
            if (accepted := await self.accept_waiting(listener)) is not None:
                return accepted
            await self._wait_readable(listener)

    async def accept_waiting(self, listener: socket.socket) -> Accepted | None:
        """Return a connection that the system has accepted already."""
        try:
            accepted, _ = listener.accept()  # listeners do not block
        except (BlockingIOError, InterruptedError):
            return None
        accepted.setblocking(False)
        return Accepted(accepted)

    async def _wait_readable(self, listener: socket.socket) -> None:
        readable = self._loop.create_future()
        self._loop.add_reader(listener, _wake, readable)
        try:
            await readable
        finally:
            self._loop.remove_reader(listener)

    def socket_of(self, listener: socket.socket | Accepted) -> socket.socket:
        """Return the socket."""
        return listener.socket if isinstance(listener, Accepted) else listener

    async def server_stream(
        self, accepted: Accepted, context: ssl.SSLContext | None, timeout: float | None, *, https_compatible: bool
    ) -> SocketStream | None:
        """Shake hands as a server, if a context is given. asyncio limits its time to 60 s."""
        stream = SocketStream()
        try:
            await self._loop.connect_accepted_socket(
                lambda: stream,
                accepted.socket,
                ssl=context,
                ssl_handshake_timeout=None if context is None else timeout,
            )
        except OSError:
            return None  # The client is gone, or does not speak TLS as the server does.
        accepted.stream = stream
        return stream

    def tls_of(self, stream: SocketStream) -> Any:
        """Return the TLS object."""
        return stream.get_extra_info("ssl_object")

    async def abandon(self, accepted: Accepted) -> None:
        """Close a connection forcefully."""
        if accepted.stream is None:
            accepted.socket.close()
        else:
            accepted.stream.cut()

    async def close_listener(self, listener: socket.socket) -> None:
        """Close a socket."""
        listener.close()


class _Lasting(AsyncioRuntime):
    """Tasks that are cancelled together."""

    __slots__ = ("_running",)

    def __init__(self, group: asyncio.TaskGroup) -> None:
        super().__init__(group)
        self._running: set[AsyncioTask] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> AsyncioTask:
        """Run a coroutine as a task."""
        task = super().spawn(coroutine)
        self._running.add(task)
        task.when_done(partial(self._running.discard, task))
        return task

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in tuple(self._running):
            task.cancel()


@attrs.define(eq=False)
class Accepted:
    """A connection, at first as a socket, then as a stream."""

    socket: socket.socket
    stream: SocketStream | None = None


def terminate_on_signals(
    *, timeout: float | None = DEFAULT_TIMEOUT, end_with_parent: bool = False
) -> AbstractContextManager[None]:
    """Context manager that ends its block, and then the process, at the first SIGINT or SIGTERM.

    The signal cancels the block. When that is unwound, ``Terminated`` is raised, a SystemExit with the status 130 or
    143. ``timeout`` is how many seconds the process may live after the signal; then it is ended on the spot, whatever
    still runs. ``None`` sets no limit. A second signal ends the process immediately. Signal handlers belong to the main
    thread; in another thread the block has no effect. See ``mcpio.trio.terminate_on_signals`` for child processes and
    for ``end_with_parent``.
    """
    call_soon = asyncio.get_running_loop().call_soon_threadsafe
    return ended_by_signals(CancelScope(), call_soon, timeout, end_with_parent=end_with_parent)


# --------------------------------------------------------------------------------------------------------------- alarms
# The timers of deadlines.


class Alarm:
    """The timer of a session's deadlines. It may go off too early, which does no harm."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Not a TimerHandle: uvloop returns another kind of handle for a time that has passed.
        self._handle: asyncio.Handle | None = None
        self._deadline = math.inf

    def arm(self, timed: Timed, deadline: float | None) -> None:
        """Fire at a deadline or earlier. Rearming the timer for each request costs more than a false alarm."""
        if deadline is not None and deadline < self._deadline:
            self.stop()
            self._deadline = deadline
            self._handle = self._loop.call_at(deadline, self._go_off, timed)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._handle is not None:
            self._handle.cancel()

    def _go_off(self, timed: Timed) -> None:
        self._deadline = math.inf
        timed.handle_timeout()


class Alarms:
    """The timers of the deadlines of several sessions."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._alarms: dict[int, Alarm] = {}

    def arm(self, timed: Timed, deadline: float | None) -> None:
        """Fire at a deadline of ``timed`` or earlier; ``None`` lets go of it."""
        if deadline is None:
            if (alarm := self._alarms.pop(id(timed), None)) is not None:
                alarm.stop()
            return
        alarm = self._alarms.get(id(timed))
        if alarm is None:
            alarm = self._alarms[id(timed)] = Alarm(self._loop)
        alarm.arm(timed, deadline)

    def stop(self) -> None:
        """Cancel the timers."""
        for alarm in self._alarms.values():
            alarm.stop()
