"""Ends of transports on Trio: streams and channels, served, opened, and held up."""

from __future__ import annotations

import types
from collections.abc import AsyncIterator, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeVar

import trio

from mcpio.app.client import Client
from mcpio.app.server import Server
from mcpio.trio._drivers import open_transport, serve
from mcpio.trio._runtime import ungrouped

T = TypeVar("T")

MOST_CANCELLATIONS: Final = 2000
"""Cancellations per second beyond which a transport is judged to ignore them; millisecond timeouts cause fewer."""


def gated(end: Any) -> Any:
    """Return an end with ``shut`` and ``open``, which hold up its reader. Raises TypeError for other objects."""
    if isinstance(end, trio.abc.HalfCloseableStream):
        return _GatedHalfCloseableStream(end)
    if isinstance(end, trio.abc.Stream):
        return _GatedStream(end)
    if isinstance(end, trio.abc.Channel):
        return _GatedChannel(end)
    raise TypeError(f"an end must be a trio.abc.Stream or a trio.abc.Channel, not {type(end).__name__}")


def opened(end: Any, *, binary: bool, options: Any) -> AbstractAsyncContextManager[Client]:
    """Return a client over an end, for a block."""
    return open_transport(end, binary=binary, **options)


@asynccontextmanager
async def served(server: Server, end: Any) -> AsyncIterator[None]:
    """Serve for a block, which ends when the server's session does."""
    with ungrouped():
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, server, end)
            yield


async def break_connection(end: Any) -> None:
    """Close an end without notice."""
    await trio.aclose_forcefully(end)


def check_half_closes(end: Any) -> None:
    """Raise TypeError for an end that cannot end its output alone."""
    if not isinstance(end, trio.abc.HalfCloseableStream):
        raise TypeError(f"ends must be of trio.abc.HalfCloseableStream if half_closes=True, not {type(end).__name__}")


class _Gate:
    """Can hold up reading, and detects ignored cancellations.

    A transport that ignores cancellation would keep every check from ending.
    """

    def __init__(self) -> None:
        self._opened = trio.Event()
        self._opened.set()
        self._cancelled, self._since = 0, 0.0

    def shut(self) -> None:
        """Stop readers."""
        self._opened = trio.Event()

    def open(self) -> None:
        """Resume readers."""
        self._opened.set()

    async def passed(self) -> None:
        """Wait until it is open. No checkpoint if it is: the caller has one."""
        if not self._opened.is_set():
            await self._opened.wait()

    @types.coroutine
    def watched(self, call: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Await a call of the transport. Raises RuntimeError if the call ignores repeated cancellation."""
        came = None
        try:
            while True:
                came = yield call.send(came)
                if isinstance(getattr(came, "error", None), trio.Cancelled):
                    self._note_cancellation()
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            call.close()

    def _note_cancellation(self) -> None:
        """Count cancellations per second; a transport's own timeouts cancel too, but rarely."""
        now = trio.current_time()
        if now - self._since > 1:
            self._cancelled, self._since = 0, now
        self._cancelled += 1
        if self._cancelled > MOST_CANCELLATIONS:
            raise RuntimeError("the transport ignores cancellation: let trio.Cancelled propagate")


class _GatedStream(_Gate, trio.abc.Stream):
    """A stream that can hold up its reader."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await self.passed()
        data: bytes = await self.watched(self.inner.receive_some(max_bytes))
        # Input that arrived while the gate was shut must wait too.
        await self.passed()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.watched(self.inner.send_all(data))

    async def wait_send_all_might_not_block(self) -> None:
        await self.inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self.inner.aclose()

    def __getattr__(self, name: str) -> Any:
        # For ``send_nowait``, if the stream has it.
        return getattr(self.inner, name)


class _GatedHalfCloseableStream(_GatedStream, trio.abc.HalfCloseableStream):
    async def send_eof(self) -> None:
        await self.inner.send_eof()


class _GatedChannel(_Gate, trio.abc.Channel[Any]):
    """A channel that can hold up its reader."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    async def receive(self) -> Any:
        await self.passed()
        message = await self.watched(self.inner.receive())
        await self.passed()
        return message

    async def send(self, value: Any) -> None:
        await self.watched(self.inner.send(value))

    async def aclose(self) -> None:
        await self.inner.aclose()
