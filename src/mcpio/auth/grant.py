"""The verified identity and rights of whoever sent a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from mcpio.framing.json import dumps

__all__ = ["Grant"]


@attrs.frozen
class Grant:
    """What a verified token says. It holds no token, so that none can be passed on (AUTH-38).

    Two grants are equal if issuer, subject and client are: a session belongs to an identity, while scopes and expiry
    change with each token (SEC-04).
    """

    issuer: str | None
    """Who issued the token; ``None`` for an API key."""
    subject: str | None
    """For whom: a user, or the client itself."""
    client_id: str | None = None
    """Through which client."""
    scopes: frozenset[str] = attrs.field(default=frozenset(), eq=False)
    """What the token allows."""
    expires_at: float | None = attrs.field(default=None, eq=False)
    """When it expires, in Unix seconds; ``None`` for never."""
    claims: Mapping[str, Any] = attrs.field(factory=dict, eq=False, repr=False)
    """All that the token says, as its verifier gives it."""
    confirmation: Mapping[str, str] = attrs.field(factory=dict, eq=False, repr=False)
    """What the token is bound to: the members of ``cnf``, such as ``jkt`` (RFC 7800)."""

    @property
    def key(self) -> str:
        """The identity as a text, which stored sessions keep; equal grants have equal keys."""
        return dumps([self.issuer, self.subject, self.client_id]).decode()
