"""Readers and writers over inherited descriptors, such as 0 and 1."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mcpio._drivers.stdio.files import Access, inherited_input, inherited_output
from mcpio.trio._fd_streams import FdReader, FdWriter, PollReader, PollWriter
from mcpio.trio._stdio.thread_streams import ThreadReader, ThreadWriter

__all__ = ["open_input", "open_output"]

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
