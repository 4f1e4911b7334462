"""Resources: data that a server lets its clients read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from mcpio.revisions import REV_2025_06_18, REV_2025_11_25, REV_2026_07_28, Revision
from mcpio.types._fields import payload, wire
from mcpio.types.messages import CacheableResult, ListResult, NotificationPayload, ObjectPayload, RequestPayload

if TYPE_CHECKING:
    from mcpio.types.content import Annotations, Icon, ResourceContents
    from mcpio.types.inputs import InputResponse

__all__ = [
    "ListResourceTemplatesRequest",
    "ListResourceTemplatesResult",
    "ListResourcesRequest",
    "ListResourcesResult",
    "ReadResourceRequest",
    "ReadResourceResult",
    "Resource",
    "ResourceListChangedNotification",
    "ResourceTemplate",
    "ResourceUpdatedNotification",
    "SubscribeRequest",
    "UnsubscribeRequest",
]


@payload
class Resource(ObjectPayload):
    """A resource. URIs are opaque strings, never normalised (RES-12)."""

    uri: str
    name: str
    title: str | None = wire(default=None, since=REV_2025_06_18)
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    """In bytes, of the raw content."""
    annotations: Annotations | None = None
    icons: tuple[Icon, ...] = wire(default=(), since=REV_2025_11_25)

    @property
    def display_name(self) -> str:
        """The title, or the name if the title is absent."""
        return self.name if self.title is None else self.title


@payload
class ResourceTemplate(ObjectPayload):
    """A family of resources. ``uri_template`` follows RFC 6570; ``mime_type`` is set only if all of them share it."""

    uri_template: str
    name: str
    title: str | None = wire(default=None, since=REV_2025_06_18)
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    icons: tuple[Icon, ...] = wire(default=(), since=REV_2025_11_25)

    @property
    def display_name(self) -> str:
        """The title, or the name if the title is absent."""
        return self.name if self.title is None else self.title


@payload
class ListResourcesRequest(RequestPayload):
    """Ask for a page of the resources: the first, without ``cursor``."""

    cursor: str | None = None


@payload
class ListResourcesResult(ListResult):
    """A page of the resources. Only ``next_cursor`` of ``None`` ends the list (GONE-05)."""

    ITEMWISE: ClassVar[str | None] = "resources"

    resources: tuple[Resource, ...]
    next_cursor: str | None = wire(default=None, strict=True)


@payload
class ListResourceTemplatesRequest(RequestPayload):
    """Ask for a page of the resource templates: the first, without ``cursor``."""

    cursor: str | None = None


@payload
class ListResourceTemplatesResult(ListResult):
    """A page of the resource templates. Only ``next_cursor`` of ``None`` ends the list (GONE-05)."""

    ITEMWISE: ClassVar[str | None] = "resource_templates"

    resource_templates: tuple[ResourceTemplate, ...]
    next_cursor: str | None = wire(default=None, strict=True)


@payload
class ReadResourceRequest(RequestPayload):
    """Read a resource."""

    uri: str
    input_responses: Mapping[str, InputResponse] | None = wire(default=None, since=REV_2026_07_28, essential=True)
    """The answers to an ``InputRequiredResult``, by its keys (MRTR-06)."""
    request_state: str | None = wire(default=None, since=REV_2026_07_28, essential=True)
    """The server's state, returned untouched (MRTR-06)."""


@payload
class ReadResourceResult(CacheableResult):
    """The contents of a resource; a directory, for example, may have several (RES-03)."""

    contents: tuple[ResourceContents, ...]

    @property
    def text(self) -> str:
        """The text contents, joined by line breaks."""
        from mcpio.types.content import TextResourceContents

        return "\n".join(part.text for part in self.contents if isinstance(part, TextResourceContents))


@payload
class SubscribeRequest(RequestPayload):
    """Ask for notifications when a resource changes (RES-06)."""

    UNTIL: ClassVar[Revision] = REV_2025_11_25

    uri: str


@payload
class UnsubscribeRequest(RequestPayload):
    """End a subscription."""

    UNTIL: ClassVar[Revision] = REV_2025_11_25

    uri: str


@payload
class ResourceUpdatedNotification(NotificationPayload):
    """A subscribed resource, or one below it, changed (RES-07)."""

    uri: str


@payload
class ResourceListChangedNotification(NotificationPayload):
    """The list of resources changed."""
