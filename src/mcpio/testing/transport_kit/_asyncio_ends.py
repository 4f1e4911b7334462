"""Ends of transports on asyncio: readers and writers, and functions that carry messages."""

from __future__ import annotations

import asyncio
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeVar

from mcpio._drivers import report
from mcpio.app.client import Client
from mcpio.app.server import Server
from mcpio.asyncio import open_channel, open_streams, serve, serve_channel
from mcpio.asyncio._drivers import ReceiveMessage, SendMessage
from mcpio.asyncio._runtime import ungrouped

T = TypeVar("T")

PERSISTENCE: Final = 0.2
"""Seconds after which a transport that ignored a cancellation is cancelled again."""

MOST_CANCELLATIONS: Final = 5
"""Cancellations in a row after which the transport is judged to ignore them."""


def gated(end: Any) -> GatedStreams | GatedChannel:
    """Return an end with ``shut`` and ``open``, which hold up its reader. Raises TypeError for other objects."""
    match end:
        case (asyncio.StreamReader() as reader, asyncio.StreamWriter() as writer):
            return GatedStreams(reader, writer)
        case (receive, send, close) if callable(receive) and callable(send) and callable(close):
            return GatedChannel(receive, send, close)
    raise TypeError(
        "an end must be a StreamReader and a StreamWriter of asyncio, or functions receive, send and close, "
        f"not {end!r:.100}"
    )


def opened(end: Any, *, binary: bool, options: Any) -> AbstractAsyncContextManager[Client]:
    """Return a client over an end, for a block."""
    if binary:
        raise ValueError("binary= is for channels of Trio")
    if isinstance(end, GatedStreams):
        return open_streams(end.reader, end.writer, **options)
    return open_channel(end.receive, end.send, close=end.close, **options)


@asynccontextmanager
async def served(server: Server, end: Any) -> AsyncIterator[None]:
    """Serve for a block, which ends when the server's session does."""
    end = end if isinstance(end, GatedStreams | GatedChannel) else gated(end)
    if isinstance(end, GatedStreams):
        serving = serve(server, end.reader, end.writer)
    else:
        serving = serve_channel(server, end.receive, end.send, close=end.close)
    with ungrouped():
        async with asyncio.TaskGroup() as group:
            group.create_task(serving)
            yield


async def break_connection(end: Any) -> None:
    """Close an end without notice."""
    if isinstance(end[1], asyncio.StreamWriter):
        end[1].transport.abort()
    else:
        await end[2]()


def check_half_closes(end: Any) -> None:
    """Raise TypeError for an end that cannot end its output alone."""
    if not isinstance(end[1], asyncio.StreamWriter):
        raise TypeError(f"ends must be a reader and a writer if half_closes=True, not {end!r:.100}")


class _Gate:
    """Can hold up reading, and detects ignored cancellations.

    A transport that ignores cancellation would keep every check from ending.
    """

    def __init__(self) -> None:
        self._opened = asyncio.Event()
        self._opened.set()

    def shut(self) -> None:
        """Stop readers."""
        self._opened.clear()

    def open(self) -> None:
        """Resume readers."""
        self._opened.set()

    async def through(self, call: Coroutine[Any, Any, T]) -> T:
        """Await a call that reads, before and after which the gate must be open."""
        await self._opened.wait()
        value = await watched(call)
        # Input that arrived while the gate was shut must wait too.
        await self._opened.wait()
        return value


@types.coroutine
def watched(call: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await a call of the transport. A call that ignores repeated cancellation is given up, and reported."""
    steps: Any = call.__await__()
    task, cancelled, again = asyncio.current_task(), 0, None
    try:
        came = steps.send(None)
        while True:
            try:
                value = yield came
            except asyncio.CancelledError as error:
                cancelled += 1
                if cancelled > MOST_CANCELLATIONS:
                    report("the transport failed: it ignores cancellation: let asyncio.CancelledError propagate", None)
                    call.close()
                    raise
                if task is not None:
                    # asyncio cancels once. A transport that is still there after a while is asked again.
                    again = asyncio.get_running_loop().call_later(PERSISTENCE, task.cancel)
                came = steps.throw(error)
            else:
                came = steps.send(value)
    except StopIteration as end:
        returned: T = end.value
        return returned
    finally:
        if again is not None:
            again.cancel()


async def _await_call(call: Awaitable[T]) -> T:
    return await call


class _GatedReader(asyncio.StreamReader):
    """A reader that can be held up."""

    def __init__(self, inner: asyncio.StreamReader, gate: _Gate) -> None:
        self._inner = inner
        self._gate = gate

    async def read(self, n: int = -1) -> bytes:
        """Read when the gate is open."""
        return await self._gate.through(self._inner.read(n))


class GatedStreams(_Gate):
    """A reader that can be held up, and its writer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__()
        self.reader = _GatedReader(reader, self)
        self.writer = writer


class GatedChannel(_Gate):
    """A channel of functions that carry messages, whose ``receive`` can be held up."""

    def __init__(self, receive: ReceiveMessage, send: SendMessage, close: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._receive = receive
        self._send = send
        self.close = close

    async def receive(self) -> str | bytes | None:
        """Receive when the gate is open."""
        return await self.through(_await_call(self._receive()))

    async def send(self, text: str) -> None:
        """Send a message."""
        await watched(_await_call(self._send(text)))
