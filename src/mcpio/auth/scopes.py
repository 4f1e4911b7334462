"""Scopes: reading, writing, choosing and comparing them (RFC 6749 §3.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from mcpio._checks import is_scope

__all__ = ["OFFLINE_ACCESS", "format_scopes", "included_scopes", "missing_scopes", "parse_scopes", "select_scopes"]

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
            raise ValueError(f"a scope has printable ASCII without spaces, quotation marks and backslashes: {scope!r}")
    return " ".join(ordered)


def select_scopes(
    given: frozenset[str] | None,
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
    chosen = given if given is not None else challenged or supported_by_resource
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
