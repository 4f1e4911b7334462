"""What handlers, middleware and sessions agree on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict, get_args

import attrs

from mcpio._checks import called, is_amount
from mcpio.app.runtime import check_nothing_waits
from mcpio.auth.grant import Grant, format_scopes
from mcpio.engine.limits import Default
from mcpio.errors import InsufficientScope
from mcpio.methods import method_of
from mcpio.types.base import CacheScope

if TYPE_CHECKING:
    from mcpio.app.context import RequestScope
    from mcpio.engine.limits import Timeout


# ------------------------------------------------------------------------------------------------------- input required
# The result of a handler that asks its client first.


@attrs.frozen
class InputRequired:
    """A handler's result that asks the client first, and has the handler called again with ``Context.answers``.

    For handlers that know their questions beforehand; others use ``Context.elicit`` and its like. Both eras serve it.
    Raises ValueError with neither requests nor a state, and TypeError for values of other types.
    """

    requests: Mapping[str, Any] = attrs.field(factory=dict)
    """The requests by names that you choose: ``ElicitFormRequest``, ``ElicitURLRequest``, ``CreateMessageRequest`` and
    ``ListRootsRequest``."""
    state: bytes | None = None
    """Returned as ``Context.request_state`` when the handler is called again. The client can read it, unless the
    server's ``RequestStates`` encrypt."""

    def __attrs_post_init__(self) -> None:
        if not self.requests and self.state is None:
            raise ValueError("InputRequired must have requests, a state, or both")
        if self.state is not None and not isinstance(self.state, bytes):
            raise TypeError(f"state must be bytes, not {self.state!r:.60}")
        requests: Mapping[Any, Any] = self.requests
        for key, request in requests.items():
            if not isinstance(key, str) or not _is_question(request):
                raise TypeError(
                    f"requests must be a mapping from names to requests to a client, not {key!r:.60}: {request!r:.60}"
                )


def _is_question(request: Any) -> bool:
    try:
        return method_of(request.__class__).embedded
    except KeyError:
        return False


# ---------------------------------------------------------------------------------------------------------- cache hints
# Cache hints for clients of the stateless era: how long, and in which caches, a result may be kept.


def _check_ttl(_: object, __: object, ttl: Any) -> None:
    if not is_amount(ttl):
        raise ValueError(f"ttl must be a number of seconds, 0 or more, not {ttl!r:.100}")


def _check_scope(_: object, __: object, scope: Any) -> None:
    if scope not in get_args(CacheScope):
        raise ValueError(f"scope must be 'private' or 'public', not {scope!r:.100}")


@attrs.frozen
class CacheHint:
    """How long, and in which caches, clients may reuse a result (CACHE-01). By default, never.

    Notifications of changes end it early, for clients that listen. Raises ValueError for other values.
    """

    ttl: float = attrs.field(default=0.0, validator=_check_ttl)
    """How many seconds the result stays fresh."""
    scope: CacheScope = attrs.field(default="private", validator=_check_scope)
    """``"public"`` if a shared cache may serve the result to any client; ``"private"`` if not. This is not access
    control, which the server has to enforce itself (CACHE-09)."""

    @property
    def members(self) -> dict[str, Any]:
        """The members of a result that say so."""
        return {"ttl_ms": int(self.ttl * 1000), "cache_scope": self.scope}


# ------------------------------------------------------------------------------------------------------- mounted states
# The values that the lifespans of a server and of its mounted servers yielded.


@attrs.frozen
class MountedStates:
    """The state of a server, and those of the servers that are mounted in it."""

    own: Any
    mounted: Mapping[Any, Any]
    """The states by server; of those that have a lifespan."""


def own_state(state: Any) -> Any:
    """Return a server's own state, from the values that the lifespans yielded."""
    return state.own if state.__class__ is MountedStates else state


# ------------------------------------------------------------------------------------------------------------ contracts
# Contracts between the modules of the application layer: callable types, options and a protocol, no behaviour.

Handler: TypeAlias = Callable[[Any, Any], Any]
"""Takes the scope and the typed request. Returns the typed result, or an awaitable of it."""
ProgressCallback: TypeAlias = Callable[[float, float | None, str | None], None]
"""Takes progress, total and message. A plain function: its result is not awaited."""
CallNext: TypeAlias = Callable[[Any], Awaitable[Any]]
"""Passes the request, or another in its place, to the next layer, and returns its typed result."""
Middleware: TypeAlias = Callable[[Any, Any, CallNext], Awaitable[Any]]
"""An async function, or an object with an async ``__call__``. Its first argument is the ``Context`` of a request that a
server serves, the ``RequestScope`` of one that a client serves, and the ``OutgoingCall`` of one that a client sends."""


class AskOptions(TypedDict, total=False):
    """The options of every request of a handler to its client."""

    key: str | None
    """Names the request for handlers that are run again with the answers, as in the stateless era. By default the order
    of the requests names them. A handshake session ignores it: the handler itself waits for the answer."""
    timeout: Timeout | float | Default | None
    """Seconds, or a ``Timeout``; ``None`` waits without limit. People take longer than the default allows."""
    on_progress: ProgressCallback | None
    """Called with progress, total and message."""
    task: bool | float | None
    """Whether the client answers by a task (2025-11-25), so that it can report its state; the call waits for the result
    all the same. A number is the time in seconds that the client is asked to keep the task. Raises
    ``LocalProtocolError`` if the client did not declare such tasks; the roots never are one."""


class RunningTask(Protocol):
    """A task while its handler runs: ``Context.task``. Use it in the loop's thread."""

    @property
    def id(self) -> str:
        """The task's id. A peer that knows it may be able to read the result (TASK-10)."""

    @property
    def owner(self) -> str | int | None:
        """The owner of the task; ``None`` for an unauthenticated one."""

    @property
    def is_resumed(self) -> bool:
        """Whether the handler was interrupted before, by the end of its process or session, and runs again."""

    @property
    def is_over(self) -> bool:
        """Whether the task has reached its final status or expired; the handler's work no longer matters."""

    @property
    def is_leased(self) -> bool:
        """Whether no other process can have taken the task over. See ``TaskOptions.on_lapse``."""

    def say(self, message: str) -> None:
        """Set the status message. Does nothing after the task has ended."""


# -------------------------------------------------------------------------------------------------------- authorization
# Scopes of tools, resources, prompts and methods: checked before a handler runs (AUTH-34).

Scopes: TypeAlias = "str | Iterable[str] | Callable[[Any], Iterable[str]]"
"""One scope, several, or a plain function that takes the typed request and returns several."""


def checked_scopes(scopes: Any) -> frozenset[str] | Callable[[Any], Iterable[str]]:
    """Return scopes as a set, or the function that returns them.

    Raises ValueError for a malformed scope, and TypeError for anything else.
    """
    if callable(scopes):
        called("scopes", scopes, "(request)")
        function: Callable[[Any], Iterable[str]] = scopes
        return function
    values: tuple[Any, ...] = (scopes,)
    if isinstance(scopes, Iterable) and not isinstance(scopes, str):
        values = tuple(scopes)
    if not all(isinstance(each, str) for each in values):
        raise TypeError(f"scopes must be texts, not {scopes!r:.100}")
    format_scopes(values)
    return frozenset(values)


def grant_of(principal: Any) -> Grant | None:
    """Return the grant of a principal, ``None`` for one that comes from no token."""
    return principal if isinstance(principal, Grant) else None


def require_scopes(principal: Any, scopes: frozenset[str]) -> None:
    """Raise InsufficientScope unless a principal is a grant with all of these scopes."""
    grant = grant_of(principal)
    if scopes and (grant is None or not scopes <= grant.scopes):
        raise InsufficientScope(scopes)


class ScopeRules:
    """The scopes that requests to one server need. A request without a grant has no scopes."""

    __slots__ = ("_entry_of", "_methods")

    def __init__(self, entry_of: Callable[[str, Any], Any]) -> None:
        """``entry_of`` returns the entry that a request of a method names, ``None`` without one."""
        self._entry_of = entry_of
        self._methods: dict[str, frozenset[str] | Callable[[Any], Iterable[str]]] = {}

    def require(self, method: str, scopes: Scopes) -> None:
        """Require scopes for requests of a method, in addition to those of what it names."""
        self._methods[method] = checked_scopes(scopes)

    def check(self, method: str, request: Any, principal: Any, scope: Callable[[], RequestScope]) -> None:
        """Raise InsufficientScope, with all scopes that a request needs, unless its principal has them.

        ``scope`` makes the scope of the request. What the request may not see needs no scopes: it does not exist.
        """
        entry = self._entry_of(method, request)
        if entry is not None and entry.endpoint.visible is not None and not entry.endpoint.is_visible(scope()):
            return
        needed = _scopes_for(self._methods.get(method), request)
        if entry is not None:
            needed |= _scopes_for(entry.endpoint.scopes, request)
        require_scopes(principal, needed)


def hidden_in(registry: Iterable[Any], scope: RequestScope) -> frozenset[int]:
    """Return the ids of the descriptions that are not listed for a request, by ``hide=`` or ``visible=``."""
    grant = grant_of(scope.peer.principal)
    granted = frozenset[str]() if grant is None else grant.scopes
    return frozenset(
        id(entry.description)
        for entry in registry
        if (entry.endpoint.hides and not _scopes_for(entry.endpoint.scopes, None) <= granted)
        or not entry.endpoint.is_visible(scope)
    )


def _scopes_for(scopes: frozenset[str] | Callable[[Any], Iterable[str]] | None, request: Any) -> frozenset[str]:
    if scopes is None or isinstance(scopes, frozenset):
        return scopes or frozenset()
    needed_scopes = scopes(request)
    check_nothing_waits(needed_scopes)
    return frozenset((needed_scopes,) if isinstance(needed_scopes, str) else needed_scopes)
