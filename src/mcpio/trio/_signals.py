"""The end of a server on Trio by SIGINT or SIGTERM."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import trio

from mcpio._drivers.signals import DEFAULT_TIMEOUT, Terminated, ended_by_signals, exit_status

__all__ = ["Terminated", "run_until_signalled", "terminate_on_signals"]

T = TypeVar("T")


def terminate_on_signals(
    *, timeout: float | None = DEFAULT_TIMEOUT, end_with_parent: bool = False
) -> AbstractContextManager[None]:
    """Context manager that ends its block, and then the process, at the first SIGINT or SIGTERM. For a Trio run.

    The signal cancels the block. When that is unwound, ``Terminated`` is raised, which ends the process with the right
    status, also from within nurseries (an exception group of ``Terminated`` only is not printed). If the body fails
    while it is cancelled, its own exception propagates instead.

    ``timeout`` is how many seconds the process may live after the signal; then it is ended on the spot, whatever still
    runs: a handler that computes or sleeps without awaiting, a thread that an exit would wait for, or slow clean-up.
    Only C code that keeps the interpreter lock can delay that. Exit functions run within that time. ``None`` sets no
    limit. A second signal ends the process immediately. Child processes that ``open_stdio`` and ``start_process``
    started are waited for, by the rules of their shutdown, and killed if they are left at the end.

    ``end_with_parent`` also takes the end of the parent process for a SIGTERM, within about a second. For a server on
    standard input whose client was killed: it sees no end of its input as long as another process holds the pipe open.
    It has no effect on Windows.

    Signal handlers belong to the main thread; in another thread the block has no effect. SIGINT counts even if the
    process was started to ignore it, as a background job of a shell is. The end of the block restores the previous
    handlers, unless a signal ended it.
    """
    return ended_by_signals(
        trio.CancelScope(),
        trio.lowlevel.current_trio_token().run_sync_soon,
        timeout,
        end_with_parent=end_with_parent,
    )


def run_until_signalled(main: Callable[[], Awaitable[T]], *, timeout: float | None = DEFAULT_TIMEOUT) -> T:
    """Run ``main`` in a Trio run inside ``terminate_on_signals``.

    ``Terminated`` propagates unwrapped; other exceptions as from ``trio.run``.
    """

    async def guarded() -> T:
        with terminate_on_signals(timeout=timeout):
            return await main()

    try:
        return trio.run(guarded)
    except BaseExceptionGroup as group:
        status = exit_status(group)
        if status is None:
            raise
        raise Terminated(status - 128) from None
