"""Clients as authorization servers know them."""

from __future__ import annotations

import attrs

from mcpio.auth.secret import Secret

__all__ = ["Registration"]


@attrs.frozen
class Registration:
    """A client as an authorization server knows it. It is used with that server only (AUTH-23)."""

    issuer: str
    """The authorization server."""
    client_id: str
    """The id of the client at the authorization server."""
    auth_method: str = "none"
    """How the client authenticates at the token endpoint (AUTH-24)."""
    client_secret: Secret | None = None
    """The secret of the client; ``None`` for a public one."""
    secret_expires_at: float | None = None
    """In Unix seconds; ``None`` for never."""
    redirect_uri: str | None = None
    """The URI that was registered; ``None`` where any registered one will do, or none is needed."""
    is_dynamic: bool = False
    """Whether the client registered itself, and may do so again (RFC 7591)."""
