"""Authorizations that wait for a person: values that another process may finish."""

from __future__ import annotations

import hmac
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import attrs

from mcpio.auth.errors import AuthorizationError
from mcpio.auth.metadata import AuthorizationServerMetadata
from mcpio.auth.registration import Registration
from mcpio.auth.secret import Secret
from mcpio.auth.tokens import oauth_error

__all__ = ["LoginRequired", "PendingAuthorization"]

LOGIN_TIMEOUT: Final = 600.0
"""Seconds that a person has to log in, unless the program says otherwise."""


@attrs.frozen(kw_only=True)
class PendingAuthorization:
    """An authorization that waits for a person, with all state needed to check the answer and finish.

    It holds the code verifier: together with the callback URL it gives the tokens, so `to_text` writes secrets.
    """

    url: str = attrs.field(repr=False)
    """The URL at which the person logs in. It contains the state."""
    state: str = attrs.field(repr=False)
    """The parameter ``state``."""
    verifier: Secret
    """The code verifier of PKCE."""
    server: AuthorizationServerMetadata
    """The authorization server that was asked: the code goes to its token endpoint only, and ``iss`` must be its
    issuer (AUTH-31)."""
    client: Registration
    """The client that asks."""
    redirect_uri: str
    """The redirect URI."""
    resource: str
    scopes: frozenset[str]
    """The scopes that were requested."""
    created_at: float
    """In Unix seconds."""
    proof_key: Secret | None = None
    """The private key to which the token will be bound, as PEM."""
    lifetime: float = LOGIN_TIMEOUT
    """Seconds from then that the person has."""

    @property
    def expires_at(self) -> float:
        """Until when an answer is waited for, in Unix seconds."""
        return self.created_at + self.lifetime

    def matches(self, callback_url: str) -> bool:
        """Return whether a callback URL has the state of this authorization. Ignore it otherwise (AUTH-27)."""
        return self._matches(_parameters(callback_url))

    def code(self, callback_url: str) -> Secret:
        """Return the authorization code of a callback URL, after all checks.

        Raises AuthorizationError for another state, another or a missing issuer (AUTH-31), and for the error of the
        authorization server, whose text is read only after these checks.
        """
        found = _parameters(callback_url)
        if not self._matches(found):
            # RFC 6749 §10.12: the code of an attacker would log this person in to the attacker's account.
            raise AuthorizationError("the callback URL has another state: it does not belong to this authorization")
        # A plain comparison, and no normalization: RFC 9207 §2.4. It stops the mix-up attack, in which a code of one
        # authorization server is sent to the token endpoint of another.
        issuer = found.get("iss")
        if (issuer is None and self.server.iss_supported) or issuer not in (None, self.server.issuer):
            raise AuthorizationError("the callback URL does not come from the authorization server that was asked")
        if "error" in found:
            raise oauth_error(found, "the answer of the authorization server")
        if not found.get("code"):
            raise AuthorizationError("the callback URL has no code")
        return Secret(found["code"])

    def _matches(self, found: dict[str, str]) -> bool:
        state = found.get("state", "").encode("utf-8", "surrogatepass")
        return hmac.compare_digest(state, self.state.encode())


class LoginRequired(AuthorizationError):
    """A person has to log in, and interaction is not allowed.

    ``url`` is where, and ``pending`` the login, which another process may finish.
    """

    def __init__(self, pending: PendingAuthorization) -> None:
        super().__init__("a person has to log in, and interaction is not allowed", url=pending.url)
        self.pending = pending


def _parameters(url: str) -> dict[str, str]:
    """Return the query of a URL, without parameters that occur twice: choosing one would be a guess."""
    try:
        pairs = parse_qsl(urlsplit(url.strip()).query, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return {}
    names = [name for name, _ in pairs]
    return {} if len(set(names)) < len(names) else dict(pairs)
