"""Reports of failures that a peer can cause again and again: whole the first time, and then as lines and counts."""

from __future__ import annotations

from collections.abc import Hashable
from types import CodeType
from typing import Final, Protocol

from mcpio.app.failures import loop_hint
from mcpio.app.throttle import Throttle

__all__ = ["FaultReports", "Operator"]

_BURST: Final = 10
_PER_SECOND: Final = 0.1
"""After the first report of a kind: ten lines at once, and then one every ten seconds."""
_MOST_KINDS: Final = 1000
"""How many kinds are told apart. Beyond: all are forgotten, and each is told whole once more."""


class Operator(Protocol):
    """Who is told, and the time."""

    def now(self) -> float:
        """Return the time, in seconds."""

    def report(self, message: str, error: BaseException | None) -> None:
        """Tell the operator something, with the exception behind it."""


class FaultReports:
    """Reports failures to an operator: a client that repeats a call that fails cannot flood the log.

    The first failure of a kind is reported with its exception. Later ones are single lines, throttled, which count what
    they left out. A kind is a message, a type of exception, and the line that raised it.
    """

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        self._kinds: dict[Hashable, Throttle] = {}

    def report(
        self, operator: Operator, message: str, error: BaseException | None, kind: Hashable | None = None
    ) -> None:
        """Report a failure. ``kind`` stands for the message where that quotes the peer."""
        key = (message if kind is None else kind, type(error), _origin(error))
        throttle = self._kinds.get(key)
        if throttle is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            self._kinds[key] = Throttle(_PER_SECOND, _BURST)
            hint = None if error is None else loop_hint(error)
            operator.report(message if hint is None else f"{message}: {hint}", error)
        elif throttle.admits(operator.now()):
            count, throttle.held_back = throttle.held_back, 0
            again = message if error is None else f"{message} again: {error!r:.300}"
            operator.report(f"{again} ({count} times more before)" if count else again, None)


def _origin(error: BaseException | None) -> tuple[CodeType, int] | None:
    """Return where an exception was raised."""
    traceback = None if error is None else error.__traceback__
    if traceback is None:
        return None
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code, traceback.tb_lineno
