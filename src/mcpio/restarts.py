"""The restart policy for child processes and connections, and the machine that applies it.

Neither has a clock or a source of randomness (P5): the driver passes the time, and waits.
"""

from __future__ import annotations

from collections import deque

import attrs

from mcpio._checks import of_kind
from mcpio.backoff import Backoff, count, number
from mcpio.errors import ConnectFailed, ConnectionLost, McpError

__all__ = ["RestartPolicy", "Restarts"]


@attrs.frozen(kw_only=True)
class RestartPolicy:
    """When to restart, and when to give up. Times are in seconds. Raises ValueError for invalid values.

    By default it restarts five times in a row, 0.1, 0.2, 0.4, 0.8 and 1.6 s after the previous end.
    """

    backoff: Backoff = attrs.field(default=Backoff(tries=5), validator=of_kind(Backoff))
    """How long to wait before each restart, and how many to try in a row. Lost connections, and failures to connect or
    to start, are always retried, regardless of ``also``."""
    settled_after: float | None = attrs.field(default=None, validator=attrs.validators.optional(number(0)))
    """Seconds after which a run counts as a success and resets the backoff. ``None`` for ``backoff.cap``."""
    most: int | None = attrs.field(default=None, validator=attrs.validators.optional(count))
    """Give up after more than that many ends ``within`` the time, regardless of the length of each run; ``None`` for no
    limit."""
    within: float = attrs.field(default=60.0, validator=number(0))
    """The period for ``most``, in seconds."""

    @classmethod
    def of(cls, policy: Backoff | RestartPolicy) -> RestartPolicy:
        """Return a policy, made of a ``Backoff`` if it is one. Raises TypeError for anything else."""
        if isinstance(policy, RestartPolicy):
            return policy
        if isinstance(policy, Backoff):
            return cls(backoff=policy)
        raise TypeError(f"a policy must be a Backoff or a RestartPolicy, not {policy!r:.100}")


class Restarts:
    """Counts starts and ends, and computes when to restart.

    Call ``began`` when a run works, and ``ended`` when it has ended or could not start. Then restart at
    ``next_deadline``, unless ``is_over``.
    """

    __slots__ = ("_deadline", "_ends", "_error", "_failures", "_is_over", "_policy", "_since")

    def __init__(self, policy: Backoff | RestartPolicy) -> None:
        chosen = RestartPolicy.of(policy)
        backoff = attrs.evolve(chosen.backoff, also=(*chosen.backoff.also, ConnectFailed, ConnectionLost))
        self._policy = attrs.evolve(chosen, backoff=backoff)
        self._since: float | None = None
        self._deadline: float | None = None
        self._failures = 0
        self._ends: deque[float] = deque()
        self._error: McpError | None = None
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether the policy gave up."""
        return self._is_over

    @property
    def error(self) -> McpError | None:
        """The error of the last end; ``None`` before the first."""
        return self._error

    def next_deadline(self) -> float | None:
        """Return when to restart, on the caller's clock; ``None`` during a run, and after giving up."""
        return self._deadline

    def began(self, now: float) -> None:
        """Record that a run works."""
        self._since, self._deadline = now, None

    def ended(self, error: McpError, now: float, *, chance: float = 0.0) -> None:
        """Record that a run has ended, or could not start.

        ``chance`` is a random number from 0 up to 1, drawn by the caller for ``Backoff.jitter``. Does nothing after
        giving up.
        """
        if self._is_over:
            return
        policy, since = self._policy, self._since
        self._error, self._since, self._deadline = error, None, None
        settled = policy.backoff.cap if policy.settled_after is None else policy.settled_after
        if since is not None and now - since >= settled:
            self._failures = 0
        delay = policy.backoff.next_delay(self._failures, error, chance=chance)
        if delay is None or self._are_too_many(now):
            self._is_over = True
            return
        self._failures += 1
        self._deadline = now + delay

    def _are_too_many(self, now: float) -> bool:
        """Record an end; return whether there were more than ``most`` in the period up to now."""
        most, ends = self._policy.most, self._ends
        if most is None:
            return False
        while ends and ends[0] < now - self._policy.within:
            ends.popleft()
        ends.append(now)
        return len(ends) > most
