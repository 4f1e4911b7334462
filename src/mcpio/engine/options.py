"""Options of a connection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import attrs

from mcpio._checks import of_kind
from mcpio.engine.keep_alive import KeepAlive, as_keep_alive
from mcpio.engine.limits import Limits, Timeout, seconds
from mcpio.revisions import REVISIONS, Era, Revision

if TYPE_CHECKING:
    from mcpio.profiles import Profile

__all__ = ["Options"]


def _known(_: object, __: object, revisions: tuple[Revision, ...]) -> None:
    if not revisions or any(revision not in REVISIONS for revision in revisions):
        names = ", ".join(revision.name for revision in REVISIONS)
        raise ValueError(f"revisions must be one or more of {names}: REV_2025_11_25 and its like")


def _era(_: object, __: object, era: Any) -> None:
    if era not in ("auto", "stateless", "handshake"):
        raise ValueError(f"era must be 'auto', 'stateless' or 'handshake', not {era!r:.60}")


@lru_cache(maxsize=64)
def _of_era(revisions: tuple[Revision, ...], era: Era) -> tuple[Revision, ...]:
    return tuple(sorted((revision for revision in revisions if revision.era is era), reverse=True))


def _as_names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(names)


def _as_set(profiles: Iterable[Profile]) -> frozenset[Profile]:
    return frozenset(profiles)


def _sayable(_: object, __: object, profile: Profile | None) -> None:
    if profile is not None:
        from mcpio.profiles import DIALECTS

        if not DIALECTS[profile].spoken():
            raise ValueError(f"{profile.name} can be understood, but never sent")


@attrs.frozen(kw_only=True)
class Options:
    """Options of one side of a connection. The defaults are the official protocol in full."""

    revisions: tuple[Revision, ...] = attrs.field(default=REVISIONS, validator=_known)
    """The revisions to speak, of either era. In the handshake a client requests the newest of that era; a server takes
    the requested one, or offers its newest. ``REV_2026_07_28`` needs no handshake."""
    era: Literal["auto", "stateless", "handshake"] = attrs.field(default="auto", validator=_era)
    """For clients: ``"auto"`` finds out whether the server needs a handshake, if ``revisions`` are of both eras; the
    others are of one era only."""
    probe_timeout: float | None = attrs.field(default=10.0, converter=seconds)
    """Seconds that ``"auto"`` waits for the answer to ``server/discover``; then it sends ``initialize``."""
    identify: bool = True
    """Whether to send the name and version of this side with each message of the stateless era that has members for
    them (ENV-02, ENV-06)."""
    limits: Limits = attrs.field(default=Limits(), validator=of_kind(Limits))
    """The bounds of the connection."""
    request_timeout: Timeout = attrs.field(default=Timeout(), validator=of_kind(Timeout))
    """The timeout of requests that are sent without one."""
    initialize_timeout: float | None = attrs.field(default=30.0, converter=seconds)
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
    on_tasks_create: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] | None = None
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
