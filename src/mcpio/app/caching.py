"""Caches of results: what they keep and for how long, and a client's own, by what results say (2026-07-28)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from mcpio._checks import is_count
from mcpio.codec import codec
from mcpio.engine.payloads import to_json
from mcpio.errors import RequestError
from mcpio.framing.json import dumps, loads
from mcpio.methods import METHODS
from mcpio.revisions import REV_2026_07_28
from mcpio.types.base import CacheableResult

if TYPE_CHECKING:
    from mcpio.app.client import OutgoingCall
    from mcpio.app.contracts import CallNext

CacheKey = tuple[str, bytes]
"""A method, and its params without ``_meta`` as JSON."""

CACHEABLE: Final = frozenset(
    {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
)
"""The methods whose results may be cached (CACHE-01)."""

LONGEST: Final = 24 * 3600.0
"""The most seconds that a result is kept, even if its ``ttlMs`` is longer."""


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """Values that expire, bounded in number and in size; the least recently used leave first."""

    def __init__(self, entries: int, size: int) -> None:
        """At most ``entries`` values are kept, of ``size`` bytes together. Raises ValueError below 1."""
        for name, value in (("entries", entries), ("size", size)):
            if not is_count(value, 1):
                raise ValueError(f"{name} must be an integer of 1 or more, not {value!r:.60}")
        self._most_entries = entries
        self._most_bytes = size
        self._bytes = 0
        self._entries: OrderedDict[K, tuple[float, int, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[K]:
        return iter(tuple(self._entries))

    def get(self, key: K, now: float) -> V | None:
        """Return a value that has not expired, or ``None``."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        until, _, value = entry
        if now >= until:
            self.discard(key)
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V, size: int, until: float) -> None:
        """Keep a value until then; one larger than everything that may be kept is not."""
        self.discard(key)
        if size > self._most_bytes:
            return
        self._entries[key] = until, size, value
        self._bytes += size
        while self._bytes > self._most_bytes or len(self._entries) > self._most_entries:
            self.discard(next(iter(self._entries)))

    def discard(self, key: K) -> None:
        """Drop a value, if it is there."""
        if (entry := self._entries.pop(key, None)) is not None:
            self._bytes -= entry[1]


class ResultCache:
    """Results by method and params; the least recently used leave first.

    A client has one for itself. Clients of **one** server, on one event loop, may share another for results that the
    server calls public: pass it as ``shared_cache=`` to each of them. Every user of it sees what the server sent to
    one, so trust the server to mark only what everybody may see. Results are kept as JSON: changing one that was
    returned changes nothing here.
    """

    def __init__(self, *, entries: int = 1024, size: int = 8 << 20) -> None:
        """At most ``entries`` results are kept, of ``size`` bytes of JSON together. Raises ValueError below 1."""
        self._kept: Kept[CacheKey, bytes] = Kept(entries, size)
        # By method: how often results of it were dropped. An answer that was under way then may be of before.
        self._drops: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: CacheKey, now: float) -> Any:
        """Return a fresh result, typed, or ``None``. ``now`` is in seconds on the clock of ``put``."""
        text = self._kept.get(key, now)
        return None if text is None else codec(REV_2026_07_28).decode(loads(text), METHODS[key[0]].result_type)

    def put(self, key: CacheKey, result: CacheableResult, now: float) -> None:
        """Keep a result that was received ``now`` until it expires; a result larger than the cache is not kept."""
        text = dumps(codec(REV_2026_07_28).encode(result))
        # The least of the two first: an integer may be too large for a float.
        self._kept.put(key, text, len(key[1]) + len(text), now + min(LONGEST * 1000, result.ttl_ms) / 1000)

    def discard(self, key: CacheKey) -> None:
        """Drop one result."""
        self._kept.discard(key)

    def drops(self, method: str) -> int:
        """Return how often results of a method were dropped: if it changed, keep no answer that was under way."""
        return self._drops.get(method, 0)

    def drop(self, method: str, params: bytes | None = None) -> None:
        """Drop the result for some params, or by default every result of a method."""
        self._drops[method] = self.drops(method) + 1
        for key in self._kept:
            if key[0] == method and params in (None, key[1]):
                self.discard(key)

    def clear(self) -> None:
        """Drop everything."""
        for method in CACHEABLE:
            self.drop(method)


class CachingLayer:
    """The innermost layer around requests of ``CACHEABLE`` methods; answers what is fresh (CACHE-03 to CACHE-07).

    Private results stay in the client's own cache: a client has the credentials of one principal (CACHE-05).
    """

    def __init__(self, shared: ResultCache | None = None) -> None:
        """``shared`` keeps the public results; without it the client's own cache does."""
        self._own = ResultCache()
        self._shared = self._own if shared is None else shared

    async def __call__(self, call: OutgoingCall, request: Any, call_next: CallNext) -> Any:
        """Return a fresh result, or send the request and keep its result as long as that says."""
        method = call.method
        if not isinstance(request, METHODS[method].params_type) or carries_input(request):
            return await call_next(request)
        key = method, params_of(request)
        if not call.fresh:
            now = call.now()
            for cache in self._caches:
                cached = cache.get(key, now)
                if cached is not None:
                    return cached
        drops = [cache.drops(method) for cache in self._caches]
        try:
            result = await call_next(request)
        except RequestError:
            if getattr(request, "cursor", None) is not None:
                # The cursor may be of a list that is no more: its pages go together (CACHE-08).
                self.drop(method)
            raise
        if [cache.drops(method) for cache in self._caches] == drops:
            self._keep(key, result, call.now())
        return result

    def keep(self, request: Any, method: str, members: Mapping[str, Any], now: float) -> None:
        """Keep a result, as it came, of a request that did not pass this layer: that of the opening."""
        result = codec(REV_2026_07_28).decode(members, METHODS[method].result_type)
        self._keep((method, params_of(request)), result, now)

    def hear(self, notification: Any, method: str) -> None:
        """Drop the results that a notification of the server invalidates (CACHE-06)."""
        if method == "notifications/resources/updated":
            self.drop("resources/read", dumps({"uri": notification.uri}))
        for changed in _CHANGED_BY.get(method, ()):
            self.drop(changed)

    def drop(self, method: str, params: bytes | None = None) -> None:
        """Drop results from every cache: see ``ResultCache.drop``."""
        for cache in self._caches:
            cache.drop(method, params)

    def clear(self) -> None:
        """Drop everything that is the client's own: its principal changed, or changes may have been missed."""
        self._own.clear()

    @property
    def _caches(self) -> tuple[ResultCache, ...]:
        return (self._own,) if self._shared is self._own else (self._own, self._shared)

    def _keep(self, key: CacheKey, result: Any, now: float) -> None:
        for cache in self._caches:
            cache.discard(key)
        if not isinstance(result, CacheableResult) or result.result_type != "complete" or result.ttl_ms <= 0:
            return
        if getattr(result, "malformed", ()):
            return  # what is wrong with it would be lost
        (self._shared if result.cache_scope == "public" else self._own).put(key, result, now)


_CHANGED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}
"""The methods whose results a notification makes stale."""


def carries_input(request: Any) -> bool:
    """Whether it carries answers or state: its result is for this call only (CACHE-07)."""
    return getattr(request, "input_responses", None) is not None or getattr(request, "request_state", None) is not None


def params_of(request: Any) -> bytes:
    """Return the params of a request without ``_meta``, as JSON. Raises LocalProtocolError if that is impossible."""
    params = {**codec(REV_2026_07_28).encode(request)}
    params.pop("_meta", None)
    return to_json(dumps, params)
