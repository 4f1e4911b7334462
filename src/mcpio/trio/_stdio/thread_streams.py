"""Readers and writers for descriptors whose calls may block: each call runs in a thread.

A blocked call cannot be cancelled. Closing therefore wakes the waiting task immediately, and leaves the descriptor to
the call, which closes it when it returns. The threads are daemons, so they do not delay the exit.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import trio

from mcpio.trio._fd_streams import RECEIVE_SIZE, checked_size

__all__ = ["ThreadReader", "ThreadWriter"]


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
        kept = bytes(data)
        await self.wait_send_all_might_not_block()
        if kept:
            self._calls.start(lambda fd: _write_all(fd, kept))
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
