"""Inherited descriptors, such as 0 and 1, without harm to the processes that share them.

Non-blocking mode belongs to the open file, not to the descriptor: set it on an inherited one and every process that
shares the file (the parent, the shell, a sibling) suddenly gets ``EAGAIN``, for as long as the file is open. So no flag
of an inherited file is ever changed, not even for a while, and no kind of exit leaves one changed:

============================ =====================================================================================
descriptor                   what is done
============================ =====================================================================================
pipe (Linux)                 opened again through ``/proc/self/fd``: a separate open file over the same pipe
terminal                     opened again, through ``/proc/self/fd`` or as the terminal's device
socket                       used as it is, with ``MSG_DONTWAIT`` in every call
regular file, ``/dev/null``  used as it is: it is always ready
anything else                blocking calls in a thread
============================ =====================================================================================

On Windows everything is "anything else". That includes a pipe or terminal that cannot be opened again: for want
of ``/proc``, or because the file belongs to another user (after ``sudo -u``, say).
"""

from __future__ import annotations

import enum
import errno
import os
import socket
import stat
import sys
from collections.abc import Callable
from typing import Any

import attrs

__all__ = ["Access", "InputFile", "OutputFile", "inherited_input", "inherited_output"]


class Access(enum.Enum):
    """How to call the system for a file."""

    POLL = "poll"
    """Calls never block: they raise BlockingIOError, and the system's poller tells when to call again."""
    READY = "ready"
    """Calls never block, because such files are always readable and writable. Pollers reject them."""
    THREAD = "thread"
    """Calls may block, so they belong into a thread."""


@attrs.frozen
class InputFile:
    """The input and how to read it. The receiver owns the descriptor."""

    fd: int
    access: Access
    read: Callable[[int, int], bytes] = os.read
    """Reads from the descriptor at most that many bytes."""
    close: Callable[[int], None] = os.close


@attrs.frozen
class OutputFile:
    """The output and how to write it. The receiver owns the descriptor."""

    fd: int
    access: Access
    write: Callable[[int, Any], int] = os.write
    """Writes what finds room, and returns how many bytes that was."""
    shut_down: Callable[[int], None] | None = None
    """Ends the output where closing this copy of the descriptor does not."""
    close: Callable[[int], None] = os.close
    ends_for_peer: bool = True
    """Whether the peer can see the end of this output: true for pipes and sockets, not for terminals and files."""


def inherited_input(fd: int) -> InputFile:
    """Return how to read ``fd``. Closing the result does not close ``fd``, which stays the caller's."""
    kind = _kind(fd)
    read = _read_terminal if kind is _Kind.TERMINAL else os.read
    if kind is _Kind.FILE:
        return InputFile(os.dup(fd), Access.READY)
    if kind is _Kind.SOCKET:
        return _socket_input(fd)
    if kind in (_Kind.PIPE, _Kind.TERMINAL) and (own := _reopen(fd, os.O_RDONLY, kind)) is not None:
        return InputFile(own, Access.POLL, read)
    return InputFile(os.dup(fd), Access.THREAD, read)


def inherited_output(fd: int) -> OutputFile:
    """Return how to write to ``fd``, which stays the caller's.

    The other end of a pipe sees the end only when ``fd`` itself and its other copies are closed.
    """
    kind = _kind(fd)
    if kind is _Kind.FILE:
        return OutputFile(os.dup(fd), Access.READY, ends_for_peer=False)
    if kind is _Kind.SOCKET:
        return _socket_output(fd)
    if kind in (_Kind.PIPE, _Kind.TERMINAL) and (own := _reopen(fd, os.O_WRONLY, kind)) is not None:
        return OutputFile(own, Access.POLL, ends_for_peer=kind is _Kind.PIPE)
    return OutputFile(os.dup(fd), Access.THREAD)


class _Kind(enum.Enum):
    FILE = "file"
    """Always ready: a regular file or the null device."""
    PIPE = "pipe"
    TERMINAL = "terminal"
    SOCKET = "socket"
    OTHER = "other"


def _kind(fd: int) -> _Kind:
    if sys.platform == "win32":
        return _Kind.OTHER
    status = os.fstat(fd)
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return _Kind.FILE
    if stat.S_ISFIFO(mode):
        return _Kind.PIPE
    if stat.S_ISSOCK(mode):
        return _Kind.SOCKET if _is_plain_stream(fd) else _Kind.OTHER
    if stat.S_ISCHR(mode):
        if status.st_rdev == os.stat(os.devnull).st_rdev:
            return _Kind.FILE
        if os.isatty(fd):
            return _Kind.TERMINAL
    return _Kind.OTHER


def _reopen(fd: int, access: int, kind: _Kind) -> int | None:
    """Open the file of ``fd`` again, as a separate open file; ``None`` if that is refused."""
    # Not /dev/fd: outside Linux, opening it duplicates the descriptor, with shared flags.
    if sys.platform == "linux":
        path = f"/proc/self/fd/{fd}"
    elif kind is _Kind.TERMINAL:
        path = os.ttyname(fd)
    else:
        return None
    try:
        # Without O_NOCTTY, a session leader that has no terminal would acquire this one.
        return os.open(path, access | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None


def _read_terminal(fd: int, size: int) -> bytes:
    try:
        return os.read(fd, size)
    except OSError as exc:
        # EIO comes from a terminal that was hung up, or of which this process can never be in the foreground again.
        if exc.errno == errno.EIO:
            return b""
        raise


def _is_plain_stream(fd: int) -> bool:
    if not hasattr(socket, "MSG_DONTWAIT"):
        return False
    own = _socket(fd)
    try:
        return own.type == socket.SOCK_STREAM
    finally:
        own.close()


def _socket_input(fd: int) -> InputFile:
    own = _socket(fd)
    return InputFile(
        own.fileno(), Access.POLL, lambda _, size: own.recv(size, socket.MSG_DONTWAIT), close=lambda _: own.close()
    )


def _socket_output(fd: int) -> OutputFile:
    own = _socket(fd)
    return OutputFile(
        own.fileno(),
        Access.POLL,
        lambda _, data: own.send(data, socket.MSG_DONTWAIT),
        shut_down=lambda _: own.shutdown(socket.SHUT_WR),
        close=lambda _: own.close(),
    )


def _socket(fd: int) -> socket.socket:
    """Return a socket over a copy of ``fd``, in Python's blocking mode, with the shared flag unchanged."""
    blocking = os.get_blocking(fd)
    own = socket.socket(fileno=os.dup(fd))
    if own.gettimeout() is not None:
        # socket.setdefaulttimeout is in force: the new object came with a timeout, and set the flag.
        own.settimeout(None)
        os.set_blocking(fd, blocking)
    return own
