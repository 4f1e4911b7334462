"""Keep-alive: when to ping a silent peer, and when to give up on it (PING-02, PING-03, PING-05)."""

from __future__ import annotations

from typing import Any

import attrs

from mcpio._checks import is_amount, is_count

__all__ = ["KEEP_ALIVE", "KeepAlive", "Silence", "as_keep_alive"]

KEEP_ALIVE = "keep-alive"
"""The cookie of the pings that a connection sends automatically."""


def _time(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    if not is_amount(value) or value == 0:
        raise ValueError(f"{field.name} is a number of seconds above 0, not {value!r:.100}")


def _count(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    if not is_count(value, 1):
        raise ValueError(f"{field.name} is an integer of 1 or more, not {value!r:.100}")


@attrs.frozen
class KeepAlive:
    """Keep-alive policy: pings for a silent peer. Times are in seconds.

    Any input from the peer shows that it is alive, so a busy connection sends no pings. Raises ValueError for a time
    that is not above 0 and finite, and for a count below 1.
    """

    interval: float = attrs.field(validator=_time)
    """How long a silence lasts before a ping is sent."""
    timeout: float = attrs.field(default=10.0, validator=_time)
    """How long the peer has for the answer: more for a slow network (PING-05)."""
    failures: int = attrs.field(default=3, validator=_count)
    """How many pings in a row may stay unanswered before the connection ends as ``CloseReason.UNRESPONSIVE``."""


class Silence:
    """Measures the silence of one peer against a policy."""

    __slots__ = ("_pinged_at", "_pings", "policy")

    policy: KeepAlive

    def __init__(self, policy: KeepAlive) -> None:
        self.policy = policy
        self._pings = 0  # in a row, with no input since
        self._pinged_at = 0.0

    def restart(self) -> None:
        """Count from zero: a session begins."""
        self._pings = 0

    def waits_until(self, received_at: float, now: float) -> float | None:
        """Return when to look again if the peer has been heard recently, ``None`` if it has been silent too long."""
        if received_at > self._pinged_at:
            self._pings = 0
        due = received_at + self.policy.interval
        # Once a ping is out, only input ends the silence: the next look is a verdict on that ping.
        return due if not self._pings and due > now else None

    @property
    def is_unresponsive(self) -> bool:
        """Whether too many pings were not answered, so that the connection must end."""
        return self._pings >= self.policy.failures

    def pinged(self, now: float) -> float:
        """Record a ping; return when its answer is overdue."""
        self._pings += 1
        self._pinged_at = now
        return now + self.policy.timeout


def as_keep_alive(value: Any) -> KeepAlive | None:
    """Return the policy of an option: a ``KeepAlive``, an interval in seconds, or ``None``."""
    return value if value is None or isinstance(value, KeepAlive) else KeepAlive(value)
