"""Middleware that refuses: rate limits, concurrency limits and access checks, with refusal codes (TOOL-19, P6).

Each object has its own counters: one object in several servers limits all of them together. Pings do not count. A call
that becomes a task counts once for its rate; for concurrency its work counts.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import ref

from mcpio._checks import is_amount, is_count
from mcpio.app.awaitables import check_parameters, is_awaitable
from mcpio.app.reporting import Throttle
from mcpio.errors import Refusal
from mcpio.methods import check_method
from mcpio.refusals import RefusalCode
from mcpio.revisions import Era

if TYPE_CHECKING:
    from mcpio.app.contracts import CallNext, Middleware

__all__ = [
    "ConcurrencyLimit",
    "LimitKey",
    "RateLimit",
    "allow",
    "checked_methods",
    "for_all",
    "per_method",
    "per_name",
    "per_principal",
    "per_session",
]

LimitKey: TypeAlias = Callable[[Any, Any], Hashable]
"""Takes ``ctx`` and the request, and returns the key that is counted."""

MOST_KEYS: Final = 4096
"""How many keys a rate limit remembers. Beyond, further ones are refused until one has its whole burst again (P6)."""
_LONGEST_NAME: Final = 200


def for_all(ctx: Any, request: Any) -> Hashable:
    """Count all requests together."""
    return None


def per_session(ctx: Any, request: Any) -> Hashable:
    """Count each session separately, and over HTTP without one each authenticated principal.

    An anonymous client without a session is not recognized over HTTP: each of its requests is counted alone. Where
    there are such clients, use ``for_all`` or a key of your own.
    """
    peer = getattr(ctx, "peer", None)  # a client's own requests have none
    if peer is not None and peer.era is Era.STATELESS and peer.via is not None:
        # There ``ctx.session`` is that of all clients.
        client: Hashable = peer.via if peer.principal is None else peer.principal
        return client
    return ref(ctx.session)


def per_principal(ctx: Any, request: Any) -> Hashable:
    """Count each authenticated principal separately, and each session without one."""
    principal: Hashable = getattr(getattr(ctx, "peer", None), "principal", None)  # a client's own requests have none
    return per_session(ctx, request) if principal is None else principal


def per_method(ctx: Any, request: Any) -> Hashable:
    """Count each method separately."""
    method: str = ctx.method
    return method


def per_name(ctx: Any, request: Any) -> Hashable:
    """Count each tool, prompt, resource and template separately, and each method without names.

    Names that the server does not have count as one: a client that invents names must not get a new count for each.
    """
    name = getattr(request, "name", None) or getattr(request, "uri", None)
    if not isinstance(name, str):
        return ctx.method, None
    server = getattr(ctx.session, "server", None)  # of a client's own requests it is a description
    registry = getattr(server, _REGISTRIES.get(ctx.method.partition("/")[0], ""), None)
    if not registry:
        return ctx.method, name[:_LONGEST_NAME]  # a proxy's, which knows no names
    found = registry.find(name)
    # Whatever URIs a template matches, it is one.
    return ctx.method, id(found[0] if isinstance(found, tuple) else found)


class _Counted:
    """The requests that a limit counts, and their keys."""

    def __init__(self, per: LimitKey | Collection[LimitKey], methods: Collection[str] | None) -> None:
        self._keys = _checked_keys(per)
        self._methods = checked_methods(methods)

    def key(self, ctx: Any, request: Any) -> Hashable:
        return tuple(key(ctx, request) for key in self._keys)

    def counts(self, ctx: Any) -> bool:
        return _is_meant(ctx.method, self._methods)


class RateLimit(_Counted):
    """Middleware: at most ``calls`` in ``seconds``, ``burst`` of them at once.

    Beyond the rate a request is refused, with ``retry_after``: the time until the next one would pass.

    Args:
        calls: How many calls pass.
        seconds: In which time.
        burst: How many pass at once; by default ``calls``.
        per: The key that is counted: a function of this module or of your own, or several, such as
            ``(per_session, per_name)``.
        methods: The counted methods, one or several; ``None`` for all.
        code: The refusal code; by default 1057 per second, 1058 per minute, and 1056 otherwise.

    Raises:
        ValueError: A number or the code is invalid.
        TypeError: ``per`` or ``methods`` is of the wrong type.

    """

    def __init__(
        self,
        calls: float,
        seconds: float = 1.0,
        *,
        burst: int | None = None,
        per: LimitKey | Collection[LimitKey] = per_session,
        methods: Collection[str] | None = None,
        code: int | None = None,
    ) -> None:
        super().__init__(per, methods)
        if not (calls and seconds and is_amount(calls) and is_amount(seconds)):
            raise ValueError(f"a rate is more than 0 calls in more than 0 seconds, not {calls!r} in {seconds!r}")
        if burst is not None and not is_count(burst, 1):
            raise ValueError(f"at least 1 call passes at once, not {burst!r}")
        self._rate = calls / seconds
        self._burst = math.ceil(calls) if burst is None else burst
        self._code = _RATES.get(seconds, RefusalCode.RATE_LIMIT_EXCEEDED) if code is None else code
        Refusal(self._code)
        self._throttles: OrderedDict[Hashable, Throttle] = OrderedDict()

    async def __call__(self, ctx: Any, request: Any, call_next: CallNext) -> Any:
        """Refuse the request, or pass it on."""
        if self.counts(ctx) and not _is_work(ctx):
            throttle = self._throttle(self.key(ctx, request), ctx.now())
            if not throttle.admits(ctx.now()):
                raise Refusal(self._code, retry_after=_rounded_up(throttle.seconds_to_next))
        return await call_next(request)

    def _throttle(self, key: Hashable, now: float) -> Throttle:
        """Return the count of a key. Raises Refusal for a new key where no other can be forgotten without loss."""
        throttle = self._throttles.get(key)
        if throttle is None:
            if len(self._throttles) >= MOST_KEYS:
                oldest = next(iter(self._throttles))
                wait = self._throttles[oldest].seconds_to_full(now)
                if wait > 0:
                    raise Refusal(self._code, retry_after=_rounded_up(wait))
                del self._throttles[oldest]
            throttle = self._throttles[key] = Throttle(self._rate, self._burst)
        self._throttles.move_to_end(key)
        return throttle


class ConcurrencyLimit(_Counted):
    """Middleware that limits concurrent requests. Further ones are refused with 1060, or ``code``, and do not wait.

    ``per`` and ``methods`` are as in ``RateLimit``. Raises ValueError if the number or the code is invalid, and
    TypeError as ``RateLimit`` does.
    """

    def __init__(
        self,
        most: int,
        *,
        per: LimitKey | Collection[LimitKey] = per_session,
        methods: Collection[str] | None = None,
        code: int = RefusalCode.CONCURRENT_LIMIT_EXCEEDED,
    ) -> None:
        super().__init__(per, methods)
        if not is_count(most):
            raise ValueError(f"a number of requests is 0 or more, not {most!r}")
        Refusal(code)
        self._most = most
        self._code = code
        self._running: dict[Hashable, int] = {}

    async def __call__(self, ctx: Any, request: Any, call_next: CallNext) -> Any:
        """Refuse the request, or pass it on."""
        if not self.counts(ctx):
            return await call_next(request)
        key = self.key(ctx, request)
        running = self._running.get(key, 0)
        if running >= self._most:
            raise Refusal(self._code)
        self._running[key] = running + 1
        try:
            return await call_next(request)
        finally:
            self._running[key] -= 1
            if not self._running[key]:
                del self._running[key]


def allow(
    predicate: Callable[[Any, Any], bool | Awaitable[bool]],
    *,
    methods: Collection[str] | None = None,
    code: int = RefusalCode.AUTHZ_FORBIDDEN,
    message: str | None = None,
) -> Middleware:
    """Return middleware that passes requests for which the predicate is true, and refuses others.

    ``predicate`` takes ``ctx`` and the request, and may be async, so it may ask a user. ``methods`` are checked, one or
    several; ``None`` for all. The refusal is 1014, or ``code``, with ``message``. Raises ValueError if the code is
    unknown, or has no default message and ``message`` is missing, and TypeError if the predicate cannot be called.
    """
    Refusal(code, message)
    if not callable(predicate):
        raise TypeError(f"predicate takes a function of (ctx, request), not {predicate!r:.100}")
    check_parameters(predicate, "predicate", "(ctx, request)", 2)
    meant = checked_methods(methods)

    async def check(ctx: Any, request: Any, call_next: CallNext) -> Any:
        if _is_meant(ctx.method, meant) and not _is_work(ctx):
            answer: Any = predicate(ctx, request)
            if not (await answer if is_awaitable(answer) else answer):
                raise Refusal(code, message)
        return await call_next(request)

    return check


def checked_methods(methods: Any) -> frozenset[str] | None:
    """Return the methods that an option names, one or several; ``None`` for all.

    Raises TypeError for anything else, and ValueError for a method that the protocol does not have.
    """
    if methods is None:
        return None
    found = (methods,) if isinstance(methods, str) else tuple(methods) if isinstance(methods, Iterable) else (methods,)
    if not all(isinstance(each, str) for each in found):
        raise TypeError(f"methods= takes the name of a method, or several, not {methods!r:.100}")
    for each in found:
        check_method(each)
    return frozenset(found)


def _checked_keys(per: Any) -> tuple[LimitKey, ...]:
    found = (per,) if callable(per) or not isinstance(per, Iterable) else tuple(per)
    if not all(map(callable, found)):
        raise TypeError(f"per= takes a function of (ctx, request), or several, not {per!r:.100}")
    for key in found:
        check_parameters(key, "per=", "(ctx, request)", 2)
    return found


def _is_meant(method: str, methods: frozenset[str] | None) -> bool:
    return method in methods if methods is not None else method != "ping"


def _is_work(ctx: Any) -> bool:
    """Whether this is the work of a task, whose request passed before."""
    return getattr(ctx, "task", None) is not None


def _rounded_up(seconds: float) -> float:
    """Round up to milliseconds, so that a retry after exactly that time passes."""
    return math.floor(seconds * 1000 + 1) / 1000


_REGISTRIES: Final = {"tools": "tools", "prompts": "prompts", "resources": "resources"}
"""The registry of a server that has the names of a method, by the first part of the method."""

_RATES: Final[dict[float, int]] = {1: RefusalCode.RATE_LIMIT_PER_SECOND, 60: RefusalCode.RATE_LIMIT_PER_MINUTE}
