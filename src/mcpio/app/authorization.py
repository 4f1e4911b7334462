"""Scopes of tools, resources, prompts and methods: checked before a handler runs (AUTH-34)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

from mcpio.app.awaitables import check_nothing_waits, check_parameters
from mcpio.app.contracts import HandlerScope
from mcpio.auth.grant import Grant
from mcpio.auth.scopes import format_scopes
from mcpio.errors import InsufficientScope

__all__ = ["ScopeRules", "Scopes", "checked_scopes", "grant_of", "hidden_in", "require_scopes"]

Scopes: TypeAlias = "str | Iterable[str] | Callable[[Any], Iterable[str]]"
"""One scope, several, or a plain function that takes the typed request and returns several."""


def checked_scopes(scopes: Any) -> frozenset[str] | Callable[[Any], Iterable[str]]:
    """Return scopes as a set, or the function that returns them.

    Raises ValueError for a malformed scope, and TypeError for anything else.
    """
    if callable(scopes):
        check_parameters(scopes, "scopes=", "(request)", 1)
        function: Callable[[Any], Iterable[str]] = scopes
        return function
    found: tuple[Any, ...] = (scopes,)
    if isinstance(scopes, Iterable) and not isinstance(scopes, str):
        found = tuple(scopes)
    if not all(isinstance(each, str) for each in found):
        raise TypeError(f"scopes= takes scopes as text, not {scopes!r:.100}")
    format_scopes(found)
    return frozenset(found)


def grant_of(principal: Any) -> Grant | None:
    """Return the grant of a principal, ``None`` for one that comes from no token."""
    return principal if isinstance(principal, Grant) else None


def require_scopes(principal: Any, scopes: frozenset[str]) -> None:
    """Raise InsufficientScope unless a principal is a grant with all of these scopes."""
    grant = grant_of(principal)
    if scopes and (grant is None or not scopes <= grant.scopes):
        raise InsufficientScope(scopes)


class _Scoped(Protocol):
    """The server, as far as its rules need it."""

    @property
    def tools(self) -> Any:
        """The tools."""

    @property
    def resources(self) -> Any:
        """The resources and templates."""

    @property
    def prompts(self) -> Any:
        """The prompts."""


class ScopeRules:
    """The scopes that requests to one server need. A request without a grant has no scopes."""

    __slots__ = ("_methods", "_server")

    def __init__(self, server: _Scoped) -> None:
        self._server = server
        self._methods: dict[str, frozenset[str] | Callable[[Any], Iterable[str]]] = {}

    def require(self, method: str, scopes: Scopes) -> None:
        """Require scopes for requests of a method, in addition to those of the tool, resource or prompt."""
        self._methods[method] = checked_scopes(scopes)

    def check(self, method: str, request: Any, principal: Any, scope: Callable[[], HandlerScope]) -> None:
        """Raise InsufficientScope, with all scopes that a request needs, unless its principal has them.

        ``scope`` makes the scope of the request. What the request may not see needs no scopes: it does not exist.
        """
        entry = self._entry(method, request)
        if entry is not None and entry.endpoint.visible is not None and not entry.endpoint.is_visible(scope()):
            return
        needed = _needed(self._methods.get(method), request)
        if entry is not None:
            needed |= _needed(entry.endpoint.scopes, request)
        require_scopes(principal, needed)

    def _entry(self, method: str, request: Any) -> Any:
        """Return the entry that a request names, ``None`` without one."""
        server = self._server
        match method:
            case "tools/call":
                return server.tools.find(request.name)
            case "prompts/get":
                return server.prompts.find(request.name)
            case "resources/read" | "resources/subscribe":
                found = server.resources.find(request.uri)
                return None if found is None else found[0]
            case "completion/complete":
                reference = request.ref
                if hasattr(reference, "uri"):
                    return server.resources.templates.find(reference.uri)
                return server.prompts.find(reference.name)
            case _:
                return None


def hidden_in(registry: Iterable[Any], scope: HandlerScope) -> frozenset[int]:
    """Return the ids of the descriptions that are not listed for a request, by ``hide=`` or ``visible=``."""
    grant = grant_of(scope.peer.principal)
    granted = frozenset[str]() if grant is None else grant.scopes
    return frozenset(
        id(entry.description)
        for entry in registry
        if (entry.endpoint.hides and not _needed(entry.endpoint.scopes, None) <= granted)
        or not entry.endpoint.is_visible(scope)
    )


def _needed(scopes: frozenset[str] | Callable[[Any], Iterable[str]] | None, request: Any) -> frozenset[str]:
    if scopes is None or isinstance(scopes, frozenset):
        return scopes or frozenset()
    found = scopes(request)
    check_nothing_waits(found)
    return frozenset((found,) if isinstance(found, str) else found)
