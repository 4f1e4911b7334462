"""Discovery of a stateless server's abilities, and the errors for missing ones (2026-07-28)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from mcpio.revisions import REV_2026_07_28, Revision
from mcpio.types._fields import Payload, payload
from mcpio.types.messages import CacheableResult, RequestPayload

if TYPE_CHECKING:
    from mcpio.types.lifecycle import ClientCapabilities, ServerCapabilities

__all__ = [
    "DiscoverRequest",
    "DiscoverResult",
    "MissingRequiredClientCapabilityData",
    "UnsupportedProtocolVersionData",
]


@payload
class DiscoverRequest(RequestPayload):
    """Ask for the server's revisions and capabilities (VER-03)."""

    SINCE: ClassVar[Revision] = REV_2026_07_28


@payload
class DiscoverResult(CacheableResult):
    """The server's revisions and capabilities. Its name and version are in ``meta`` (VER-03)."""

    SINCE: ClassVar[Revision] = REV_2026_07_28

    supported_versions: tuple[str, ...]
    capabilities: ServerCapabilities
    instructions: str | None = None
    """A hint for the model. Untrusted text."""


@payload
class UnsupportedProtocolVersionData(Payload):
    """The ``data`` of error -32022 (VER-01)."""

    SINCE: ClassVar[Revision] = REV_2026_07_28

    supported: tuple[str, ...]
    requested: str


@payload
class MissingRequiredClientCapabilityData(Payload):
    """The ``data`` of error -32021: the capabilities that the request should have declared (ENV-05)."""

    SINCE: ClassVar[Revision] = REV_2026_07_28

    required_capabilities: ClientCapabilities
