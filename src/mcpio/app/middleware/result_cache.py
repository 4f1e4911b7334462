"""Middleware that keeps results for some time, and answers equal requests by them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from mcpio._checks import is_amount, is_count
from mcpio.app.caching import carries_input, params_of
from mcpio.app.middleware.limiting import LimitKey, per_principal
from mcpio.codec import codec
from mcpio.framing.json import dumps
from mcpio.methods import METHODS
from mcpio.revisions import REV_2026_07_28

if TYPE_CHECKING:
    from mcpio.app.changes import Changed
    from mcpio.app.contracts import CallNext

__all__ = ["Cache"]

READING: Final = ("resources/read", "prompts/get", "completion/complete")
"""The methods whose results are kept by default."""


class Cache:
    """Middleware: keeps results for ``ttl`` seconds, and answers equal requests by them.

    Requests are equal if their method, parameters, revision and ``per`` are. Failures are not kept, nor what asks the
    client something or became a task. What a handler reported or logged on the way is not repeated. On a server, a
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
        methods: Collection[str] = READING,
        tools: Collection[str] = (),
        entries: int = 1000,
        size: int = 8 << 20,
    ) -> None:
        if not (is_amount(ttl) and ttl > 0):
            raise ValueError(f"ttl= takes a number of seconds above 0, not {ttl!r:.60}")
        for name, value in (("entries", entries), ("size", size)):
            if not is_count(value, 1):
                raise ValueError(f"{name}= takes an integer of 1 or more, not {value!r:.60}")
        self._methods = (methods,) if isinstance(methods, str) else tuple(methods)
        for method in self._methods:
            if method not in READING:
                advice = "name the tools: tools=[...]" if method == "tools/call" else f"there are {', '.join(READING)}"
                raise ValueError(f"results of {method!r:.60} are not kept by methods=: {advice}")
        if not callable(per):
            raise TypeError(f"per= takes a function of (ctx, request), not {per!r:.100}")
        self._ttl = ttl
        self._per = per
        self._tools = frozenset((tools,) if isinstance(tools, str) else tools)
        self._most_entries = entries
        self._most_bytes = size
        self._bytes = 0
        self._entries: OrderedDict[tuple[Any, ...], tuple[float, int, Any]] = OrderedDict()
        # How often something was forgotten: a result that was under way then may be of before.
        self._editions = 0
        self._servers: WeakSet[Any] = WeakSet()

    def __len__(self) -> int:
        return len(self._entries)

    async def __call__(self, ctx: Any, request: Any, call_next: CallNext) -> Any:
        """Answer by a result that is kept, or pass the request on and keep its result."""
        if not self._is_meant(ctx.method, request):
            return await call_next(request)
        self._listen(ctx)
        params = params_of(request)
        peer = getattr(ctx, "peer", None)
        key = ctx.method, getattr(request, "uri", None), params, peer and peer.revision, self._per(ctx, request)
        found = self._entries.get(key)
        if found is not None and ctx.now() < found[0]:
            self._entries.move_to_end(key)
            return found[2]
        edition = self._editions
        result = await call_next(request)
        if edition == self._editions and _is_kept(ctx, result):
            self._put(key, ctx.now() + self._ttl, len(params), result)
        return result

    def clear(self) -> None:
        """Forget everything."""
        self._editions += 1
        self._entries.clear()
        self._bytes = 0

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
        for key in [each for each in self._entries if each[0] in methods or each[1] in uris]:
            self._discard(key)

    def _put(self, key: tuple[Any, ...], until: float, size: int, result: Any) -> None:
        self._discard(key)
        size += len(dumps(codec(REV_2026_07_28).encode(result)))
        if size > self._most_bytes:
            return
        self._entries[key] = until, size, result
        self._bytes += size
        while self._bytes > self._most_bytes or len(self._entries) > self._most_entries:
            self._discard(next(iter(self._entries)))

    def _discard(self, key: tuple[Any, ...]) -> None:
        found = self._entries.pop(key, None)
        if found is not None:
            self._bytes -= found[1]


_METHODS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "tools": ("tools/call",),
    "prompts": ("prompts/get", "completion/complete"),
    "resources": ("resources/read", "completion/complete"),
    "updated": (),
    "anything": (*READING, "tools/call"),
}
"""The methods whose results a change makes stale: what a list no longer has, or has anew, must not be answered."""


def _is_kept(ctx: Any, result: Any) -> bool:
    """Whether a result serves later requests too: no failure, no question or task, and not made of an answer."""
    if result.__class__ is not METHODS[ctx.method].result_type or getattr(result, "is_error", False):
        return False
    return getattr(ctx, "task", None) is None and not getattr(getattr(ctx, "driving", None), "has_asked", False)
