"""The verified identity and rights behind a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from mcpio.framing.json import dumps

__all__ = ["Grant"]


@attrs.frozen
class Grant:
    """The claims of a verified token, without the token itself, which therefore cannot be passed on (AUTH-38).

    Two grants are equal if issuer, subject and client are: a session belongs to an identity, while scopes and expiry
    change with each token (SEC-04).
    """

    issuer: str | None
    """The issuer of the token; ``None`` for an API key."""
    subject: str | None
    """The user, or the client itself."""
    client_id: str | None = None
    """The client that the token was issued to."""
    scopes: frozenset[str] = attrs.field(default=frozenset(), eq=False)
    """The scopes of the token, with those that they include (``ResourceServer.hierarchy``)."""
    expires_at: float | None = attrs.field(default=None, eq=False)
    """When it expires, in Unix seconds; ``None`` for never."""
    claims: Mapping[str, Any] = attrs.field(factory=dict, eq=False, repr=False)
    """All claims, as the verifier returned them."""
    confirmation: Mapping[str, str] = attrs.field(factory=dict, eq=False, repr=False)
    """The key that the token is bound to: the members of ``cnf``, such as ``jkt`` (RFC 7800)."""

    @property
    def key(self) -> str:
        """The identity as a text, which stored sessions keep; equal grants have equal keys."""
        return dumps([self.issuer, self.subject, self.client_id]).decode()
