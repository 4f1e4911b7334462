"""The end of a server by a signal: SIGINT or SIGTERM, soon, quietly, with exit status 130 or 143."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Final, TypeVar

import trio

__all__ = ["DEFAULT_PATIENCE", "Terminated", "exit_status", "run_until_signalled", "terminate_on_signals"]

if sys.platform == "win32":
    _TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGBREAK)
else:
    _TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""The signals that end a server."""

T = TypeVar("T")

DEFAULT_PATIENCE: Final = 0.06
"""Seconds between the signal and the forced exit; the rest of the promised 100 ms is the system's."""


class Terminated(SystemExit):
    """A signal ended the block. Left uncaught, it ends the process with ``code`` and without a traceback.

    ``signum`` is the signal and ``code`` 128 plus its number, as a shell has it: 130 for SIGINT, 143 for SIGTERM.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self.signum = signum


@contextmanager
def terminate_on_signals(*, patience: float | None = DEFAULT_PATIENCE) -> Iterator[None]:
    """End the block, and then the process, at the first SIGINT or SIGTERM. To be entered in a Trio run.

    The signal cancels the block. When all in it is unwound, ``Terminated`` is raised, which ends the process with the
    right status, also from within nurseries (a group of nothing but ``Terminated`` is not printed). A body that fails
    while it is cancelled has its own exception leave instead.

    ``patience`` is how many seconds the process may live after the signal. When they are over it is ended on the spot:
    that is the end of a handler that computes or sleeps without awaiting, of a thread that nobody can cancel and that
    an exit would wait for, and of clean-up that takes longer. Only C code that keeps the interpreter lock can hold it
    up. Exit functions run, within that time. ``None`` sets no limit. A second signal ends the process at once.

    Signal handlers belong to the main thread; in another thread the block has no effect. A SIGINT that the process
    was started to ignore (as a shell's background job) counts all the same. The previous handlers come back with the
    block, unless a signal ended it.
    """
    termination = _Termination(trio.CancelScope(), patience)
    previous = {}
    try:
        for signum in _TERMINATION_SIGNALS:
            previous[signum] = signal.signal(signum, termination.receive)
    except ValueError:
        pass  # Not the main thread.
    try:
        with termination.scope:
            yield
    finally:
        if termination.signum is None:
            for signum, handler in previous.items():
                signal.signal(signum, handler if handler is not None else signal.SIG_DFL)
    if termination.signum is not None:
        _exit_quietly()
        if patience is not None:
            atexit.register(_exit_at_once, 128 + termination.signum)
        raise Terminated(termination.signum)


def run_until_signalled(main: Callable[[], Awaitable[T]], *, patience: float | None = DEFAULT_PATIENCE) -> T:
    """Run ``main`` in a Trio run of its own, ended by SIGINT or SIGTERM: ``terminate_on_signals`` around all of it.

    ``Terminated`` leaves it bare; other exceptions as ``trio.run`` has them.
    """

    async def guarded() -> T:
        with terminate_on_signals(patience=patience):
            return await main()

    try:
        return trio.run(guarded)
    except BaseExceptionGroup as group:
        status = exit_status(group)
        if status is None:
            raise
        raise Terminated(status - 128) from None


def exit_status(exc: BaseException) -> int | None:
    """Give the exit status that an exception stands for, if it is ``Terminated`` or a group of nothing else."""
    if isinstance(exc, Terminated):
        return 128 + exc.signum
    if isinstance(exc, BaseExceptionGroup):
        statuses = [exit_status(member) for member in exc.exceptions]
        return None if None in statuses else statuses[0]
    return None


class _Termination:
    """One block: whether a signal came, and what it does."""

    def __init__(self, scope: trio.CancelScope, patience: float | None) -> None:
        self.scope = scope
        self.signum: int | None = None
        self._patience = patience
        self._token = trio.lowlevel.current_trio_token()

    def receive(self, signum: int, frame: FrameType | None) -> None:
        """Handle a signal, between any two bytecodes of the main thread: nothing here waits for a lock."""
        if self.signum is not None:
            os._exit(128 + signum)
        self.signum = signum
        if self._patience is not None:
            # Not threading.Thread: its start takes a lock that the interrupted code may hold.
            _thread.start_new_thread(_exit_after, (self._patience, 128 + signum))
        self._token.run_sync_soon(self.scope.cancel)


def _exit_after(seconds: float, status: int) -> None:
    time.sleep(seconds)
    os._exit(status)


def _exit_at_once(status: int) -> None:
    """Leave out the rest of an exit, when its functions have run: the interpreter may take long to clear its modules.

    No thread can cut that short, for none runs then. Runs first among the exit functions, and so runs the others.
    """
    atexit.unregister(_exit_at_once)
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no other name for it
    for file in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            file.flush()
    os._exit(status)


def _exit_quietly() -> None:
    """Give an exception group of nothing but ``Terminated`` the meaning that the interpreter gives a bare one."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], exc: BaseException, traceback: TracebackType | None) -> None:
        status = exit_status(exc)
        if status is None:
            previous(kind, exc, traceback)
        else:
            raise SystemExit(status)  # From here, it is the interpreter's ordinary exit with a status.

    sys.excepthook = hook
