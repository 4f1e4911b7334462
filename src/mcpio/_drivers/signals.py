"""The end of a server by SIGINT, SIGTERM or the end of its parent: soon and quietly, with exit status 130 or 143."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Final

from mcpio._drivers.event_loop import CancelScope

__all__ = ["CHILDREN", "DEFAULT_TIMEOUT", "ExitTimer", "Terminated", "ended_by_signals", "exit_status"]

if sys.platform == "win32":
    _TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGBREAK)
else:
    _TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""The signals that end a server."""

DEFAULT_TIMEOUT: Final = 0.06
"""Seconds between the signal and the forced exit. The rest of the promised 100 ms is for the system."""

CHILDREN: Final[dict[object, tuple[float, Callable[[], None]]]] = {}
"""The child processes that are not over: how many seconds the rules of shutdown give each, and what kills it.

A forced exit waits for them. They lead sessions of their own, so nothing else would end one that hangs."""

CHILDREN_MARGIN: Final = 0.5
"""Seconds that a forced exit waits for children beyond their own: for the event loop to act."""


PARENT_INTERVAL: Final = 1.0
"""Seconds between two looks at the parent."""


class Terminated(SystemExit):
    """Raised when a signal ended the block. If not caught, it ends the process with ``code``, without a traceback.

    ``signum`` is the signal. ``code`` is 128 plus its number, as in a shell: 130 for SIGINT, 143 for SIGTERM.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self.signum = signum


class ExitTimer:
    """Ends a process on the spot, some time after a signal told it to end."""

    def __init__(self, seconds: float) -> None:
        """Allow that many seconds from the signal on."""
        self._seconds = seconds
        self._until: float | None = None

    def start(self, status: int) -> None:
        """Start the time. For signal handlers: waits for no lock."""
        self._until = time.monotonic() + self._seconds
        # Not threading.Thread: its start takes a lock that the interrupted code may hold.
        _thread.start_new_thread(self._run, (status,))

    def extend(self, seconds: float) -> None:
        """Allow that many seconds from now on, if the time runs and less is left.

        A busy loop comes late to the end, and its last answers must not be cut off for that.
        """
        if self._until is not None:
            self._until = max(self._until, time.monotonic() + seconds)

    def restart(self) -> None:
        """Allow the whole time from now on: the event loop has heard of the signal."""
        self.extend(self._seconds)

    def _run(self, status: int) -> None:
        while self._until is not None and (left := self._until - time.monotonic()) > 0:
            time.sleep(left)
        now = time.monotonic()
        until = now + max([limit for limit, _ in _children()], default=0.0) + CHILDREN_MARGIN
        while CHILDREN and now < until:
            time.sleep(0.01)
            now = time.monotonic()
        _kill_children()
        os._exit(status)


@contextmanager
def ended_by_signals(
    scope: CancelScope,
    call_soon: Callable[[Callable[[], None]], object],
    timeout: ExitTimer | float | None,
    *,
    end_with_parent: bool = False,
) -> Iterator[None]:
    """Context manager that ends its block, and then the process, at the first SIGINT or SIGTERM.

    The signal cancels ``scope``, which is entered here, by way of ``call_soon``: a function that runs another in the
    loop's thread and that a signal handler may call. ``end_with_parent`` takes the end of the parent process for a
    SIGTERM. See ``mcpio.trio.terminate_on_signals`` for the rest.
    """
    timer = ExitTimer(timeout) if isinstance(timeout, int | float) else timeout
    # A program's own number counts from the signal.
    termination = _Termination(scope, call_soon, timer, restarts=isinstance(timeout, ExitTimer))
    previous = {}
    try:
        for signum in _TERMINATION_SIGNALS:
            previous[signum] = signal.signal(signum, termination.receive)
    except ValueError:
        pass  # Not the main thread.
    if end_with_parent:
        _thread.start_new_thread(termination.follow, (os.getppid(),))
    try:
        with termination.scope:
            yield
    finally:
        termination.is_over = True
        # After a signal the handlers stay, so that a second one can cut the end of the process short.
        if termination.signum is None:
            for signum, handler in previous.items():
                signal.signal(signum, handler if handler is not None else signal.SIG_DFL)
    if termination.signum is not None:
        _exit_quietly()
        if timer is not None:
            atexit.register(_exit_at_once, 128 + termination.signum)
        raise Terminated(termination.signum)


def exit_status(exc: BaseException) -> int | None:
    """Return the exit status of a ``Terminated``, or of an exception group of only these; otherwise ``None``."""
    if isinstance(exc, Terminated):
        return 128 + exc.signum
    if isinstance(exc, BaseExceptionGroup):
        statuses = [exit_status(member) for member in exc.exceptions]
        return None if None in statuses else statuses[0]
    return None


class _Termination:
    """The signal handler of one block."""

    def __init__(
        self,
        scope: CancelScope,
        call_soon: Callable[[Callable[[], None]], object],
        timer: ExitTimer | None,
        *,
        restarts: bool,
    ) -> None:
        self.scope = scope
        self.signum: int | None = None
        self.is_over = False
        self._timer = timer
        self._restarts = restarts
        self._call_soon = call_soon

    def receive(self, signum: int, frame: FrameType | None) -> None:
        """Handle a signal. Runs between any two bytecodes of the main thread, so nothing here may wait for a lock."""
        if self.signum is not None:
            # The second signal: its sender does not wait for the graceful end.
            _kill_children()
            os._exit(128 + signum)
        self.signum = signum
        if self._timer is not None:
            self._timer.start(128 + signum)
        self._call_soon(self._begin)

    def _begin(self) -> None:
        """Cancel the block, in the loop's thread."""
        if self._timer is not None and self._restarts:
            self._timer.restart()
        self.scope.cancel()

    def follow(self, parent: int) -> None:
        """Look at the parent each second, in a thread, and end with it.

        Not by ``PR_SET_PDEATHSIG``: that is tied to the thread that started this process, which may end before its
        process does, as the workers of many runtimes do.
        """
        while not self.is_over:
            if os.getppid() != parent:
                if self.signum is None:
                    self.receive(signal.SIGTERM, None)
                return
            time.sleep(PARENT_INTERVAL)


def _kill_children() -> None:
    """Kill the children that the event loop did not get to end."""
    for _, kill in _children():
        with contextlib.suppress(Exception):
            kill()


def _children() -> tuple[tuple[float, Callable[[], None]], ...]:
    return tuple(CHILDREN.values())  # in one step: the loop's thread may change it


def _exit_at_once(status: int) -> None:
    """Run the exit functions, and skip the rest of the exit: the interpreter may take long to clear its modules.

    No thread could cut that short, since none runs then. It is the first of the exit functions, so it runs the others.
    """
    atexit.unregister(_exit_at_once)
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no other name for it
    for file in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            file.flush()
    _kill_children()  # the event loop has ended without them
    os._exit(status)


def _exit_quietly() -> None:
    """Make the interpreter treat an exception group of only ``Terminated`` as it treats a bare one."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], exc: BaseException, traceback: TracebackType | None) -> None:
        status = exit_status(exc)
        if status is None:
            previous(kind, exc, traceback)
        else:
            raise SystemExit(status)  # From here, it is the interpreter's ordinary exit with a status.

    sys.excepthook = hook
