"""Streams over file descriptors, with and without threads."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from mcpio._drivers.stdio import Access, StderrLines, inherited_input, inherited_output
from mcpio.trio._runtime import interruptible

# ----------------------------------------------------------------------------------------------------------- fd streams
# Readers and writers over file descriptors, and the Trio streams that join one of each.
# A reader or writer owns its descriptor. ``descriptors`` decides which kind fits which descriptor.

RECEIVE_SIZE: Final = 65536
"""Bytes requested by one read: the capacity of a Linux pipe. Larger reads would allocate by mmap."""


LONGEST_PAUSE: Final = 63
"""The most reads in a row that wait for a descriptor without an attempt to read before."""


class FdReader(Protocol):
    """A source of bytes."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for bytes; ``b""`` is the end. See ``trio.abc.ReceiveStream.receive_some``."""
        ...

    def close(self) -> None:
        """Close immediately; a task that waits in ``receive_some`` gets ``trio.ClosedResourceError``."""
        ...


class FdWriter(Protocol):
    """A sink of bytes."""

    ends_for_peer: bool
    """Whether the peer can see the end of this output: true for pipes and sockets, not for terminals and files."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of ``data``. See ``trio.abc.SendStream.send_all``."""
        ...

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        """Write what finds room without waiting, and return how many bytes that was; 0 if that cannot be known."""
        ...

    async def wait_send_all_might_not_block(self) -> None:
        """See ``trio.abc.SendStream.wait_send_all_might_not_block``."""
        ...

    def send_eof(self) -> None:
        """End the output, if the peer can see that, and close."""
        ...

    def close(self) -> None:
        """Close immediately; a task that waits in ``send_all`` gets ``trio.ClosedResourceError``."""
        ...


class FdStream(trio.abc.HalfCloseableStream):
    """Joins a reader and a writer to a stream. Subclasses define how it ends.

    A cancelled ``receive_some`` loses nothing. A cancelled ``send_all`` may have written a part.
    """

    def __init__(self, source: FdReader, sink: FdWriter) -> None:
        self._source = source
        self._sink = sink
        self._sending = False

    def receive_some(self, max_bytes: int | None = None) -> Coroutine[Any, Any, bytes]:
        """Wait for at least one byte, and return at most ``max_bytes``; ``b""`` at the end of the input."""
        # Not an async function: each wake-up of the task would pass through one more frame.
        return self._source.receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of ``data``. A second task that tries meanwhile gets ``trio.BusyResourceError``."""
        self._begin_sending()
        try:
            await self._sink.send_all(data)
        finally:
            self._sending = False

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        """Write what finds room, without a checkpoint, and return how many bytes of ``data`` that was.

        For output between two checkpoints: a short message to a peer that reads costs one system call and no turn of
        the loop. 0 means "use ``send_all``". Raises what ``send_all`` raises.
        """
        self._check_sending()
        return self._sink.send_nowait(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the output has room."""
        self._begin_sending()
        try:
            await self._sink.wait_send_all_might_not_block()
        finally:
            self._sending = False

    def _begin_sending(self) -> None:
        self._check_sending()
        self._sending = True

    def _check_sending(self) -> None:
        """Raise if another task is sending."""
        if self._sending:
            raise trio.BusyResourceError("another task is sending on this stream")


class StdioStream(FdStream):
    """Joins an input and an output that have a descriptor each.

    ``close`` is a synchronous ``aclose``: idempotent, and legal from any task of the run. ``on_eof`` is called once,
    after ``send_eof`` on an output whose end the peer can see.
    """

    def __init__(self, source: FdReader, sink: FdWriter, *, on_eof: Callable[[], None] | None = None) -> None:
        super().__init__(source, sink)
        self._on_eof = on_eof
        self._closed = False
        self._sent_eof = False

    async def send_eof(self) -> None:
        """Close the output and keep the input open. Further calls do nothing."""
        if self._closed:
            raise trio.ClosedResourceError("the stream is closed")
        self._check_sending()
        if not self._sent_eof:
            self._sent_eof = True
            self._sink.send_eof()
            if self._on_eof is not None and self._sink.ends_for_peer:
                self._on_eof()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Close both directions immediately."""
        self._closed = True
        self._source.close()
        self._sink.close()

    async def aclose(self) -> None:
        """Close both directions."""
        self.close()
        await trio.lowlevel.checkpoint()


class QuickSocketStream(FdStream):
    """Wraps a plain ``trio.SocketStream``, which it owns from then on. For POSIX.

    It makes fewer system calls and takes fewer turns of the loop than Trio's own stream.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self.socket = stream.socket
        fd = stream.socket.fileno()
        # Both directions share one descriptor, so only the reader closes it.
        super().__init__(PollReader(fd, close=lambda _: stream.socket.close()), PollWriter(fd, close=lambda _: None))
        self._stream = stream
        self._has_ended = False

    async def send_eof(self) -> None:
        """Half-close the connection. Further calls do nothing."""
        super()._check_sending()
        await self._stream.send_eof()
        self._has_ended = True

    async def aclose(self) -> None:
        """Close the connection."""
        self._sink.close()
        self._source.close()
        await self._stream.aclose()

    def _check_sending(self) -> None:
        super()._check_sending()
        if self._has_ended:
            raise trio.ClosedResourceError("this end was closed")


class PollReader:
    """Reads from a descriptor whose reads never block: one in non-blocking mode, or of a kind that is always ready.

    ``read(fd, size)`` reads, and raises BlockingIOError when there is nothing yet; ``close(fd)`` closes. A
    ``receive_some`` that finds data costs one system call. ``pollable`` is false for a file that is always ready, which
    the system's poller refuses.
    """

    __slots__ = ("_busy", "_close", "_drained", "_ends", "_fd", "_pause", "_pollable", "_read", "_skips")

    def __init__(
        self,
        fd: int,
        read: Callable[[int, int], bytes] = os.read,
        *,
        close: Callable[[int], None] = os.close,
        pollable: bool = True,
    ) -> None:
        self._fd = fd
        self._read = read
        self._close = close
        self._pollable = pollable
        self._busy = False
        self._drained = False
        self._ends = False
        # How many reads to come wait for the descriptor without an attempt before, and how many did after the last
        # attempt that found nothing.
        self._skips = self._pause = 0

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for bytes; ``b""`` is the end."""
        size = checked_size(max_bytes)
        if self._busy:
            raise trio.BusyResourceError("another task is receiving on this stream")
        self._busy = True
        try:
            data = None
            # A closed descriptor cannot be waited for; the attempt to read raises the right error.
            if not self._drained or self._fd == -1:
                await trio.lowlevel.checkpoint_if_cancelled()
                data = self._try_read(size)
                if data is not None:
                    # Shielded, since a cancellation here would lose what was read.
                    await trio.lowlevel.cancel_shielded_checkpoint()
            elif self._skips:
                self._skips -= 1
            else:
                # Under load the next input has often come after one turn of the loop, and an attempt costs less than
                # waiting for the descriptor. Each attempt that finds nothing doubles the pause to the next one.
                await trio.lowlevel.checkpoint()
                data = self._try_read(size)
                self._pause = 0 if data is not None else min(2 * self._pause + 1, LONGEST_PAUSE)
                self._skips = self._pause
            while data is None:
                if self._ends:
                    await trio.lowlevel.checkpoint()
                    return b""
                try:
                    await trio.lowlevel.wait_readable(self._fd)
                except trio.ClosedResourceError:
                    # ``end_when_empty`` ends the wait in the same way as ``close``.
                    if not self._ends:
                        raise
                data = self._try_read(size)
            # After a read that was not filled, there is most often nothing more: wait before the next one.
            self._drained = self._pollable and len(data) < size and not self._ends
        finally:
            self._busy = False
        return data

    def close(self) -> None:
        """Close immediately."""
        self._fd = _close(self._fd, self._close)

    def hand_over(self) -> PollReader:
        """Close this reader, which must have the default ``read``, and return another of the same descriptor."""
        # No second descriptor: at the limit of open files it could not be had, and the child would never be closed.
        fd, self._fd = self._fd, -1
        with contextlib.suppress(RuntimeError):  # outside a run, where no task waits
            trio.lowlevel.notify_closing(fd)
        return PollReader(fd, pollable=self._pollable)

    def end_when_empty(self) -> None:
        """End the input once it is empty: no writer is left that is worth waiting for."""
        self._ends, self._drained = True, False
        if self._fd != -1:
            trio.lowlevel.notify_closing(self._fd)

    def _try_read(self, size: int) -> bytes | None:
        try:
            return self._read(self._fd, size)
        except BlockingIOError:
            return None
        except OSError as exc:
            raise _as_trio_error(exc, self._fd) from exc


class PollWriter:
    """Writes to a descriptor whose writes never block; the counterpart of ``PollReader``.

    ``pollable`` is false for a file that is always ready, which the system's poller refuses. ``shut_down(fd)`` ends the
    output where closing this copy of the descriptor does not.
    """

    __slots__ = ("_close", "_fd", "_pollable", "_shut_down", "_write", "ends_for_peer")

    def __init__(
        self,
        fd: int,
        write: Callable[[int, Any], int] = os.write,
        *,
        shut_down: Callable[[int], None] | None = None,
        close: Callable[[int], None] = os.close,
        pollable: bool = True,
        ends_for_peer: bool = True,
    ) -> None:
        self._fd = fd
        self._write = write
        self._shut_down = shut_down
        self._close = close
        self._pollable = pollable
        self.ends_for_peer = ends_for_peer

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of ``data``: first without waiting, then whenever the descriptor is writable."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._fd == -1:
            raise trio.ClosedResourceError("the stream is closed")
        sent = self.send_nowait(data)
        if sent == len(data):
            # Shielded, since all of it is written: a cancellation here would tell the caller otherwise.
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        with memoryview(data) as view:
            while sent < len(view):
                # Also a file takes a part of a write only, when its disk becomes full: the next write says so.
                await self._wait_for_room()
                sent += self.send_nowait(view[sent:])

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        """Write what finds room without waiting."""
        try:
            return self._write(self._fd, data)
        except BlockingIOError:
            return 0
        except OSError as exc:
            raise _as_trio_error(exc, self._fd) from exc

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the descriptor is writable."""
        if self._fd == -1:
            raise trio.ClosedResourceError("the stream is closed")
        await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        if self._pollable:
            await trio.lowlevel.wait_writable(self._fd)
        else:
            await trio.lowlevel.checkpoint()

    def send_eof(self) -> None:
        """End the output, and close."""
        if self._fd != -1 and self._shut_down is not None:
            # Refused if the peer is gone already.
            with contextlib.suppress(OSError):
                self._shut_down(self._fd)
        self.close()

    def close(self) -> None:
        """Close immediately."""
        self._fd = _close(self._fd, self._close)


def checked_size(max_bytes: int | None) -> int:
    """Return how many bytes ``receive_some(max_bytes)`` may read. Raises ValueError below 1."""
    if max_bytes is None:
        return RECEIVE_SIZE
    if max_bytes < 1:
        raise ValueError(f"max_bytes must be at least 1, not {max_bytes!r:.60}")
    return max_bytes


def _close(fd: int, close: Callable[[int], None]) -> int:
    """Close a descriptor that tasks may be waiting for, unless it is closed. Returns -1, the mark of a closed one."""
    if fd != -1:
        # Before the close: the waiting tasks would sleep on, or wake up for another file that gets the same number.
        # Outside a run, where the call raises, no task waits.
        with contextlib.suppress(RuntimeError):
            trio.lowlevel.notify_closing(fd)
        close(fd)
    return -1


def _as_trio_error(exc: OSError, fd: int) -> trio.ClosedResourceError | trio.BrokenResourceError:
    if fd == -1 or exc.errno == errno.EBADF:
        return trio.ClosedResourceError("the stream is closed")
    return trio.BrokenResourceError(exc.strerror or str(exc))


# ------------------------------------------------------------------------------------------------------- thread streams
# Readers and writers for descriptors whose calls may block: each call runs in a thread.
# A blocked call cannot be cancelled. Closing therefore wakes the waiting task immediately, and leaves the descriptor to
# the call, which closes it when it returns. The threads are daemons, so they do not delay the exit.


class ThreadReader:
    """Reads in a thread. The read of a cancelled ``receive_some`` continues, and the next call returns its data."""

    __slots__ = ("_calls", "_read", "_rest")

    def __init__(self, fd: int, read: Callable[[int, int], bytes] = os.read) -> None:
        self._calls = _Calls(fd)
        self._read = read
        self._rest = b""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for bytes; ``b""`` is the end."""
        size = checked_size(max_bytes)
        self._calls.check()
        if self._rest:
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
            if not self._calls.outstanding:
                self._calls.start(lambda fd: self._read(fd, RECEIVE_SIZE))
            self._rest = await self._calls.settle()
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def close(self) -> None:
        """Close immediately."""
        self._calls.close()


class ThreadWriter:
    """Writes in a thread. The write of a cancelled ``send_all`` is completed before any later one."""

    __slots__ = ("_calls",)

    ends_for_peer = True

    def __init__(self, fd: int) -> None:
        self._calls = _Calls(fd)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of ``data``."""
        copy = bytes(data)
        await self.wait_send_all_might_not_block()
        if copy:
            self._calls.start(lambda fd: _write_all(fd, copy))
            await self._calls.settle()

    def send_nowait(self, data: bytes | bytearray | memoryview) -> int:
        """Write nothing and return 0, because whether a write would block is unknown."""
        self._calls.check()
        return 0

    async def wait_send_all_might_not_block(self) -> None:
        """Wait for the end of an earlier write. Raises its failure."""
        self._calls.check()
        if self._calls.outstanding:
            await self._calls.settle()
        else:
            await trio.lowlevel.checkpoint()

    def send_eof(self) -> None:
        """Close: a descriptor of unknown kind has no other end of its output."""
        self.close()

    def close(self) -> None:
        """Close immediately."""
        self._calls.close()


class _Calls:
    """Makes blocking calls on one descriptor, which it owns, one at a time."""

    __slots__ = ("_busy", "_closed", "_done", "_fd", "_result")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._busy = False
        self._closed = False
        self._done: trio.Event | None = None
        self._result: bytes | Exception = b""

    @property
    def outstanding(self) -> bool:
        """Whether a call was started whose result was not taken yet."""
        return self._done is not None

    def check(self) -> None:
        """Raise if the descriptor is closed or another task is waiting."""
        if self._closed:
            raise trio.ClosedResourceError("the stream is closed")
        if self._busy:
            raise trio.BusyResourceError("another task is using this stream")

    def start(self, call: Callable[[int], bytes]) -> None:
        """Start ``call(fd)`` in a thread."""
        token, fd = trio.lowlevel.current_trio_token(), self._fd

        def perform() -> bytes | Exception:
            try:
                return call(fd)
            except Exception as exc:  # Raised in the waiting task.
                return exc

        def deliver(outcome: Any) -> None:
            try:
                token.run_sync_soon(self._arrive, outcome.unwrap())
            except trio.RunFinishedError:
                if self._closed:
                    os.close(fd)

        trio.lowlevel.start_thread_soon(perform, deliver)
        # Only now: if the system refuses a thread, no call is outstanding.
        self._done = trio.Event()

    async def settle(self) -> bytes:
        """Wait for the outstanding call, and take its result. If cancelled, the call stays outstanding."""
        if self._done is not None:
            self._busy = True
            try:
                await self._done.wait()
            finally:
                self._busy = False
        self.check()
        result, self._result, self._done = self._result, b"", None
        if isinstance(result, OSError):
            raise trio.BrokenResourceError(result.strerror or str(result)) from result
        if isinstance(result, Exception):
            raise result
        return result

    def close(self) -> None:
        """Close the descriptor, or leave that to the call that is using it, and wake the waiting task."""
        if self._closed:
            return
        self._closed = True
        if self._done is None or self._done.is_set():
            os.close(self._fd)
        else:
            self._done.set()

    def _arrive(self, result: bytes | Exception) -> None:
        if self._closed:
            os.close(self._fd)
        elif self._done is not None:
            self._result = result
            self._done.set()


def _write_all(fd: int, data: bytes) -> bytes:
    with memoryview(data) as view:
        sent = 0
        while sent < len(view):
            sent += os.write(fd, view[sent:])
    return b""


# ---------------------------------------------------------------------------------------------------------------- child
# The interface of a child process that ``posix`` and ``windows`` both implement.


class Child(Protocol):
    """A child process of the platform."""

    pid: int
    stdin: FdWriter
    stdout: FdReader
    stderr: FdReader | None

    async def wait(self) -> int:
        """Wait for its exit, and return its status, negative for a signal."""
        ...

    def terminate(self) -> None:
        """Ask its process group to end, unless it was waited for and left no process behind."""
        ...

    def kill(self) -> None:
        """Kill its process group, under the same condition."""
        ...

    def group_left(self) -> bool:
        """Return whether a process of its group is alive, after it was waited for."""
        ...

    def take_stdout(self) -> FdReader | None:
        """Close ``stdout`` for its reader, and return a reader of the rest; ``None`` where there cannot be one."""
        ...

    def end_stdout(self) -> None:
        """End ``stdout`` once it is empty: no process of the group is alive, but another may hold it open."""
        ...


# ---------------------------------------------------------------------------------------------------------- descriptors
# Readers and writers over inherited descriptors, such as 0 and 1.

assert not TYPE_CHECKING or sys.platform != "win32"


def open_input(fd: int) -> FdReader:
    """Return a reader of ``fd``. Closing the reader does not close ``fd``, which stays the caller's."""
    file = inherited_input(fd)
    if file.access is Access.THREAD:
        return ThreadReader(file.fd, file.read)
    return PollReader(file.fd, file.read, close=file.close, pollable=file.access is Access.POLL)


def open_output(fd: int) -> FdWriter:
    """Return a writer to ``fd``, which stays the caller's.

    The other end of a pipe sees the effect of ``send_eof`` only when ``fd`` itself and its other copies are closed.
    """
    file = inherited_output(fd)
    if file.access is Access.THREAD:
        return ThreadWriter(file.fd)
    return PollWriter(
        file.fd,
        file.write,
        shut_down=file.shut_down,
        close=file.close,
        pollable=file.access is Access.POLL,
        ends_for_peer=file.ends_for_peer,
    )


# --------------------------------------------------------------------------------------------------------------- stderr
# A child's standard error, read to its end.

interruptible(StderrLines._give)  # noqa: SLF001  # it calls a function of the user


class StderrReader(StderrLines):
    """Reads one child's standard error to its end; ``source`` is ``None`` if it is not captured."""

    def __init__(self, source: FdReader | None, sink: Callable[[str], object] | None) -> None:
        super().__init__(sink)
        self.ended = trio.Event()
        """Set when reading has ended."""
        self._source = source
        if source is None:
            self.ended.set()

    async def run(self) -> None:
        """Read until the end or a cancellation; then close the source."""
        if self._source is None:
            return
        try:
            while data := await self._source.receive_some():
                self.take(data)
        except trio.BrokenResourceError:
            pass
        finally:
            self.finish()
            self._source.close()
            self.ended.set()
