"""Lines of standard input, read in a thread while a question is open."""

from __future__ import annotations

import selectors
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable

__all__ = ["LineReader", "read_line"]

_CONSOLE_POLL = 0.05
"""Seconds between two looks at the console of Windows, which cannot be waited for together with a socket."""


class LineReader:
    """Reads lines of standard input until it is closed, so that no later line is taken from the program.

    It waits until a line can be read: a thread in ``readline`` could not be stopped.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._is_reading = self._is_closed = False
        self._wake, self._woken = socket.socketpair()

    def read(self) -> str | None:
        """Return the next line, in a thread; ``""`` at the end of the input, and ``None`` once closed."""
        with self._mutex:
            if self._is_closed:
                return None
            self._is_reading = True
        try:
            return sys.stdin.readline() if self._wait() else None
        finally:
            self._end_read()

    def close(self) -> None:
        """Stop. A ``read`` in another thread returns ``None``. May be called at any time, and twice."""
        with self._mutex:
            if self._is_closed:
                return
            self._is_closed = True
            if self._is_reading:
                self._wake.send(b"x")
            else:
                self._free()

    def _end_read(self) -> None:
        with self._mutex:
            self._is_reading = False
            if self._is_closed:
                self._free()

    def _wait(self) -> bool:
        """Wait until a line can be read, and return true, or until the reader is closed."""
        try:
            stdin = sys.stdin.fileno()
        except (OSError, ValueError):
            return True  # a program has put something in its place that has no descriptor
        if sys.platform == "win32":  # pragma: no cover - tests run on Linux
            return _wait_for_console(lambda: self._is_closed)
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            try:
                selector.register(stdin, selectors.EVENT_READ)
            except PermissionError:
                return True  # a file on a disk is always ready
            ready = [key.fileobj for key, _ in selector.select()]
        return self._woken not in ready

    def _free(self) -> None:
        self._wake.close()
        self._woken.close()


async def read_line(to_thread: Callable[[Callable[[], str | None]], Awaitable[str | None]]) -> str | None:
    """Return the next line of standard input, ``""`` at its end. A cancelled call takes no line.

    ``to_thread`` runs a function in a thread, which a cancellation abandons.
    """
    reader = LineReader()
    try:
        return await to_thread(reader.read)
    finally:
        reader.close()


def _wait_for_console(is_closed: Callable[[], bool]) -> bool:  # pragma: no cover - tests run on Linux
    import msvcrt

    if not sys.stdin.isatty():
        return True
    while not is_closed():
        if msvcrt.kbhit():  # type: ignore[attr-defined, unused-ignore]  # on Windows
            return True
        time.sleep(_CONSOLE_POLL)
    return False
