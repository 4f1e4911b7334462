"""The transport adapter over two descriptors, such as standard input and output."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from mcpio._drivers.stdio.files import Access, InputFile, OutputFile
from mcpio.engine.connection import Connection

__all__ = ["FdAdapter"]

T = TypeVar("T")

RECEIVE_SIZE: Final = 65536
"""Bytes requested by one read: the capacity of a Linux pipe."""


class FdAdapter:
    """Carries lines over an input and an output, which it owns. ``on_eof`` is called after the end of the output.

    asyncio's own pipe transports would set the descriptors to non-blocking mode, which every process that shares them
    would feel.
    """

    def __init__(self, source: InputFile, sink: OutputFile, *, on_eof: Callable[[], None]) -> None:
        """Create it inside the running loop."""
        self.unsent = self.ending = False
        self._loop = asyncio.get_running_loop()
        self._input = _Input(source, self._loop)
        self._sink = sink
        self._on_eof = on_eof
        self._rest = b""
        self._is_sending = self._is_closed = self._has_sent_eof = False
        self._has_room: asyncio.Future[None] | None = None
        self._writing: Future[None] | None = None

    async def receive(self, connection: Connection) -> None:
        """Wait for input, and feed it or the end."""
        data = await self._input.read()
        connection.receive_data(data or None, self._loop.time())

    def send_now(self, connection: Connection) -> None:
        """Write without waiting, as much as the stream accepts, so that no cancellation can split a message."""
        if self._sink.access is Access.THREAD or self._is_sending or self.unsent:
            return
        self._pull(connection)
        with suppress(OSError):  # The writer meets the same error, and reports it.
            self._try_to_write()
        connection.set_unwritten(len(self._rest))

    async def send(self, connection: Connection) -> None:
        """Write unsent output, or else about 64 KiB of the engine's output."""
        self._is_sending = True
        try:
            if not self.unsent:
                self._pull(connection)
            connection.set_unwritten(len(self._rest))
            await self._write()
            connection.set_unwritten(0)
            if self.ending:
                self._end()
            self.unsent = self.ending = False
        finally:
            self._is_sending = False

    def session_lost(self) -> None:
        """Do nothing: this adapter has only one stream."""

    async def aclose(self) -> None:
        """Close both directions."""
        self.abort()

    def abort(self) -> None:
        """Close both directions, unless they are closed."""
        if self._is_closed:
            return
        self._is_closed = True
        self._input.close()
        if self._has_room is not None:
            self._loop.remove_writer(self._sink.fd)
        if not self._has_sent_eof:
            _close_after(self._writing, self._sink)

    def _pull(self, connection: Connection) -> None:
        chunks = connection.data_to_send()
        self.ending = bool(chunks) and chunks[-1] is None
        self._rest = b"".join([chunk for chunk in chunks if chunk is not None])
        self.unsent = self.ending or bool(self._rest)

    def _try_to_write(self) -> None:
        if self._is_closed or self._has_sent_eof:
            raise BrokenPipeError("the output is closed")
        if self._rest:
            with suppress(BlockingIOError):
                self._rest = self._rest[self._sink.write(self._sink.fd, self._rest) :]
        self.unsent = self.ending or bool(self._rest)

    async def _write(self) -> None:
        if self._sink.access is Access.THREAD:
            rest, self._rest = self._rest, b""
            self._writing = _in_thread(lambda: _write_all(self._sink, rest))
            await asyncio.wrap_future(self._writing)
            return
        self._try_to_write()
        while self._rest:
            await self._wait_for_room()
            self._try_to_write()

    async def _wait_for_room(self) -> None:
        self._has_room = has_room = self._loop.create_future()
        self._loop.add_writer(self._sink.fd, _wake, has_room)
        try:
            await has_room
        finally:
            self._has_room = None
            if not self._is_closed:
                self._loop.remove_writer(self._sink.fd)

    def _end(self) -> None:
        """End the output, if the peer can see that. Further calls do nothing."""
        if self._has_sent_eof or self._is_closed:
            return
        self._has_sent_eof = True
        if self._sink.shut_down is not None:
            with suppress(OSError):  # Refused if the peer is gone already.
                self._sink.shut_down(self._sink.fd)
        self._sink.close(self._sink.fd)
        if self._sink.ends_for_peer:
            self._on_eof()


class _Input:
    """Reads from one descriptor. A cancelled read loses nothing."""

    def __init__(self, source: InputFile, loop: asyncio.AbstractEventLoop) -> None:
        self._source = source
        self._loop = loop
        self._is_watched = self._is_closed = False
        # Bytes that the loop has read, and no task has taken.
        self._arrived: bytes | OSError | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._call: Future[bytes] | None = None
        self._reading: asyncio.Future[bytes] | None = None

    async def read(self) -> bytes:
        """Wait for bytes; ``b""`` is the end. Raises OSError."""
        source = self._source
        if source.access is Access.READY:
            # The file returns at once: without a turn of the loop, no other task would run.
            await asyncio.sleep(0)
            return source.read(source.fd, RECEIVE_SIZE)
        if source.access is Access.THREAD:
            # The read of a cancelled call goes on, and the next call gets its data.
            if self._reading is None:
                self._call = _in_thread(lambda: source.read(source.fd, RECEIVE_SIZE))
                self._reading = asyncio.wrap_future(self._call)
            data = await asyncio.shield(self._reading)
            self._reading = None
            return data
        if not self._is_watched and self._arrived is None:
            self._is_watched = True
            self._loop.add_reader(source.fd, self._on_readable)
        while self._arrived is None:
            self._waiting = self._loop.create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        arrived, self._arrived = self._arrived, None
        if isinstance(arrived, OSError):
            raise arrived
        return arrived

    def close(self) -> None:
        """Close the descriptor, as soon as no call in a thread uses it."""
        self._is_closed = True
        self._stop_watching()
        if self._reading is not None:
            self._reading.cancel()
        _close_after(self._call, self._source)

    def _on_readable(self) -> None:
        """Read. The descriptor stays watched until input exceeds what a task takes, which saves two calls a message."""
        if self._arrived is not None:
            self._stop_watching()
            return
        try:
            self._arrived = self._source.read(self._source.fd, RECEIVE_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            self._arrived = error
        if not isinstance(self._arrived, bytes) or not self._arrived:
            self._stop_watching()
        if self._waiting is not None:
            _wake(self._waiting)

    def _stop_watching(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_reader(self._source.fd)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _close_after(call: Future[Any] | None, file: InputFile | OutputFile) -> None:
    """Close a descriptor when a call in a thread has ended: its number may belong to another file after that."""
    if call is None:
        file.close(file.fd)
    else:
        call.add_done_callback(lambda _: file.close(file.fd))  # at once if it has ended


def _in_thread(call: Callable[[], T]) -> Future[T]:
    """Make a blocking call in a separate daemon thread, which does not delay the exit of the process."""
    result: Future[T] = Future()

    def run() -> None:
        if not result.set_running_or_notify_cancel():
            return
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="mcpio stdio", daemon=True).start()
    return result


def _write_all(sink: OutputFile, data: bytes) -> None:
    while data:
        data = data[sink.write(sink.fd, data) :]
