"""The file of a Unix socket: made, replaced where it is stale, and removed."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

__all__ = ["BACKLOG", "bound_unix"]

BACKLOG: Final = 1024
"""How many connections the system keeps waiting to be accepted."""

LOCK_AGAIN: Final = 0.01
"""Seconds between two attempts to lock a directory in which another server is starting."""

LOCK_TIMEOUT: Final = 2.0
"""Seconds after which the owner of the lock cannot be a server that is starting."""

Sleep = Callable[[float], Awaitable[None]]


@asynccontextmanager
async def bound_unix(path: str | os.PathLike[str], mode: int, sleep: Sleep) -> AsyncIterator[socket.socket]:
    """Yield a listening socket, in non-blocking mode; then remove its file, unless another took its place.

    A stale socket file is replaced. ``mode`` are the file's permissions, from the moment when clients can connect.
    Raises OSError with ``EADDRINUSE`` if another server listens on it, or ``EEXIST`` if the file is not a socket.
    """
    place = os.fspath(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.setblocking(False)
        async with _locked(os.path.dirname(place) or ".", sleep):
            _remove_stale(place)
            made.bind(place)
            found = _identity(place)
            try:
                # Before ``listen`` no client can connect, so none finds wider permissions.
                os.chmod(place, mode)
                made.listen(BACKLOG)
            except BaseException:
                os.unlink(place)
                raise
        try:
            yield made
        finally:
            # The socket still listens here, so no other server takes the file for a stale one.
            with suppress(OSError):
                if _identity(place) == found:
                    os.unlink(place)


@asynccontextmanager
async def _locked(directory: str, sleep: Sleep) -> AsyncIterator[None]:
    """Lock a directory while a socket's file is checked, removed and created again.

    Between the check and the removal, another server that starts might put its own file there. The lock ends with the
    process, and leaves no file. Raises OSError with ``EAGAIN`` if another process holds it for too long.
    """
    import fcntl  # It exists only where there are Unix sockets.

    held = os.open(directory, os.O_RDONLY)
    try:
        for attempt in range(1, int(LOCK_TIMEOUT / LOCK_AGAIN) + 1):
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt * LOCK_AGAIN >= LOCK_TIMEOUT:
                    raise
            await sleep(LOCK_AGAIN)
        yield
    finally:
        os.close(held)


def _remove_stale(path: str) -> None:
    """Remove a stale socket file. Raises OSError if a server listens on it, or it is not a socket."""
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise FileExistsError(errno.EEXIST, "there is a file that is not a socket", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except FileNotFoundError:
            return  # Its server has just ended.
        except BlockingIOError:
            pass  # It listens, and many clients wait.
        raise OSError(errno.EADDRINUSE, "another server listens on the socket", path)


def _identity(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino
