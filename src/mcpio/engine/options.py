"""What a caller may choose for a connection, beyond who it is and what it can do."""

from __future__ import annotations

import attrs

from mcpio.engine.limits import Limits, Timeout, seconds
from mcpio.revisions import HANDSHAKE_REVISIONS, Era, Revision

__all__ = ["Options"]


def _handshake_only(_: object, __: object, revisions: tuple[Revision, ...]) -> None:
    if not revisions or any(revision.era is not Era.HANDSHAKE for revision in revisions):
        names = ", ".join(revision.name for revision in HANDSHAKE_REVISIONS)
        raise ValueError(f"revisions must be one or more of {names}")


@attrs.frozen(kw_only=True)
class Options:
    """Choices of one side. The defaults are the official protocol in full."""

    revisions: tuple[Revision, ...] = attrs.field(default=HANDSHAKE_REVISIONS, validator=_handshake_only)
    """The revisions to speak. A client asks for the newest; a server answers with what was asked, or its newest."""
    limits: Limits = attrs.field(default=Limits())
    """The bounds of the connection."""
    request_timeout: Timeout = attrs.field(default=Timeout())
    """For requests sent without a timeout of their own."""
    initialize_timeout: float | None = attrs.field(default=30.0, converter=seconds)
    """Seconds to wait for the answer to ``initialize``; then the connection closes (LIFE-19)."""
    custom_methods: frozenset[str] = frozenset()
    """Methods outside the protocol that this side serves: their requests arrive as ``CustomRequest``."""
    accept_batches: bool = False
    """Take a JSON array for a batch in every revision, for peers that send what only 2025-03-26 has (BATCH-02)."""
    strict_initialized: bool = False
    """For servers: refuse requests until ``notifications/initialized`` came. Some clients never send it (LIFE-12)."""

    @property
    def latest(self) -> Revision:
        """The newest of ``revisions``."""
        return max(self.revisions)
