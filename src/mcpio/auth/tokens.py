"""Tokens of a client, and the answers of a token endpoint (RFC 6749 §5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import attrs

from mcpio.auth.documents import read_document, text
from mcpio.auth.errors import AuthorizationError, quoted
from mcpio.auth.scopes import parse_scopes
from mcpio.auth.secret import Secret

__all__ = ["TokenSet", "oauth_error"]

_SKEW = 60.0
"""Seconds before the expiry at which a token is renewed, for tokens that live ten minutes or longer."""


@attrs.frozen
class TokenSet:
    """An access token with all that is needed to use and to renew it. Times are in Unix seconds."""

    access_token: Secret
    """The token that calls carry."""
    issuer: str
    """The authorization server that issued it: it is used with no other (AUTH-06, AUTH-23)."""
    resource: str
    """The resource that it is for."""
    client_id: str
    """The client that it was issued to."""
    obtained_at: float
    """When it came, in Unix seconds."""
    expires_at: float | None = None
    """When it expires; ``None`` where the server did not say. Absolute, so that it outlives a restart."""
    refresh_token: Secret | None = None
    """The token that renews it, or ``None``."""
    scopes: frozenset[str] = frozenset()
    """The scopes that were granted."""
    is_bound: bool = False
    """Whether it is sent with proofs of possession (RFC 9449)."""

    @classmethod
    def parse(
        cls,
        body: bytes,
        at: float,
        *,
        issuer: str,
        resource: str,
        client_id: str,
        scopes: frozenset[str],
        refresh_token: Secret | None = None,
        has_proof: bool = False,
    ) -> Self:
        """Read the answer of a token endpoint that came at the time ``at``, in Unix seconds.

        ``scopes`` are those that were requested, which an answer without ``scope`` grants; ``refresh_token`` is kept
        by an answer without one; ``has_proof`` says that the request had a proof, so that the token may be bound.

        Raises AuthorizationError for an answer that is an error whatever its status, that
        has no usable access token, or whose ``token_type`` is not ``Bearer``, or ``DPoP`` for a proof.
        """
        what = "the answer of the token endpoint"
        document = read_document(body, what)
        if "error" in document:
            raise oauth_error(document, what)
        access_token, kind = text(document, "access_token", what), text(document, "token_type", what)
        if access_token is None or not access_token.isascii() or not access_token.isprintable() or " " in access_token:
            raise AuthorizationError(f"{what} has no access token that a header field can carry")
        is_bound = has_proof and (kind or "").lower() == "dpop"
        if not is_bound and (kind or "").lower() != "bearer":
            raise AuthorizationError(f"{what} has a token of the type {quoted(str(kind))}; this client uses Bearer")
        renewing = text(document, "refresh_token", what)
        granted = text(document, "scope", what) if document.get("scope") != "" else None
        lifetime = _lifetime(document.get("expires_in"))
        return cls(
            Secret(access_token),
            issuer,
            resource,
            client_id,
            at,
            None if lifetime is None else at + lifetime,
            refresh_token if renewing is None else Secret(renewing),
            scopes if granted is None else parse_scopes(granted),
            is_bound,
        )

    def is_usable(self, at: float) -> bool:
        """Return whether the token has not expired."""
        return self.expires_at is None or at < self.expires_at

    def is_due(self, at: float) -> bool:
        """Return whether to renew the token: in its last 60 s, or the last tenth of a shorter life."""
        if self.expires_at is None:
            return False
        return at >= self.expires_at - min(_SKEW, 0.1 * (self.expires_at - self.obtained_at))


def oauth_error(document: Mapping[str, Any], what: str) -> AuthorizationError:
    """Return the error that an OAuth endpoint answered with (RFC 6749 §5.2). Its texts are quoted and cut."""
    code = document.get("error")
    code = code if isinstance(code, str) else "?"
    said = document.get("error_description")
    more = f", which it explains so: {quoted(said)}" if isinstance(said, str) and said else ""
    return AuthorizationError(f"{what} is the error {quoted(code, 60)}{more}", code=code)


def _lifetime(value: Any) -> float | None:
    """Return the seconds of ``expires_in``, or ``None`` if it is absent or invalid."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 12:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _LONGEST:
        return None
    return float(value)


_LONGEST = 100 * 365 * 86400.0
