"""When to try again, and when to give up: a pure policy, without a clock and without chance of its own (A36, P5)."""

from __future__ import annotations

import math
from typing import Any

import attrs

from mcpio._checks import is_count
from mcpio.errors import McpError, RequestError

__all__ = ["Backoff"]


def number(low: float, high: float = math.inf) -> Any:
    """Return a validator for numbers from ``low`` to ``high``; infinity is none."""

    def check(_: object, field: attrs.Attribute[Any], value: Any) -> None:
        if not isinstance(value, int | float) or not low <= value <= high or value == math.inf:
            bounds = f"of {low:g} or more" if high == math.inf else f"from {low:g} to {high:g}"
            raise ValueError(f"{field.name} is a number {bounds}, not {value!r:.100}")

    return check


def count(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    """Check an integer of 0 or more, as a validator."""
    if not is_count(value):
        raise ValueError(f"{field.name} is an integer of 0 or more, not {value!r:.100}")


@attrs.frozen
class Backoff:
    """How long to wait before each further try. Times are in seconds; ``ValueError`` for what makes no sense.

    By default 0.1, 0.2 and 0.4 s, then no more. It can be given to a client as ``retry=``, and used in loops of one's
    own, such as one that connects again: ``Backoff(tries=10, also=(ConnectFailed,))``.
    """

    base: float = attrs.field(default=0.1, validator=number(0))
    """Before the first further try."""
    factor: float = attrs.field(default=2.0, validator=number(1))
    """How many times as long each next one is."""
    tries: int = attrs.field(default=3, validator=count)
    """How often to try again, the first time not counted."""
    cap: float = attrs.field(default=30.0, validator=number(0))
    """The longest wait. When the peer wants to be left alone for longer, the error stands."""
    jitter: float = attrs.field(default=0.0, validator=number(0, 1), kw_only=True)
    """Which part of each wait is left to chance, from 0 to 1: with 0.5 it takes between half of its time and all."""
    also: tuple[type[McpError], ...] = attrs.field(default=(), kw_only=True)
    """Kinds of errors that are worth another try beside the peer's retryable ones, such as ``ConnectFailed``."""

    def is_worth_it(self, error: BaseException) -> bool:
        """Tell whether another try may end better (A37). Whether it does harm is for the caller to know (A35)."""
        return isinstance(error, self.also) or (isinstance(error, RequestError) and error.is_retryable())

    def next_delay(self, attempt: int, error: BaseException, *, chance: float = 0.0) -> float | None:
        """Return how many seconds to wait before trying again; ``None`` to give up, and let the error stand.

        ``attempt`` counts the failures before this one, from 0. ``chance`` is a number from 0 up to 1 that the caller
        has drawn; it only matters with ``jitter``. The wait is never shorter than what the peer asked for.
        ``ValueError`` for numbers outside of these.
        """
        if attempt < 0 or not 0 <= chance < 1:
            raise ValueError(f"an attempt is 0 or more, and chance from 0 up to 1, not {attempt!r} and {chance!r}")
        if attempt >= self.tries or not self.is_worth_it(error):
            return None
        asked = error.retry_after if isinstance(error, RequestError) else None
        if asked is not None and asked > self.cap:
            return None
        return max(self._regular(attempt) * (1 - self.jitter * chance), asked or 0.0)

    def _regular(self, attempt: int) -> float:
        try:
            return min(self.cap, self.base * self.factor**attempt)
        except OverflowError:
            return self.cap
