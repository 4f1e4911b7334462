"""What all requests, notifications and results share."""

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
    """An object inside a message that may carry metadata of its own."""

    meta: Mapping[str, Any] = field(default=EMPTY, kw_only=True, metadata=wired(name="_meta", since=REV_2025_06_18))
    """Protocol metadata (META-01)."""


@payload
class FinalResult(ResultPayload):
    """A result that says what kind it is, since 2026-07-28 (ENV-10)."""

    result_type: str = field(
        default="complete", kw_only=True, metadata=wired(since=REV_2026_07_28, always=True, strict=True)
    )
    """``"complete"``, also when the peer left it out (ENV-11); extensions have other values."""


@payload
class CacheableResult(FinalResult):
    """A result that may be kept, since 2026-07-28 (CACHE-01)."""

    ttl_ms: int = field(default=0, kw_only=True, metadata=wired(since=REV_2026_07_28, always=True))
    """For how many milliseconds after its receipt it is fresh; 0 or less: it is stale at once (CACHE-03)."""
    cache_scope: CacheScope = field(default="private", kw_only=True, metadata=wired(since=REV_2026_07_28, always=True))
    """``"public"``: one cache may serve it to everyone; ``"private"``: only to the principal that asked."""


@payload
class ListResult(CacheableResult):
    """A page of a list. Items that are not well-formed are in ``malformed`` and cost only themselves."""

    malformed: tuple[MalformedItem, ...] = field(default=(), kw_only=True, metadata=NOT_ON_THE_WIRE)
