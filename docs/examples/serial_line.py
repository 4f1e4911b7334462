"""A serial line, or anything else with one descriptor for both directions, as a stream."""

from __future__ import annotations

import errno
import os
import tty

import trio


class SerialLine(trio.abc.Stream):
    """For ``os.open("/dev/ttyS0", os.O_RDWR | os.O_NOCTTY)``, at the speed that is set."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        tty.setraw(descriptor)  # or the system would edit lines, and act on Ctrl-C
        os.set_blocking(descriptor, False)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for bytes."""
        while True:
            await trio.lowlevel.wait_readable(self._open())
            try:
                return os.read(self._open(), max_bytes or 65536)
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno == errno.EIO:  # The other end hung up.
                    return b""
                raise trio.BrokenResourceError(str(error)) from error

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of ``data``."""
        rest = memoryview(data)
        while rest:
            await self.wait_send_all_might_not_block()
            try:
                rest = rest[os.write(self._open(), rest) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room."""
        await trio.lowlevel.wait_writable(self._open())

    async def aclose(self) -> None:
        """Close the line, and wake the tasks that wait for it."""
        if (descriptor := self._descriptor) != -1:
            self._descriptor = -1
            trio.lowlevel.notify_closing(descriptor)
            os.close(descriptor)
        await trio.lowlevel.checkpoint()

    def _open(self) -> int:
        if self._descriptor == -1:
            raise trio.ClosedResourceError("the line is closed")
        return self._descriptor
