"""Retry policy: how long to wait before each retry, and when to give up. Pure: no clock, no randomness (A36, P5)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import attrs

from mcpio._checks import is_amount, is_count, items_of
from mcpio.errors import McpError, RequestError

__all__ = ["Backoff"]


def number(low: float, high: float = math.inf) -> Any:
    """Return a validator for finite numbers from ``low`` to ``high``."""

    def check(_: object, field: attrs.Attribute[Any], value: Any) -> None:
        if not is_amount(value, low) or value > high:
            bounds = f"of {low:g} or more" if high == math.inf else f"from {low:g} to {high:g}"
            raise ValueError(f"{field.name} must be a number {bounds}, not {value!r:.100}")

    return check


def count(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    """Validate an integer of 0 or more."""
    if not is_count(value):
        raise ValueError(f"{field.name} must be an integer of 0 or more, not {value!r:.100}")


def _classes(classes: Iterable[type[McpError]]) -> tuple[type[McpError], ...]:
    return items_of("also", classes)


@attrs.frozen
class Backoff:
    """How long to wait before each retry. Times are in seconds. Raises ValueError for invalid values.

    By default it waits 0.1, 0.2 and 0.4 s, then gives up. Pass it to a client as ``retry=``, or use it in loops such as
    one that reconnects: ``Backoff(tries=10, also=(ConnectFailed,))``.
    """

    base: float = attrs.field(default=0.1, validator=number(0))
    """The wait before the first retry."""
    factor: float = attrs.field(default=2.0, validator=number(1))
    """The factor by which each further wait is longer."""
    tries: int = attrs.field(default=3, validator=count)
    """The number of retries; the first attempt does not count."""
    cap: float = attrs.field(default=30.0, validator=number(0))
    """The longest wait. If the peer asks for a longer one, the error is final."""
    jitter: float = attrs.field(default=0.0, validator=number(0, 1), kw_only=True)
    """The random share of each wait, from 0 to 1: with 0.5 a wait takes between half of its time and all of it."""
    also: tuple[type[McpError], ...] = attrs.field(default=(), converter=_classes, kw_only=True)
    """Classes of errors to retry besides those that the peer marks as retryable, such as ConnectFailed."""

    def is_worth_it(self, error: BaseException) -> bool:
        """Return whether a retry may succeed (A37). Whether it is safe, the caller has to know (A35)."""
        return isinstance(error, self.also) or (isinstance(error, RequestError) and error.is_retryable())

    def next_delay(self, attempt: int, error: BaseException, *, chance: float = 0.0) -> float | None:
        """Return how many seconds to wait before the retry; ``None`` to give up.

        ``attempt`` counts the failures before this one, from 0. ``chance`` is a random number from 0 up to 1, drawn by
        the caller; it matters only with ``jitter``. The wait is never shorter than the peer asked for. Raises
        ValueError for numbers outside these ranges.
        """
        if attempt < 0 or not 0 <= chance < 1:
            raise ValueError(f"an attempt must be 0 or more, and chance from 0 up to 1, not {attempt!r} and {chance!r}")
        if attempt >= self.tries or not self.is_worth_it(error):
            return None
        requested = error.retry_after if isinstance(error, RequestError) else None
        if requested is not None and requested > self.cap:
            return None
        return max(self._regular(attempt) * (1 - self.jitter * chance), requested or 0.0)

    def _regular(self, attempt: int) -> float:
        try:
            return min(self.cap, self.base * self.factor**attempt)
        except OverflowError:
            return self.cap
