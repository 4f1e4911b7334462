"""What a token lets its bearer do: scopes, and the principal that a verifier found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from mcpio._checks import is_scope, items_of
from mcpio.framing.json import dumps

# --------------------------------------------------------------------------------------------------------------- scopes
# Scopes: reading, writing, choosing and comparing them (RFC 6749 §3.3).

OFFLINE_ACCESS: Final = "offline_access"
"""The scope that asks OpenID providers for a refresh token (OIDC Core §11)."""


def parse_scopes(text: str) -> frozenset[str]:
    """Parse a list of scopes that is separated by spaces, leaving out malformed ones."""
    return frozenset(scope for scope in text.split(" ") if is_scope(scope))


def format_scopes(scopes: Iterable[str]) -> str:
    """Return scopes as one text, sorted, so that the same set always gives the same bytes.

    Raises ValueError for a scope with a space, a quotation mark, a backslash or a character outside printable ASCII.
    """
    ordered = sorted(scopes)
    for scope in ordered:
        if not is_scope(scope):
            raise ValueError(
                f"a scope must be printable ASCII without spaces, quotation marks and backslashes, not {scope!r}"
            )
    return " ".join(ordered)


def select_scopes(
    configured: frozenset[str] | None,
    challenged: frozenset[str],
    supported_by_resource: frozenset[str],
    supported_by_issuer: frozenset[str],
    *,
    refreshable: bool,
) -> frozenset[str]:
    """Return the scopes of a first authorization request; an empty set means that the parameter is omitted.

    What the program gives comes first, then what the challenge names, then all that the protected resource metadata
    lists (AUTH-33). ``offline_access`` is added where the authorization server lists it, and the client uses refresh
    tokens (AUTH-40).
    """
    chosen = configured if configured is not None else challenged or supported_by_resource
    if refreshable and OFFLINE_ACCESS in supported_by_issuer:
        return chosen | {OFFLINE_ACCESS}
    return chosen


def missing_scopes(
    granted: Iterable[str], needed: Iterable[str], hierarchy: Mapping[str, Iterable[str]] | None = None
) -> frozenset[str]:
    """Return the scopes that are needed and not granted.

    ``hierarchy`` maps a scope to those that it includes, directly; what these include counts too (AUTH-36).
    """
    return frozenset(needed) - included_scopes(granted, hierarchy)


def included_scopes(granted: Iterable[str], hierarchy: Mapping[str, Iterable[str]] | None = None) -> frozenset[str]:
    """Return the granted scopes and all that they include."""
    included: set[str] = set()
    unseen = list(granted)
    while unseen:
        scope = unseen.pop()
        if scope not in included:
            included.add(scope)
            unseen.extend((hierarchy or {}).get(scope, ()))
    return frozenset(included)


# ---------------------------------------------------------------------------------------------------------------- grant
# The verified identity and rights behind a request.


def as_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """Return scopes as a set."""
    return frozenset(items_of("scopes", scopes))


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
    scopes: frozenset[str] = attrs.field(default=frozenset(), converter=as_scopes, eq=False)
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
