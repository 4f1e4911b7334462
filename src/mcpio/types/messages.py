"""The bases of requests, notifications and results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from attrs import field

from mcpio.revisions import REV_2025_06_18, REV_2026_07_28
from mcpio.types._fields import EMPTY, NOT_ON_THE_WIRE, MalformedItem, Payload, payload, wired

__all__ = [
    "CacheScope",
    "CacheableResult",
    "FinalResult",
    "ListResult",
    "NotificationPayload",
    "ObjectPayload",
    "RequestPayload",
    "ResultPayload",
]

CacheScope = Literal["public", "private"]


@payload
class RequestPayload(Payload):
    """The params of a request; the method follows from the class (``mcpio.methods.method_of``)."""

    meta: Mapping[str, Any] = field(default=EMPTY, kw_only=True, metadata=wired(name="_meta"))
    """Protocol metadata (META-01), such as ``progressToken``."""


@payload
class NotificationPayload(Payload):
    """The params of a notification."""

    meta: Mapping[str, Any] = field(default=EMPTY, kw_only=True, metadata=wired(name="_meta"))
    """Protocol metadata (META-01)."""


@payload
class ResultPayload(Payload):
    """The result of a request."""

    meta: Mapping[str, Any] = field(default=EMPTY, kw_only=True, metadata=wired(name="_meta"))
    """Protocol metadata (META-01)."""


@payload
class ObjectPayload(Payload):
    """An object inside a message that may carry its own metadata."""

    meta: Mapping[str, Any] = field(default=EMPTY, kw_only=True, metadata=wired(name="_meta", since=REV_2025_06_18))
    """Protocol metadata (META-01)."""


@payload
class FinalResult(ResultPayload):
    """A result that names its kind, since 2026-07-28 (ENV-10)."""

    result_type: str = field(
        default="complete", kw_only=True, metadata=wired(since=REV_2026_07_28, always=True, strict=True)
    )
    """``"complete"``, even if the peer left it out (ENV-11); extensions have other values."""


@payload
class CacheableResult(FinalResult):
    """A result that may be cached, since 2026-07-28 (CACHE-01)."""

    ttl_ms: int = field(default=0, kw_only=True, metadata=wired(since=REV_2026_07_28, always=True))
    """How many milliseconds the result stays fresh after its receipt; with 0 or less it is stale at once (CACHE-03)."""
    cache_scope: CacheScope = field(default="private", kw_only=True, metadata=wired(since=REV_2026_07_28, always=True))
    """``"public"`` if a cache may serve it to everyone, ``"private"`` if only to the principal that asked."""


@payload
class ListResult(CacheableResult):
    """A page of a list. Malformed items are set aside in ``malformed``; the others are unaffected."""

    malformed: tuple[MalformedItem, ...] = field(default=(), kw_only=True, metadata=NOT_ON_THE_WIRE)
