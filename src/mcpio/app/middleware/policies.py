"""Middleware that limits, caches and retries."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakSet, ref

from mcpio._checks import called, is_amount, is_count, required
from mcpio.app.caching import Kept, carries_input, params_of
from mcpio.app.reporting import Throttle
from mcpio.app.runtime import is_awaitable
from mcpio.backoff import Backoff
from mcpio.codec import codec
from mcpio.errors import McpError, Refusal, RequestError
from mcpio.framing.json import dumps
from mcpio.methods import METHODS, check_method
from mcpio.refusals import RefusalCode
from mcpio.revisions import REV_2026_07_28, REVISIONS, Era, Revision
from mcpio.types._fields import Payload
from mcpio.types.content import TextContent
from mcpio.types.features import CallToolRequest, CallToolResult

if TYPE_CHECKING:
    from mcpio.app.changes import Changed
    from mcpio.app.client import OutgoingCall
    from mcpio.app.contracts import CallNext, Middleware


# ------------------------------------------------------------------------------------------------------------- limiting
# Middleware that refuses: rate limits, concurrency limits and access checks, with refusal codes (TOOL-19, P6).
# Each object has its own counters: one object in several servers limits all of them together. Pings do not count. A
# call that becomes a task counts once for its rate; for concurrency its work counts.

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
    entry = registry.find(name)
    # Whatever URIs a template matches, it is one.
    return ctx.method, id(entry[0] if isinstance(entry, tuple) else entry)


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
            raise ValueError(f"a rate must be more than 0 calls in more than 0 seconds, not {calls!r} in {seconds!r}")
        if burst is not None and not is_count(burst, 1):
            raise ValueError(f"burst must be 1 call or more, not {burst!r}")
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
            raise ValueError(f"a number of requests must be 0 or more, not {most!r}")
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
    called("predicate", predicate, "(ctx, request)")
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
    names = (methods,) if isinstance(methods, str) else tuple(methods) if isinstance(methods, Iterable) else (methods,)
    if not all(isinstance(each, str) for each in names):
        raise TypeError(f"methods must be the name of a method, or several, not {methods!r:.100}")
    for each in names:
        check_method(each)
    return frozenset(names)


def _checked_keys(per: Any) -> tuple[LimitKey, ...]:
    keys = (per,) if callable(per) or not isinstance(per, Iterable) else tuple(per)
    if not all(map(callable, keys)):
        raise TypeError(f"per must be a function of (ctx, request), or several, not {per!r:.100}")
    for key in keys:
        called("per", key, "(ctx, request)")
    return keys


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


# --------------------------------------------------------------------------------------------------------------- sizing
# Middleware that limits how large requests and results may be, in bytes of JSON.


class SizeLimit:
    """Middleware: refuses requests and results that are too large.

    A tool's result that is too large becomes one with ``is_error`` that names its size, so that the model can ask for
    less. All else is refused with 1068.

    Args:
        results: The most bytes of JSON that a result may have; ``None`` for no limit.
        requests: The same of a request's parameters.
        methods: The methods that are limited, one or several; ``None`` for all.

    Raises:
        ValueError: A limit is below 1, or no limit was given.
        TypeError: ``methods`` is of the wrong type.

    """

    def __init__(
        self, results: int | None = None, *, requests: int | None = None, methods: Collection[str] | None = None
    ) -> None:
        for name, limit in (("results", results), ("requests", requests)):
            if limit is not None and not is_count(limit, 1):
                raise ValueError(f"{name} must be a number of bytes, 1 or more, not {limit!r:.60}")
        if results is None and requests is None:
            raise ValueError("SizeLimit must have results=, requests=, or both")
        self._results = results
        self._requests = requests
        self._methods = checked_methods(methods)

    async def __call__(self, ctx: Any, request: Any, call_next: CallNext) -> Any:
        """Pass the request on, and its result back, unless one is too large."""
        if self._methods is not None and ctx.method not in self._methods:
            return await call_next(request)
        revision = _revision_of(ctx)
        if self._requests is not None and (size := _size(request, revision)) > self._requests:
            raise Refusal(
                RefusalCode.MESSAGE_TOO_LARGE, f"The request is too large: {_size_message(size, self._requests)}"
            )
        result = await call_next(request)
        if self._results is None or (size := _size(result, revision)) <= self._results:
            return result
        text = f"The result is too large: {_size_message(size, self._results)}"
        if isinstance(result, CallToolResult):
            return CallToolResult((TextContent(f"{text} Ask for less."),), is_error=True)
        raise Refusal(RefusalCode.MESSAGE_TOO_LARGE, text)


def _revision_of(ctx: Any) -> Revision:
    """Return the revision of a request that is served, or sent by a client."""
    peer = getattr(ctx, "peer", None)
    revision: Revision | None = ctx.session.connection.revision if peer is None else peer.revision
    return REVISIONS[-1] if revision is None else revision


def _size(value: Any, revision: Revision) -> int:
    """Return the bytes of JSON of a request or result; 0 for the questions of a handler, which are no result yet."""
    if isinstance(value, Payload):
        return len(dumps(codec(revision).encode(value)))
    return len(dumps(value)) if isinstance(value, Mapping) else 0


def _size_message(size: int, limit: int) -> str:
    return f"{size:,} bytes, where at most {limit:,} are allowed."


# --------------------------------------------------------------------------------------------------------- result cache
# Middleware that keeps results for some time, and answers equal requests by them.

CACHEABLE: Final = ("resources/read", "prompts/get", "completion/complete")
"""The methods whose results are kept by default."""


class Cache:
    """Middleware: keeps results for ``ttl`` seconds, and answers equal requests by them.

    Requests are equal if their method, parameters, revision and ``per`` are. Failures are not kept, nor what asks the
    client something or became a task. Progress and log messages of the handler are not repeated. On a server, a
    resource is forgotten when ``notify_resource_updated`` tells of it, and all results of a kind when its list changes.

    Args:
        ttl: How many seconds a result is kept.
        per: Who shares results: a key as for ``RateLimit``. By default one principal, or one session without one;
            results that are the same for everybody may have ``for_all``.
        methods: The methods whose results are kept: those that read.
        tools: The names of tools whose results are kept too: those without effects.
        entries: How many results are kept; the least recently used leave first.
        size: How many bytes of JSON they may have together.

    Raises:
        ValueError: A number is invalid, or ``methods`` has one whose results cannot be kept.

    """

    def __init__(
        self,
        ttl: float,
        *,
        per: LimitKey = per_principal,
        methods: Collection[str] = CACHEABLE,
        tools: Collection[str] = (),
        entries: int = 1000,
        size: int = 8 << 20,
    ) -> None:
        if not (is_amount(ttl) and ttl > 0):
            raise ValueError(f"ttl must be a number of seconds above 0, not {ttl!r:.60}")
        self._kept: Kept[tuple[Any, ...], Any] = Kept(entries, size)
        self._methods = (methods,) if isinstance(methods, str) else tuple(methods)
        for method in self._methods:
            if method not in CACHEABLE:
                advice = (
                    "name the tools: tools=[...]" if method == "tools/call" else f"there are {', '.join(CACHEABLE)}"
                )
                raise ValueError(f"methods must have results that can be kept, not {method!r:.60}: {advice}")
        called("per", per, "(ctx, request)")
        self._ttl = ttl
        self._per = per
        self._tools = frozenset((tools,) if isinstance(tools, str) else tools)
        # How often something was forgotten: a result that was under way then may be of before.
        self._editions = 0
        self._servers: WeakSet[Any] = WeakSet()

    def __len__(self) -> int:
        return len(self._kept)

    async def __call__(self, ctx: Any, request: Any, call_next: CallNext) -> Any:
        """Answer by a result that is kept, or pass the request on and keep its result."""
        if not self._is_meant(ctx.method, request):
            return await call_next(request)
        self._listen(ctx)
        params = params_of(request)
        peer = getattr(ctx, "peer", None)
        key = ctx.method, getattr(request, "uri", None), params, peer and peer.revision, self._per(ctx, request)
        cached = self._kept.get(key, ctx.now())
        if cached is not None:
            return cached
        edition = self._editions
        result = await call_next(request)
        if edition == self._editions and _is_kept(ctx, result):
            size = len(params) + len(dumps(codec(REV_2026_07_28).encode(result)))
            self._kept.put(key, result, size, ctx.now() + self._ttl)
        return result

    def clear(self) -> None:
        """Forget everything."""
        self._editions += 1
        for key in self._kept:
            self._kept.discard(key)

    def _is_meant(self, method: str, request: Any) -> bool:
        is_meant = request.name in self._tools if method == "tools/call" else method in self._methods
        return is_meant and not carries_input(request) and getattr(request, "task", None) is None

    def _listen(self, ctx: Any) -> None:
        """Subscribe to the changes of a server, and of those that are mounted in it, which have buses of their own."""
        server = getattr(ctx.session, "server", None)
        waiting = [] if getattr(server, "changes", None) is None else [server]  # a client has none
        while waiting:
            each: Any = waiting.pop()
            if each not in self._servers:
                self._servers.add(each)
                each.changes.subscribe(self._hear)
            # Each time: a server may be mounted later.
            waiting += [mount.server for mount in each.mounts]

    def _hear(self, change: Changed) -> None:
        self._editions += 1
        methods, uris = _METHODS_OF[change.kind], () if change.uri is None else (change.uri, *change.within)
        for key in self._kept:
            if key[0] in methods or key[1] in uris:
                self._kept.discard(key)


_METHODS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "tools": ("tools/call",),
    "prompts": ("prompts/get", "completion/complete"),
    "resources": ("resources/read", "completion/complete"),
    "updated": (),
    "anything": (*CACHEABLE, "tools/call"),
}
"""The methods whose results a change makes stale: what a list no longer has, or has anew, must not be answered."""


def _is_kept(ctx: Any, result: Any) -> bool:
    """Whether a result serves later requests too: no failure, no question or task, and not made of an answer."""
    if result.__class__ is not METHODS[ctx.method].result_type or getattr(result, "is_error", False):
        return False
    return getattr(ctx, "task", None) is None and not getattr(ctx, "_was_answered", False)


# ------------------------------------------------------------------------------------------------------------- retrying
# Retries of a client's own requests, where they help and do no harm (A35 to A37).


READING: Final = frozenset(
    {
        "ping",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/directory/read",
        "skills/list",
        "skills/get",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "tasks/get",
        "tasks/list",
        "tasks/result",
    }
)
"""Methods that only read, and so can be repeated."""


class Retry:
    """Retry policy for a client's requests.

    Read-only requests are repeated, those that a closing server did not run, and those whose caller says
    ``retry=True``; never those with ``retry=False``. With
    ``trust_annotations``, calls of tools that the server calls read-only or idempotent are repeated too: that is not
    verified (TOOL-17), and lists the tools before.

    Each attempt has the request's full timeout. The last error is raised. Raises TypeError if ``policy`` is no Backoff.
    """

    policy: Backoff
    """How often to repeat a request, and how long to wait before."""

    def __init__(self, policy: Backoff, *, trust_annotations: bool = False) -> None:
        self.policy = required("policy", policy, Backoff)
        self.trust_annotations = trust_annotations

    async def __call__(self, call: OutgoingCall, request: Any, call_next: CallNext) -> Any:
        """Send the request, and repeat it as the policy says."""
        attempt = 0
        while True:
            try:
                return await call_next(request)
            except McpError as error:
                delay = await self._delay(call, request, attempt, error)
                if delay is None:
                    raise
            await call.session.driver.runtime.sleep(delay)
            attempt += 1

    async def _delay(self, call: OutgoingCall, request: Any, attempt: int, error: McpError) -> float | None:
        chance = 0.0
        if self.policy.jitter:
            chance = int.from_bytes(call.session.driver.runtime.entropy(6), "big") / 2**48
        delay = self.policy.next_delay(attempt, error, chance=chance)
        return delay if delay is not None and await self._may_repeat(call, request, error) else None

    async def _may_repeat(self, call: OutgoingCall, request: Any, error: McpError) -> bool:
        if call.retry is not None:
            return call.retry
        if call.method in READING or (isinstance(error, RequestError) and error.is_closing()):
            return True
        return self.trust_annotations and isinstance(request, CallToolRequest) and await _is_harmless(call, request)


async def _is_harmless(call: OutgoingCall, request: CallToolRequest) -> bool:
    """Whether the server says that calling a tool twice has the effect of calling it once."""
    try:
        tool = await call.session.tool(request.name)
    except McpError:
        return False
    hints = None if tool is None else tool.annotations
    return hints is not None and (hints.read_only_hint is True or hints.idempotent_hint is True)
