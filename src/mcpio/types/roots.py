"""Roots: the places in the client's file system that a server may look at."""

from __future__ import annotations

from typing import ClassVar

from attrs import field

from mcpio.revisions import REV_2025_11_25, Revision
from mcpio.types._fields import NOT_ON_THE_WIRE, MalformedItem, payload, wired
from mcpio.types.messages import NotificationPayload, ObjectPayload, RequestPayload, ResultPayload

__all__ = ["ListRootsRequest", "ListRootsResult", "Root", "RootsListChangedNotification"]


def fault_in_root(uri: str) -> str | None:
    """Return why a URI is not that of a root, or ``None``."""
    return None if uri.startswith("file://") else f"must begin with file://, not {uri!r:.100}"


@payload
class Root(ObjectPayload):
    """A root. ``uri`` starts with ``file://`` (ROOT-02); a received one may not."""

    uri: str = field(metadata=wired(check=fault_in_root))
    name: str | None = None


@payload
class ListRootsRequest(RequestPayload):
    """Ask for the roots. A value inside an ``InputRequiredResult`` since 2026-07-28."""


@payload
class ListRootsResult(ResultPayload):
    """The roots."""

    ITEMWISE: ClassVar[str | None] = "roots"

    roots: tuple[Root, ...]
    malformed: tuple[MalformedItem, ...] = field(default=(), kw_only=True, metadata=NOT_ON_THE_WIRE)
    """Items that are not well-formed; they cost only themselves."""


@payload
class RootsListChangedNotification(NotificationPayload):
    """The list of roots changed."""

    UNTIL: ClassVar[Revision] = REV_2025_11_25
