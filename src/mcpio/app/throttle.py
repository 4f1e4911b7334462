"""A rate with a burst: what a peer or a handler could otherwise flood somebody with passes through one of these."""

from __future__ import annotations

__all__ = ["Throttle"]


class Throttle:
    """Lets ``burst`` through at once and ``rate`` a second after that, and counts what it does not."""

    __slots__ = ("_at", "_burst", "_left", "_rate", "held_back")

    held_back: int
    """How many were not let through. Whoever tells of them sets it back to 0."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at: float | None = None
        self.held_back = 0

    def admits(self, now: float) -> bool:
        """Whether one more may pass at a time, in seconds."""
        if self._at is not None and now > self._at:
            self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return True
        self.held_back += 1
        return False

    @property
    def seconds_to_next(self) -> float:
        """How long after the last question one more would pass."""
        return max(0.0, (1 - self._left) / self._rate)
