"""The health of a session: its requests, its traffic, and the memory held for its peer."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from mcpio.engine.connection import Connection
from mcpio.engine.ledger import Held
from mcpio.engine.table import Phase

__all__ = ["SessionHealth", "health_of"]


@attrs.frozen(kw_only=True)
class SessionHealth:
    """The state of a session at one moment. Times are in seconds, sizes in bytes."""

    phase: Phase
    """The phase of the handshake session."""
    age: float
    """Seconds since this process began to serve the session."""
    silent_for: float | None
    """Seconds since the peer last sent anything; ``None`` if it never did."""
    asked: int
    """The number of our requests that wait for an answer."""
    serving: int
    """The number of the peer's requests that wait for an answer."""
    received_bytes: int
    """Input so far: bytes on a stream, characters on a channel of text."""
    sent_bytes: int
    """Output so far, without message separators."""
    queued_bytes: int
    """Output that waits to be sent; it grows when the peer reads slowly."""
    held: Mapping[str, int]
    """Memory held for the peer, in bytes by kind: ``input``, ``bodies``, ``requests``, ``output``, ``unwritten``,
    ``own``, ``replay``, ``subscriptions``. Kinds without memory are left out."""
    dropped_logs: int
    """The number of log messages dropped because the peer did not read them."""


def health_of(connection: Connection, now: float, began: float) -> SessionHealth:
    """Return the health of a connection's session, which began at ``began``."""
    last, pending, held = connection.last_received_at, connection.pending, connection.held
    return SessionHealth(
        phase=connection.phase,
        age=now - began,
        silent_for=None if last is None else now - last,
        asked=len(pending.outgoing),
        serving=len(pending.incoming),
        received_bytes=connection.stats.received_bytes,
        sent_bytes=connection.stats.sent_bytes,
        queued_bytes=connection.stats.queued_bytes,
        held={kind: size for kind in Held.__slots__ if (size := getattr(held, kind))},
        dropped_logs=connection.stats.dropped_logs,
    )
