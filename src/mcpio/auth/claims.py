"""Claims of access tokens, as JWTs and introspection answers have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeGuard

from mcpio.auth.scopes import parse_scopes
from mcpio.auth.verifiers import InvalidToken

__all__ = ["DPOP_ALGORITHMS", "confirmation_in", "fault_of_times", "is_for", "is_number", "scopes_in"]

DPOP_ALGORITHMS: Final = ("ES256", "EdDSA", "PS256", "RS256")
"""The algorithms of proofs: never an HMAC, whose key the proof itself would publish."""


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a claim is a number that a time can be."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53


def fault_of_times(claims: Mapping[str, Any], at: float, leeway: float) -> InvalidToken | None:
    """Return why a token is not valid at a time by ``exp`` and ``nbf``, if they are there, or ``None``."""
    expires, begins = claims.get("exp"), claims.get("nbf", at)
    if expires is not None and not (is_number(expires) and at < expires + leeway):
        return InvalidToken.of("exp", expires, f"a time after now, which is {at:.0f}")
    if not is_number(begins) or at < begins - leeway:
        return InvalidToken.of("nbf", begins, f"a time before now, which is {at:.0f}")
    return None


def is_for(audience: Any, wanted: str | None, *, alone: bool = False) -> bool:
    """Return whether ``aud`` names ``wanted``; with ``alone``, only that (AUTH-37)."""
    named = [audience] if isinstance(audience, str) else audience
    if wanted is None or not isinstance(named, list) or wanted not in named:
        return False
    return len(named) == 1 or not alone


def scopes_in(claims: Mapping[str, Any], names: Iterable[str]) -> frozenset[str]:
    """Return the scopes of the claims with these names: texts, or lists of texts."""
    found: set[str] = set()
    for name in names:
        value = claims.get(name)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str):
                found |= parse_scopes(each)
    return frozenset(found)


def confirmation_in(claims: Mapping[str, Any]) -> Mapping[str, str] | None:
    """Return the key that a token is bound to (RFC 7800 §3.1), ``{}`` if unbound, ``None`` if not understood."""
    bound = claims.get("cnf")
    if bound is None:
        return {}
    # To ignore an unknown method would accept a bound token from whoever stole it.
    if not isinstance(bound, Mapping) or not bound or not set(bound) <= {"x5t#S256", "jkt"}:
        return None
    return dict(bound) if all(isinstance(value, str) for value in bound.values()) else None
