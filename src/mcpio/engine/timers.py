"""Deadlines by key: a heap whose outdated entries are skipped when they surface."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

__all__ = ["CLOSE_TIMER", "KEEP_ALIVE_TIMER", "STALL_TIMER", "Timers"]

# The keys of a connection's own timers. Its requests have theirs under their ids, which are positive.
CLOSE_TIMER: Final = 0
"""The end of the grace of a connection that is closing."""
KEEP_ALIVE_TIMER: Final = -1
"""The next look at how long the peer has been silent."""
STALL_TIMER: Final = -2
"""The next look at whether a peer that leaves more than ``Limits.queued_bytes`` unread has read any of it."""

_SLACK = 64
"""Outdated entries kept before the heap is rebuilt, so that a busy connection rebuilds rarely."""

K = TypeVar("K", int, tuple[int, int, int])


class Timers(Generic[K]):
    """At most one deadline for each key, in seconds on the caller's clock. Empty while none is set.

    Keys are numbers, or alike tuples of numbers, so that deadlines of the same time have an order too.
    """

    __slots__ = ("_deadlines", "_heap")

    def __init__(self) -> None:
        self._deadlines: dict[K, float] | None = None
        self._heap: list[tuple[float, K]] | None = None

    def set(self, key: K, deadline: float) -> None:
        """Set the deadline of ``key``, in place of any earlier one."""
        if self._deadlines is None or self._heap is None:
            self._deadlines, self._heap = {key: deadline}, [(deadline, key)]
            return
        self._deadlines[key] = deadline
        if len(self._heap) > 2 * len(self._deadlines) + _SLACK:
            self._heap = [(when, name) for name, when in self._deadlines.items()]
            heapify(self._heap)
        else:
            heappush(self._heap, (deadline, key))

    def clear(self, key: K) -> None:
        """Forget the deadline of ``key``, if it has one."""
        deadlines = self._deadlines
        if deadlines is not None and deadlines.pop(key, None) is not None and not deadlines:
            self._deadlines = self._heap = None

    def clear_all(self) -> None:
        """Forget all deadlines."""
        self._deadlines = self._heap = None

    def get(self, key: K) -> float | None:
        """Return the deadline of ``key``, or ``None``."""
        return None if self._deadlines is None else self._deadlines.get(key)

    def next(self) -> float | None:
        """Return the earliest deadline, or ``None``."""
        heap, deadlines = self._heap, self._deadlines
        if heap is None or deadlines is None:
            return None
        # Each deadline has an entry of its own time in the heap, so this ends at the latest at the earliest of them.
        while deadlines.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0]

    def pop_expired(self, now: float) -> list[K]:
        """Forget every deadline that is not after ``now``; return their keys, earliest first."""
        expired: list[K] = []
        while (first := self.next()) is not None and first <= now and self._heap is not None:
            key = self._heap[0][1]
            self.clear(key)
            expired.append(key)
        return expired
