"""A log of connection faults, throttled by kind, and the containment of such faults."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

import attrs

from mcpio import _drivers
from mcpio.app.reporting import FaultReports, unwrap_group

__all__ = ["FaultLog"]


class FaultLog:
    """Logs faults: the first of each kind with its traceback, later ones throttled and counted.

    Neither a client nor a lack of resources can flood the log that way. See ``FaultReports``.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._log = _Log(clock)
        self._reports = FaultReports()

    def report(self, message: str, error: BaseException | None, kind: Hashable | None = None) -> None:
        """Report a fault. ``kind`` replaces the message as a key if the message quotes the peer."""
        self._reports.report(self._log, message, error, kind)

    @contextmanager
    def contained(self, message: str, cancellation: type[BaseException]) -> Iterator[None]:
        """Context manager that reports an exception of its block in place of raising it.

        The loop's ``cancellation``, SystemExit and KeyboardInterrupt propagate, also from within an exception group.
        """
        try:
            yield
        except BaseException as error:
            _drivers.contain(error, message, lambda text, fault: self.report(text, unwrap_group(fault)), cancellation)


@attrs.frozen
class _Log:
    """Gives ``FaultReports`` the log and a clock."""

    now: Callable[[], float]

    def report(self, message: str, error: BaseException | None) -> None:
        """Write to the log."""
        _drivers.report(message, error)
