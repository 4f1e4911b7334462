"""How a session is doing, for whoever looks after many of them."""

from __future__ import annotations

import attrs

from mcpio.engine.connection import Connection
from mcpio.engine.table import Phase

__all__ = ["SessionHealth", "health_of"]


@attrs.frozen(kw_only=True)
class SessionHealth:
    """One look at a session. Times are in seconds, sizes in bytes."""

    phase: Phase
    """Where the handshake session stands."""
    age: float
    """For how long this process has had it."""
    silent_for: float | None
    """For how long nothing has come from the peer; ``None`` where nothing ever did."""
    asked: int
    """How many requests of our own wait for their answers."""
    serving: int
    """How many requests of the peer's wait for theirs."""
    received_bytes: int
    """How much has come in, over a stream of bytes; over channels of text, characters."""
    sent_bytes: int
    """How much has gone out, without what separates messages."""
    queued_bytes: int
    """How much waits to go out: a peer that reads slowly shows here."""
    dropped_logs: int
    """How many log messages were left out because the peer did not read them."""


def health_of(connection: Connection, now: float, began: float) -> SessionHealth:
    """Return the health of the session of a connection; ``began`` is when the session did, on the clock of ``now``."""
    heard, pending = connection.last_received_at, connection.pending
    return SessionHealth(
        phase=connection.phase,
        age=now - began,
        silent_for=None if heard is None else now - heard,
        asked=len(pending.outgoing),
        serving=len(pending.incoming),
        received_bytes=connection.received_bytes,
        sent_bytes=connection.sent_bytes,
        queued_bytes=connection.queued_bytes,
        dropped_logs=connection.dropped_logs,
    )
