"""Reports of faults in connections, which can occur any number of times, and their containment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from mcpio import _drivers
from mcpio.app.reporting import FaultReports

__all__ = ["FaultLog"]


class FaultLog:
    """Writes faults to the log: the first of each kind with its traceback, later ones throttled and counted.

    So neither a client nor a lack of resources can flood the log. See ``FaultReports``.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._log = _Log(clock)
        self._reports = FaultReports()

    def report(self, message: str, error: BaseException | None) -> None:
        """Report a fault."""
        self._reports.report(self._log, message, error)

    @contextmanager
    def contained(self, message: str) -> Iterator[None]:
        """Report an exception that leaves the block, and go on after it.

        A cancellation, a ``SystemExit`` and a ``KeyboardInterrupt`` leave the block, also from within a group.
        """
        try:
            yield
        except* Exception as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
                error = error.exceptions[0]
            self.report(message, error)


@attrs.frozen
class _Log:
    """The operator, by a clock."""

    now: Callable[[], float]

    def report(self, message: str, error: BaseException | None) -> None:
        """Write to the log."""
        _drivers.report(message, error)
