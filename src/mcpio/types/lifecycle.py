"""The handshake, capabilities, and the messages that concern no feature: ping, progress, cancellation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from mcpio.revisions import (
    REV_2025_03_26,
    REV_2025_06_18,
    REV_2025_11_25,
    Revision,
)
from mcpio.types._fields import Description, payload, wire
from mcpio.types.messages import FinalResult, NotificationPayload, RequestPayload, ResultPayload

if TYPE_CHECKING:
    from mcpio.types.content import Icon
    from mcpio.types.tasks import ClientTasksCapability, ServerTasksCapability

__all__ = [
    "CancelledNotification",
    "ClientCapabilities",
    "ElicitationCapability",
    "EmptyResult",
    "Implementation",
    "InitializeRequest",
    "InitializeResult",
    "InitializedNotification",
    "PingRequest",
    "ProgressNotification",
    "PromptsCapability",
    "ResourcesCapability",
    "RootsCapability",
    "SamplingCapability",
    "ServerCapabilities",
    "ToolsCapability",
]


@payload
class Implementation(Description):
    """The name and version of a client or server: its own claim, never a basis for trust (ENV-07)."""

    name: str
    version: str
    title: str | None = wire(default=None, since=REV_2025_06_18)
    description: str | None = wire(default=None, since=REV_2025_11_25)
    icons: tuple[Icon, ...] = wire(default=(), since=REV_2025_11_25)
    website_url: str | None = wire(default=None, since=REV_2025_11_25)

    @property
    def display_name(self) -> str:
        """The title, or the name if the title is absent."""
        return self.name if self.title is None else self.title


# Capabilities: ``None`` means not declared, an empty object means declared without options (CAP-01).


@payload
class RootsCapability(Description):
    """The client can list its roots."""

    list_changed: bool | None = wire(default=None, until=REV_2025_11_25)


@payload
class SamplingCapability(Description):
    """The client can sample a model for the server."""

    context: Mapping[str, Any] | None = wire(default=None, since=REV_2025_11_25)
    """Present if the client honours ``include_context``."""
    tools: Mapping[str, Any] | None = wire(default=None, since=REV_2025_11_25)
    """Present if the client lets the model use tools (SAMP-05)."""


@payload
class ElicitationCapability(Description):
    """The client can ask its user. Without ``form`` and ``url`` it means ``form`` (ELIC-01)."""

    SINCE: ClassVar[Revision] = REV_2025_06_18

    form: Mapping[str, Any] | None = wire(default=None, since=REV_2025_11_25)
    url: Mapping[str, Any] | None = wire(default=None, since=REV_2025_11_25)


@payload
class ToolsCapability(Description):
    """The server offers tools."""

    list_changed: bool | None = None


@payload
class ResourcesCapability(Description):
    """The server offers resources."""

    subscribe: bool | None = None
    list_changed: bool | None = None


@payload
class PromptsCapability(Description):
    """The server offers prompts."""

    list_changed: bool | None = None


@payload
class ClientCapabilities(Description):
    """The capabilities of a client (CAP-04). ``mcpio.methods.declares`` looks one up by its path."""

    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = wire(default=None, since=REV_2025_06_18)
    tasks: ClientTasksCapability | None = wire(default=None, since=REV_2025_11_25, until=REV_2025_11_25)
    experimental: Mapping[str, Any] | None = None
    extensions: Mapping[str, Any] | None = None
    """Settings by the extension's id. A member since 2026-07-28, sent and read in every revision (EXT-04)."""


@payload
class ServerCapabilities(Description):
    """The capabilities of a server (CAP-03). ``mcpio.methods.declares`` looks one up by its path."""

    tools: ToolsCapability | None = None
    resources: ResourcesCapability | None = None
    prompts: PromptsCapability | None = None
    logging: Mapping[str, Any] | None = None
    completions: Mapping[str, Any] | None = wire(default=None, since=REV_2025_03_26)
    tasks: ServerTasksCapability | None = wire(default=None, since=REV_2025_11_25, until=REV_2025_11_25)
    experimental: Mapping[str, Any] | None = None
    extensions: Mapping[str, Any] | None = None
    """Settings by the extension's id. A member since 2026-07-28, sent and read in every revision (EXT-04)."""


@payload
class InitializeRequest(RequestPayload):
    """The first message of a handshake (LIFE-02)."""

    UNTIL: ClassVar[Revision] = REV_2025_11_25

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


@payload
class InitializeResult(ResultPayload):
    """The server's answer to ``initialize`` (LIFE-07)."""

    UNTIL: ClassVar[Revision] = REV_2025_11_25

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None
    """A hint for the model. Untrusted text (LIFE-16)."""


@payload
class InitializedNotification(NotificationPayload):
    """The client is ready (LIFE-08)."""

    UNTIL: ClassVar[Revision] = REV_2025_11_25


@payload
class PingRequest(RequestPayload):
    """Check that the peer responds. The answer is an ``EmptyResult``."""

    UNTIL: ClassVar[Revision] = REV_2025_11_25


@payload
class EmptyResult(FinalResult):
    """The result of a request that returns nothing."""


@payload
class CancelledNotification(NotificationPayload):
    """The sender cancels one of its requests."""

    request_id: int | str | None = wire(default=None, required=True, lenient=REV_2025_11_25)
    """The request's id on the wire. Required when sent; a peer of 2025-11-25 may leave it out."""
    reason: str | None = None


@payload
class ProgressNotification(NotificationPayload):
    """The progress of a request."""

    progress_token: int | str
    progress: float
    total: float | None = None
    message: str | None = wire(default=None, since=REV_2025_03_26)
