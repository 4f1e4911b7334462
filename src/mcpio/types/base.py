"""Kinds of payload, `_meta`, rounds of questions, and payloads of extensions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import attrs
from attrs import field

from mcpio.revisions import REV_2025_06_18, REV_2025_11_25, REV_2026_07_28, Revision
from mcpio.types._fields import EMPTY, NOT_ON_THE_WIRE, Embedded, MalformedItem, Payload, payload, wire, wired

if TYPE_CHECKING:
    from mcpio import types

__all__ = [
    "META_CLIENT_CAPABILITIES",
    "META_CLIENT_INFO",
    "META_LOG_LEVEL",
    "META_MODEL_IMMEDIATE_RESPONSE",
    "META_PROGRESS_TOKEN",
    "META_PROTOCOL_VERSION",
    "META_RELATED_TASK",
    "META_SERVER_INFO",
    "META_SUBSCRIPTION_ID",
    "CacheScope",
    "CacheableResult",
    "CustomNotification",
    "CustomRequest",
    "FinalResult",
    "InputRequest",
    "InputRequiredResult",
    "InputResponse",
    "ListResult",
    "NotificationPayload",
    "ObjectPayload",
    "RawNotification",
    "RawRequest",
    "RequestPayload",
    "ResultPayload",
]


# ------------------------------------------------------------------------------------------------------------- messages
# The bases of requests, notifications and results.

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


# --------------------------------------------------------------------------------------------------------------- inputs
# Input that a stateless server needs before it can answer (2026-07-28).

if TYPE_CHECKING:
    InputRequest: TypeAlias = types.ElicitRequest | types.CreateMessageRequest | types.ListRootsRequest
    InputResponse: TypeAlias = types.ElicitResult | types.CreateMessageResult | types.ListRootsResult
else:
    # Without the classes: few messages ask, and elicitation and sampling are large.
    InputRequest = Annotated[Payload, Embedded(is_request=True)]
    """A question to the client: the params of a request; on the wire with its method (MRTR-03)."""
    InputResponse = Annotated[Payload, Embedded(is_request=False)]
    """The answer to a question: a result without an envelope (MRTR-06)."""


@payload
class InputRequiredResult(ResultPayload, since=REV_2026_07_28):
    """The server needs input first: answer and ask again (MRTR-02). At least one of the two members is present."""

    input_requests: Mapping[str, InputRequest] | None = wire(default=None, strict=True)
    """By keys that the server chose; the answers go back under the same keys."""
    request_state: str | None = wire(default=None, strict=True)
    """Returned with the answers, untouched (MRTR-06)."""
    result_type: str = field(default="input_required", kw_only=True, metadata=wired(always=True, required=True))


# ----------------------------------------------------------------------------------------------------------------- meta
# Names of members of ``_meta``: the protocol's own keys, and the rules for everyone else's.
# The values of ``_meta`` stay plain JSON, whatever the key (META-01). Only keys that this side sends are checked
# (META-07); received keys are taken as they are.

META_PROGRESS_TOKEN: Final = "progressToken"
"""On requests: the token for their progress notifications (META-06)."""
META_RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
"""2025-11-25: on messages that belong to a task (TASK-28). The value is a ``RelatedTaskMetadata``."""
META_MODEL_IMMEDIATE_RESPONSE: Final = "io.modelcontextprotocol/model-immediate-response"
"""2025-11-25: the text to give a model while a task runs (TASK-13)."""
META_PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
"""2026-07-28, on every request: its revision (ENV-01)."""
META_CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
"""2026-07-28, on every request (ENV-01)."""
META_CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
"""2026-07-28, on every request unless configured otherwise (ENV-02)."""
META_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
"""2026-07-28, on requests: the least severe log messages wanted (ENV-08)."""
META_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
"""2026-07-28, on results (ENV-06)."""
TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""The tasks of 2026-07-28, among the ``extensions`` of capabilities."""
SKILLS_EXTENSION: Final = "io.modelcontextprotocol/skills"
"""Skills, among the ``extensions`` of a server's capabilities (SKILL-01)."""
VIEWS_EXTENSION: Final = "io.modelcontextprotocol/ui"
"""MCP Apps, among the ``extensions`` of capabilities (APP-01)."""
VIEW_MIME_TYPE: Final = "text/html;profile=mcp-app"
"""The MIME type of a view (APP-02)."""
META_SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
"""2026-07-28, on messages that belong to a subscription (ENV-09)."""


def fault_in_meta(meta: Mapping[str, Any]) -> str | None:
    """Return the fault of the first ill-formed key, or ``None`` if all keys are well-formed."""
    for key in meta:
        fault = fault_in_key(key)
        if fault is not None:
            return f"{key!r:.100} is not a key for _meta: {fault}"
    return None


def fault_in_key(key: object) -> str | None:
    """Return the fault of a key, or ``None`` if it is well-formed: ``name`` or ``prefix/name``.

    A prefix is dot-separated labels, each a letter, then letters, digits and hyphens, a hyphen never last (META-02).
    A name is empty, or letters, digits, ``-``, ``_`` and ``.``, beginning and ending with a letter or digit (META-03).
    """
    if not isinstance(key, str):
        return "it is not a string"
    prefix, slash, name = key.rpartition("/")
    for label in prefix.split(".") if slash else ():
        if not _LABEL.fullmatch(label):
            return f"{label!r:.100} is not a label of a prefix"
    return None if _NAME.fullmatch(name) else f"{name!r:.100} is not a name"


def is_reserved(key: str, revision: Revision | None = None) -> bool:
    """Whether a well-formed key has a prefix that is reserved for the protocol.

    From 2025-11-25 on it is one whose second label is ``mcp`` or ``modelcontextprotocol`` (META-04), in 2025-06-18 one
    whose last label but one is (META-05); earlier revisions reserve nothing. ``None`` asks for any of them.
    """
    prefix, slash, _ = key.rpartition("/")
    labels = prefix.split(".")
    if not slash or len(labels) < 2:
        return False
    first_shape = labels[-2] in _RESERVED and (revision is None or revision is REV_2025_06_18)
    second_shape = labels[1] in _RESERVED and (revision is None or revision >= REV_2025_11_25)
    return first_shape or second_shape


_LABEL = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?", re.ASCII)
_NAME = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?", re.ASCII)
_RESERVED = frozenset({"mcp", "modelcontextprotocol"})


# --------------------------------------------------------------------------------------------------------------- custom
# Requests and notifications named by their method: those of extensions, and those that a gateway forwards.


@attrs.frozen
class CustomRequest:
    """A request of an extension. ``params`` are sent unchanged and include ``_meta``, if any."""

    method: str
    params: Mapping[str, Any] = EMPTY


@attrs.frozen
class CustomNotification:
    """A notification of an extension. ``params`` are sent unchanged."""

    method: str
    params: Mapping[str, Any] = EMPTY


@attrs.frozen
class RawRequest:
    """A request of any method, for gateways that forward requests of others (P8).

    ``params`` are sent unchanged. Neither their members nor the keys of ``_meta`` are checked, since this side did not
    choose them (META-07). A request that the phase, the revision or the capabilities forbid is refused all the same.
    With ``progress=True`` this side's token replaces a progress token in ``_meta``; without it such a token is refused.
    """

    method: str
    params: Mapping[str, Any] = EMPTY


@attrs.frozen
class RawNotification:
    """A notification of any method, for gateways. ``params`` are sent unchanged: see ``RawRequest``."""

    method: str
    params: Mapping[str, Any] = EMPTY
