"""The interface of the shared drivers to asyncio."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Literal, Self

from mcpio._drivers.tcp_keep_alive import TCP_KEEP_ALIVE, set_tcp_keep_alive
from mcpio.asyncio._runtime import AsyncioRuntime
from mcpio.asyncio._socket_stream import SocketStream
from mcpio.asyncio._tasks import last_moment, ungrouped

__all__ = ["AsyncioEventLoop", "CancelScope", "Signal"]


class Signal(asyncio.Event):
    """A flag that one task waits for; waiting lowers it."""

    async def wait(self) -> Literal[True]:
        """Wait until the flag is up, and lower it. Other tasks have a turn, also where it is up already, as on Trio."""
        if self.is_set():
            await asyncio.sleep(0)
        await super().wait()
        self.clear()
        return True


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
    cancelled: type[BaseException] = asyncio.CancelledError

    def __init__(self) -> None:
        """Create it inside the running loop."""
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time

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

    def last_moment(self, seconds: float | None) -> AbstractAsyncContextManager[None]:
        """Return a block that an earlier cancellation does not cut off."""
        return last_moment(seconds)

    async def resolve(self, host: str, port: int) -> list[str]:
        """Ask the system in a thread."""
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for *_, address in found))

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
