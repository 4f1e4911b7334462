"""When to begin again what has ended, a child server or a connection, and when to give up: a policy and its machine.

Neither has a clock, or chance of its own (P5): whoever drives them says what time it is, and waits.
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
    """How fast to begin again, and when to give up. Times are in seconds; ``ValueError`` for what makes no sense.

    By default five times in a row, 0.1, 0.2, 0.4, 0.8 and 1.6 s after what came before has ended.
    """

    backoff: Backoff = attrs.field(default=Backoff(tries=5), validator=of_kind(Backoff))
    """How long to wait before each time, and how often to try in a row. Lost connections, and failures to connect or to
    start, are worth another try whatever ``also`` says."""
    settled_after: float | None = attrs.field(default=None, validator=attrs.validators.optional(number(0)))
    """What ran for so long has worked: when it ends, the backoff begins anew. ``None`` for ``backoff.cap``."""
    most: int | None = attrs.field(default=None, validator=attrs.validators.optional(count))
    """Give up when more than so many ends lie ``within`` the time, however long each ran; ``None`` for no limit."""
    within: float = attrs.field(default=60.0, validator=number(0))
    """The time that ``most`` is for."""

    @classmethod
    def of(cls, policy: Backoff | RestartPolicy) -> RestartPolicy:
        """Return a policy; a ``Backoff`` is one with nothing else said. ``TypeError`` for what is neither."""
        if isinstance(policy, RestartPolicy):
            return policy
        if isinstance(policy, Backoff):
            return cls(backoff=policy)
        raise TypeError(f"a policy is a Backoff or a RestartPolicy, not {policy!r:.100}")


class Restarts:
    """Counts beginnings and ends, and says when to begin again.

    Call ``began`` when it works, and ``ended`` when that has ended or could not begin; then begin again when
    ``next_deadline`` has come, unless ``is_over``.
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
        """Whether it is given up."""
        return self._is_over

    @property
    def error(self) -> McpError | None:
        """Why it ended last; ``None`` when it never did."""
        return self._error

    def next_deadline(self) -> float | None:
        """Return when to begin again, on the caller's clock; ``None`` while it runs, and when it is given up."""
        return self._deadline

    def began(self, now: float) -> None:
        """Take note that it works."""
        self._since, self._deadline = now, None

    def ended(self, error: McpError, now: float, *, chance: float = 0.0) -> None:
        """Take note that it has ended, or could not begin.

        ``chance`` is a number from 0 up to 1 that the caller has drawn, for ``Backoff.jitter``. After it is given up
        this does nothing.
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
        """Whether there were more ends than there may be in the time up to now."""
        most, ends = self._policy.most, self._ends
        if most is None:
            return False
        while ends and ends[0] < now - self._policy.within:
            ends.popleft()
        ends.append(now)
        return len(ends) > most
