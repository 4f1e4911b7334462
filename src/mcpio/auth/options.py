"""Options that every way to be authorized shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal, TypeVar

import attrs

from mcpio._checks import of_kind, required
from mcpio.auth.errors import AuthorizationError
from mcpio.auth.scopes import format_scopes

__all__ = ["AuthorizationOptions", "mapping_of", "scopes_of"]

T = TypeVar("T")


def mapping_of(option: str, value: Mapping[str, T]) -> Mapping[str, T]:
    """Return the value of an option. Raises TypeError if it is not a mapping."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{option}= takes a mapping, not {value!r:.100}")
    return value


def scopes_of(value: Iterable[str] | None, option: str = "scopes") -> frozenset[str] | None:
    """Return scopes as a set. Raises ValueError for a scope that no request can carry.

    Raises TypeError for one text, whose characters would count as scopes, and for a scope of another type.
    """
    if isinstance(value, str):
        raise TypeError(
            f"{option}= takes a collection of scopes, such as {value.split()!r}, not the text {value!r:.100}"
        )
    if value is None:
        return None
    found = frozenset(required(option, each, str) for each in value)
    format_scopes(found)
    return found


@attrs.frozen(kw_only=True)
class AuthorizationOptions:
    """Options of every way to be authorized. All checks are strict unless one of these says otherwise."""

    extension: ClassVar[str | None] = None
    """The extension of the protocol that this way is, which clients declare in their capabilities (AUTH-42)."""
    account: str = attrs.field(default="default", validator=of_kind(str))
    """A name of the program's own, for several accounts at one server."""
    scopes: frozenset[str] | None = attrs.field(default=None, converter=scopes_of)
    """The scopes to ask for first; ``None`` to take those that the server names (AUTH-33)."""
    resource: str | None = attrs.field(default=None, validator=of_kind(str, optional=True))
    """The value of ``resource`` in requests, in place of the one in the metadata (AUTH-12)."""
    resource_match: Literal["parent", "exact"] = attrs.field(
        default="parent", validator=attrs.validators.in_(("parent", "exact"))
    )
    """Whether metadata found at the well-known URL of a parent of the server's URL is valid. ``"exact"`` is for hosts
    that are shared by servers that do not trust each other (AUTH-12)."""
    issuer: str | None = attrs.field(default=None, validator=of_kind(str, optional=True))
    """The authorization server to use, in place of the one that the protected resource names."""
    choose_issuer: Callable[[tuple[str, ...]], str] = attrs.field(default=lambda issuers: issuers[0], repr=False)
    """Chooses among several authorization servers (AUTH-13); by default, the first."""
    on_step_up: Callable[[frozenset[str]], bool] | None = attrs.field(default=None, repr=False)
    """Called with the scopes that a server asks for where a token has too few. Returns whether to ask for a token with
    them; by default that is always so, and with a false answer the call fails (AUTH-35)."""
    metadata: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    """The metadata of the authorization server, with the members of RFC 8414; then discovery is skipped."""
    dpop: Literal["auto", "require", "off"] = attrs.field(
        default="auto", validator=attrs.validators.in_(("auto", "require", "off"))
    )
    """Whether tokens are bound to a key of this client (RFC 9449, AUTH-51): where the server asks for it, always, or
    never. Bound tokens need the extra ``auth``."""
    legacy: bool = True
    """Whether a server without any metadata may be its own authorization server, as 2025-03-26 has it (AUTH-17)."""

    def choose(self, issuers: tuple[str, ...]) -> str:
        """Return what `choose_issuer` chooses. Raises AuthorizationError where it raises."""
        try:
            return self.choose_issuer(issuers)
        except Exception as error:
            raise AuthorizationError(f"choose_issuer= raised {type(error).__name__}: {error}") from error

    def may_step_up(self, scopes: frozenset[str]) -> bool:
        """Return what `on_step_up` decides. Raises AuthorizationError where it raises."""
        try:
            return self.on_step_up is None or bool(self.on_step_up(scopes))
        except Exception as error:
            raise AuthorizationError(f"on_step_up= raised {type(error).__name__}: {error}") from error
