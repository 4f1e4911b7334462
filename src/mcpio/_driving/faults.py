"""Reports of faults that can occur any number of times: once in full, and then as counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from mcpio._driving import report
from mcpio.app.throttle import Throttle

__all__ = ["FaultLog"]

_PER_SECOND: Final = 1 / 60
"""How often the faults of one kind are told, after the first of them."""


class FaultLog:
    """Writes faults to the log: the first of each kind with its traceback, later ones as one line a minute at most.

    A kind is a message, a type of exception and an ``errno``. So neither a client nor a lack of resources can flood the
    log.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._throttles: dict[object, Throttle] = {}

    def report(self, message: str, error: BaseException) -> None:
        """Report a fault."""
        kind = (message, type(error), getattr(error, "errno", None))
        throttle = self._throttles.get(kind)
        if throttle is None:
            throttle = self._throttles[kind] = Throttle(_PER_SECOND, 1)
            throttle.admits(self._clock())
            report(message, error)
        elif throttle.admits(self._clock()):
            count, throttle.held_back = throttle.held_back + 1, 0
            report(f"{message}, {count} more times: {error!r:.200}", None)

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
