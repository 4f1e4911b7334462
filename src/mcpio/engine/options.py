"""Options of a connection, and the policy of keep-alive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import attrs

from mcpio._checks import is_amount, is_count, items_of, of_kind, takes
from mcpio.engine.limits import Limits, Timeout, is_time, without_limit
from mcpio.revisions import REVISIONS, Era, Revision

if TYPE_CHECKING:
    from mcpio.profiles import Profile


# ----------------------------------------------------------------------------------------------------------- keep alive
# Keep-alive: when to ping a silent peer, and when to give up on it (PING-02, PING-03, PING-05).

KEEP_ALIVE = "keep-alive"
"""The cookie of the pings that a connection sends automatically."""


def _time(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    if not is_amount(value) or value == 0:
        raise ValueError(f"{field.name} must be a number of seconds above 0, not {value!r:.100}")


def _count(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    if not is_count(value, 1):
        raise ValueError(f"{field.name} must be an integer of 1 or more, not {value!r:.100}")


@attrs.frozen
class KeepAlive:
    """Keep-alive policy: pings for a silent peer. Times are in seconds.

    Revision 2026-07-28 has no pings: a client sends ``server/discover`` in their place, and a server, which sends no
    requests there, nothing.

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

    __slots__ = ("_began", "_pinged_at", "_pings", "policy")

    policy: KeepAlive

    def __init__(self, policy: KeepAlive) -> None:
        self.policy = policy
        self._pings = 0  # in a row, with no input since
        self._pinged_at = 0.0
        self._began = float("-inf")

    def begin(self, now: float) -> None:
        """Watch a new session. ``now`` is ``-inf`` if no time is known yet, as for a revision that is only adopted."""
        self._began = now
        self.restart()

    def restart(self) -> None:
        """Count the pings from zero."""
        self._pings = 0

    def waits_until(self, received_at: float, now: float) -> float | None:
        """Return when to look again if the peer has been heard recently, ``None`` if it has been silent too long."""
        if received_at > self._pinged_at:
            self._pings = 0
        if self._began == float("-inf"):
            self._began = now
        due = max(received_at, self._began) + self.policy.interval
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


# -------------------------------------------------------------------------------------------------------------- options
# Options of a connection.


def _check_revisions(_: object, __: object, revisions: tuple[Revision, ...]) -> None:
    if not revisions or any(revision not in REVISIONS for revision in revisions):
        names = ", ".join(revision.name for revision in REVISIONS)
        raise ValueError(
            f"revisions must be one or more of {names}, not {revisions!r:.100}; give REV_2025_11_25 and its like"
        )


def _era(_: object, __: object, era: Any) -> None:
    if era not in ("auto", "stateless", "handshake"):
        raise ValueError(f"era must be 'auto', 'stateless' or 'handshake', not {era!r:.60}")


@lru_cache(maxsize=64)
def _of_era(revisions: tuple[Revision, ...], era: Era) -> tuple[Revision, ...]:
    return tuple(sorted((revision for revision in revisions if revision.era is era), reverse=True))


def _as_revisions(revisions: Iterable[Revision]) -> tuple[Revision, ...]:
    return items_of("revisions", revisions)


def _as_names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(items_of("custom_methods", names))


def _as_set(profiles: Iterable[Profile]) -> frozenset[Profile]:
    return frozenset(items_of("profiles", profiles))


def _sayable(_: object, __: object, profile: Profile | None) -> None:
    if profile is not None:
        from mcpio.profiles import DIALECTS

        if not DIALECTS[profile].spoken():
            raise ValueError(f"{profile.name} can be understood, but never sent")


@attrs.frozen(kw_only=True)
class Options:
    """Options of one side of a connection. The defaults are the official protocol in full."""

    revisions: tuple[Revision, ...] = attrs.field(
        default=REVISIONS, converter=_as_revisions, validator=_check_revisions
    )
    """The revisions to speak, of either era. In the handshake a client requests the newest of that era; a server takes
    the requested one, or offers its newest. ``REV_2026_07_28`` needs no handshake."""
    era: Literal["auto", "stateless", "handshake"] = attrs.field(default="auto", validator=_era)
    """For clients: ``"auto"`` finds out whether the server needs a handshake, if ``revisions`` are of both eras; the
    others are of one era only."""
    probe_timeout: float | None = attrs.field(default=10.0, converter=without_limit, validator=is_time)
    """Seconds that ``"auto"`` waits for the answer to ``server/discover``; then it sends ``initialize``."""
    identify: bool = True
    """Whether to send the name and version of this side with each message of the stateless era that has members for
    them (ENV-02, ENV-06)."""
    limits: Limits = attrs.field(default=Limits(), validator=of_kind(Limits))
    """The bounds of the connection."""
    request_timeout: Timeout = attrs.field(default=Timeout(), validator=of_kind(Timeout))
    """The timeout of requests that are sent without one."""
    initialize_timeout: float | None = attrs.field(default=30.0, converter=without_limit, validator=is_time)
    """Seconds to wait for the answer to ``initialize``; then the connection closes (LIFE-19)."""
    keep_alive: KeepAlive | None = attrs.field(default=None, converter=as_keep_alive)
    """When to ping a silent peer, and when to close the connection because it stays silent (PING-03). A number is the
    seconds of silence before the first ping. Not for sessions of a server over HTTP, whose clients need not listen."""
    reopens: bool = False
    """For clients: whether the loss of the channel ends only the session. Its requests fail, the phase is ``NEW``
    again, and ``send_initialize`` may follow over another channel."""
    custom_methods: frozenset[str] = attrs.field(default=frozenset(), converter=_as_names)
    """Methods outside the protocol that this side serves: their requests arrive as ``CustomRequest``."""
    accept_batches: bool = False
    """Whether to accept a JSON array as a batch in every revision, although only 2025-03-26 has batches (BATCH-02)."""
    strict_initialized: bool = False
    """For servers: whether to refuse requests until ``notifications/initialized`` arrives. Some clients never send it
    (LIFE-12)."""
    join_batch_answers: bool = False
    """Whether to answer a batch with one array, once all answers are there, instead of one by one (BATCH-05).
    Transports with exchanges, such as HTTP, always do. Waiting answers count against ``Limits.queued_bytes``."""
    profiles: frozenset[Profile] = attrs.field(default=frozenset(), converter=_as_set)
    """Dialects to understand besides the official protocol. See ``mcpio.profiles``."""
    emit_profile: Profile | None = attrs.field(default=None, validator=_sayable)
    """The dialect in which to send notifications and contents; ``None`` for the official protocol."""
    on_tasks_create: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] | None = attrs.field(
        default=None, validator=takes("(params)", optional=True)
    )
    """For servers with ``Profile.ERLMCP``: converts the params of ``tasks/create`` into those of an equivalent
    ``tools/call``, or returns ``None`` to refuse it. A plain function that depends only on its argument."""

    def with_erlmcp_timeouts(self) -> Options:
        """Return a copy with the times that erlmcp documents: 5 s for a request, 30 s for the handshake (A34)."""
        return attrs.evolve(self, request_timeout=Timeout(5.0), initialize_timeout=30.0)

    @property
    def handshake_revisions(self) -> tuple[Revision, ...]:
        """The ``revisions`` of the handshake era, newest first."""
        return _of_era(self.revisions, Era.HANDSHAKE)

    @property
    def stateless_revisions(self) -> tuple[Revision, ...]:
        """The ``revisions`` of the stateless era, newest first."""
        return _of_era(self.revisions, Era.STATELESS)

    @property
    def latest(self) -> Revision:
        """The newest of ``handshake_revisions``, or of ``revisions`` without one."""
        return (self.handshake_revisions or self.stateless_revisions)[0]
