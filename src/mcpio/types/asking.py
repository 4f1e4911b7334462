"""What servers ask clients for: sampling, elicitation and roots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

import attrs
from attrs import field

from mcpio.revisions import REV_2025_06_18, REV_2025_11_25
from mcpio.types._fields import (
    EMPTY,
    NOT_ON_THE_WIRE,
    Choice,
    Description,
    MalformedItem,
    OneOrMore,
    Payload,
    Unknown,
    payload,
    tagged,
    wire,
    wired,
)
from mcpio.types.base import NotificationPayload, ObjectPayload, RequestPayload, ResultPayload
from mcpio.types.content import (
    AudioContent,
    ContentBlock,
    ImageContent,
    Role,
    TextContent,
    UnknownContent,
    text_of,
    unknown_content,
)

if TYPE_CHECKING:
    from mcpio.types.features import Tool
    from mcpio.types.tasks import TaskMetadata

__all__ = [
    "BooleanSchema",
    "CreateMessageRequest",
    "CreateMessageResult",
    "ElicitAction",
    "ElicitFormRequest",
    "ElicitRequest",
    "ElicitResult",
    "ElicitSchema",
    "ElicitURLRequest",
    "ElicitValue",
    "ElicitationCompleteNotification",
    "IncludeContext",
    "LegacyTitledEnumSchema",
    "ListRootsRequest",
    "ListRootsResult",
    "ModelHint",
    "ModelPreferences",
    "MultiSelectItems",
    "NumberSchema",
    "PrimitiveSchema",
    "Root",
    "RootsListChangedNotification",
    "SamplingContent",
    "SamplingContents",
    "SamplingMessage",
    "StringFormat",
    "StringSchema",
    "TitledChoice",
    "TitledItems",
    "TitledMultiSelectEnumSchema",
    "TitledSingleSelectEnumSchema",
    "ToolChoice",
    "ToolChoiceMode",
    "ToolResultContent",
    "ToolUseContent",
    "URLElicitationRequiredData",
    "UnknownSchema",
    "UntitledMultiSelectEnumSchema",
    "UntitledSingleSelectEnumSchema",
]


# ------------------------------------------------------------------------------------------------------------- sampling
# Sampling: a server asks its client's model for a message.

IncludeContext = Literal["none", "thisServer", "allServers"]
ToolChoiceMode = Literal["auto", "required", "none"]


@payload
class ToolUseContent(ObjectPayload, since=REV_2025_11_25):
    """A tool call that the model asks for (SAMP-11)."""

    type: ClassVar[Literal["tool_use"]] = "tool_use"

    id: str
    name: str
    input: Mapping[str, Any]


@payload
class ToolResultContent(ObjectPayload, since=REV_2025_11_25):
    """The result of a tool call. ``tool_use_id`` is the ``id`` of the ``ToolUseContent`` that it answers."""

    type: ClassVar[Literal["tool_result"]] = "tool_result"

    tool_use_id: str
    content: tuple[ContentBlock, ...]
    structured_content: Any = wire(default=None, object_until=REV_2025_11_25)
    """An object, or ``None`` if absent; since 2026-07-28 any JSON value (GONE-07).

    JSON's null, which only 2026-07-28 allows, is ``None`` with ``"structured_content"`` in ``given``: see
    ``has_structured_content``.
    """
    is_error: bool = False

    @property
    def has_structured_content(self) -> bool:
        """Whether structured content is present: ``None`` may be JSON's null."""
        return self.structured_content is not None or "structured_content" in self.given

    @property
    def text(self) -> str:
        """The text blocks, joined by line breaks."""
        return text_of(self.content)


SamplingContent: TypeAlias = Annotated[
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent | UnknownContent,
    tagged(TextContent, ImageContent, AudioContent, ToolUseContent, ToolResultContent, unknown=unknown_content),
]
"""A block of a message to or from the model (SAMP-04)."""

SamplingContents: TypeAlias = Annotated[
    SamplingContent | tuple[SamplingContent, ...], OneOrMore(SamplingContent, since=REV_2025_11_25)
]
"""One block or, since 2025-11-25, several. The property ``blocks`` of its owner is always a tuple.

A tuple of one block is written as the block itself, which every peer reads.
"""


@payload
class SamplingMessage(Payload):
    """One message of the conversation that the model continues."""

    role: Role
    content: SamplingContents
    meta: Mapping[str, Any] = field(default=EMPTY, kw_only=True, metadata=wired(name="_meta", since=REV_2025_11_25))
    """Protocol metadata (META-01)."""

    @property
    def blocks(self) -> tuple[SamplingContent, ...]:
        """The content as a tuple, even if it is a single block."""
        return tuple(self.content) if isinstance(self.content, (tuple, list)) else (self.content,)

    @property
    def text(self) -> str:
        """The text blocks, joined by line breaks."""
        return text_of(self.blocks)


@payload
class ModelHint(Description):
    """A substring of the name of a suitable model (SAMP-13)."""

    name: str | None = None


@payload
class ModelPreferences(Description):
    """Preferences for the choice of a model, all of them advice (SAMP-13). Priorities range from 0 to 1."""

    hints: tuple[ModelHint, ...] = ()
    """The first match wins."""
    cost_priority: float | None = wire(default=None, limits=(0, 1))
    speed_priority: float | None = wire(default=None, limits=(0, 1))
    intelligence_priority: float | None = wire(default=None, limits=(0, 1))


@payload
class ToolChoice(Payload, since=REV_2025_11_25):
    """Whether the model may, must or must not use tools (SAMP-08)."""

    mode: ToolChoiceMode | None = None
    """``None`` means ``"auto"``."""


@payload
class CreateMessageRequest(RequestPayload):
    """Ask the client's model for a message. A value inside an ``InputRequiredResult`` since 2026-07-28."""

    messages: tuple[SamplingMessage, ...]
    max_tokens: int
    system_prompt: str | None = None
    model_preferences: ModelPreferences | None = None
    include_context: IncludeContext | None = None
    """``None`` means ``"none"``; the others are deprecated (SAMP-07)."""
    temperature: float | None = None
    stop_sequences: tuple[str, ...] | None = None
    metadata: Mapping[str, Any] | None = None
    """Passed to the provider of the model, which defines its form."""
    tools: tuple[Tool, ...] | None = wire(default=None, since=REV_2025_11_25, essential=True)
    """The tools that the model may use. Requires the client's ``sampling.tools`` (SAMP-05)."""
    tool_choice: ToolChoice | None = wire(default=None, since=REV_2025_11_25, essential=True)
    task: TaskMetadata | None = wire(default=None, since=REV_2025_11_25, until=REV_2025_11_25, essential=True)
    """Asks for the request to run as a task (TASK-08)."""


@payload
class CreateMessageResult(ResultPayload):
    """The message of the model."""

    role: Role
    content: SamplingContents
    model: str
    """The name of the model."""
    stop_reason: str | None = None
    """``"endTurn"``, ``"stopSequence"``, ``"maxTokens"``, ``"toolUse"`` or another."""

    @property
    def blocks(self) -> tuple[SamplingContent, ...]:
        """The content as a tuple, even if it is a single block."""
        return tuple(self.content) if isinstance(self.content, (tuple, list)) else (self.content,)

    @property
    def text(self) -> str:
        """The text blocks, joined by line breaks."""
        return text_of(self.blocks)


# ---------------------------------------------------------------------------------------------------------- elicitation
# Elicitation: a server asks the client's user, by a form or at a URL.

ElicitAction = Literal["accept", "decline", "cancel"]
StringFormat = Literal["email", "uri", "date", "date-time"]

# The fields of a form: a small part of JSON Schema with its own type (SCHEMA-08, ELIC-04 to ELIC-08).


@payload
class StringSchema(Payload, since=REV_2025_06_18):
    """A text field. Lengths are in characters."""

    type: ClassVar[Literal["string"]] = "string"

    title: str | None = None
    description: str | None = None
    min_length: int | None = None
    max_length: int | None = None
    format: StringFormat | None = None
    default: str | None = wire(default=None, since=REV_2025_11_25)


@payload
class NumberSchema(Payload, since=REV_2025_06_18):
    """A number field."""

    type: Literal["number", "integer"] = wire(default="number", always=True, required=True)
    title: str | None = None
    description: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    default: float | None = wire(default=None, since=REV_2025_11_25)


@payload
class BooleanSchema(Payload, since=REV_2025_06_18):
    """A checkbox."""

    type: ClassVar[Literal["boolean"]] = "boolean"

    title: str | None = None
    description: str | None = None
    default: bool | None = None


@payload
class LegacyTitledEnumSchema(Payload, since=REV_2025_06_18):
    """A choice of one, as 2025-06-18 writes it: there it is called ``EnumSchema``."""

    type: ClassVar[Literal["string"]] = "string"

    enum: tuple[str, ...]
    enum_names: tuple[str, ...] | None = None
    """The label of each value, in the same order."""
    title: str | None = None
    description: str | None = None
    default: str | None = wire(default=None, since=REV_2025_11_25)


@payload
class UntitledSingleSelectEnumSchema(Payload, since=REV_2025_06_18):
    """A choice of one. In 2025-06-18 it is an ``EnumSchema`` without names."""

    type: ClassVar[Literal["string"]] = "string"

    enum: tuple[str, ...]
    title: str | None = None
    description: str | None = None
    default: str | None = wire(default=None, since=REV_2025_11_25)


@payload
class TitledChoice(Payload, since=REV_2025_11_25):
    """A value and its label."""

    const: str
    title: str


@payload
class TitledSingleSelectEnumSchema(Payload, since=REV_2025_11_25):
    """A choice of one among titled values."""

    type: ClassVar[Literal["string"]] = "string"

    one_of: tuple[TitledChoice, ...]
    title: str | None = None
    description: str | None = None
    default: str | None = None


@payload
class MultiSelectItems(Payload, since=REV_2025_11_25):
    """The values of a multiple choice."""

    type: ClassVar[Literal["string"]] = "string"

    enum: tuple[str, ...]


@payload
class UntitledMultiSelectEnumSchema(Payload, since=REV_2025_11_25):
    """A multiple choice."""

    type: ClassVar[Literal["array"]] = "array"

    items: MultiSelectItems
    title: str | None = None
    description: str | None = None
    min_items: int | None = None
    max_items: int | None = None
    default: tuple[str, ...] | None = None


@payload
class TitledItems(Payload, since=REV_2025_11_25):
    """The titled values of a multiple choice."""

    any_of: tuple[TitledChoice, ...]


@payload
class TitledMultiSelectEnumSchema(Payload, since=REV_2025_11_25):
    """A multiple choice among titled values."""

    type: ClassVar[Literal["array"]] = "array"

    items: TitledItems
    title: str | None = None
    description: str | None = None
    min_items: int | None = None
    max_items: int | None = None
    default: tuple[str, ...] | None = None


@attrs.frozen
class UnknownSchema(Unknown):
    """A field of a form that this library or the revision does not know."""

    raw: Mapping[str, Any]
    """The whole schema as received; it is sent again unchanged."""


def _schema_class(raw: Mapping[str, Any]) -> type[Payload] | None:
    match raw.get("type"):
        case "string" if "oneOf" in raw:
            return TitledSingleSelectEnumSchema
        case "string" if "enumNames" in raw:
            return LegacyTitledEnumSchema
        case "string" if "enum" in raw:
            return UntitledSingleSelectEnumSchema
        case "string":
            return StringSchema
        case "number" | "integer":
            return NumberSchema
        case "boolean":
            return BooleanSchema
        case "array":
            return _multi_select_class(raw.get("items"))
    return None


def _multi_select_class(items: Any) -> type[Payload] | None:
    if not isinstance(items, Mapping):
        return None
    if "anyOf" in items:
        return TitledMultiSelectEnumSchema
    return UntitledMultiSelectEnumSchema if "enum" in items else None


PrimitiveSchema: TypeAlias = Annotated[
    StringSchema
    | NumberSchema
    | BooleanSchema
    | UntitledSingleSelectEnumSchema
    | TitledSingleSelectEnumSchema
    | UntitledMultiSelectEnumSchema
    | TitledMultiSelectEnumSchema
    | LegacyTitledEnumSchema
    | UnknownSchema,
    Choice(_schema_class, unknown=UnknownSchema),
]
"""A field of a form."""


@payload
class ElicitSchema(Payload, since=REV_2025_06_18):
    """A form: its fields by name, and which of them must be filled in."""

    type: ClassVar[Literal["object"]] = "object"

    properties: Mapping[str, PrimitiveSchema]
    required: tuple[str, ...] = ()
    schema: str | None = wire(default=None, name="$schema", since=REV_2025_11_25)


# The request: one class for each mode


def _request_class(raw: Mapping[str, Any]) -> type[Payload] | None:
    match raw.get("mode", "form"):
        case "form":
            return ElicitFormRequest
        case "url":
            return ElicitURLRequest
    return None


@payload
class ElicitRequest(RequestPayload, since=REV_2025_06_18):
    """The base of ``ElicitFormRequest`` and ``ElicitURLRequest``; decoding gives one of them (ELIC-03).

    A value inside an ``InputRequiredResult`` since 2026-07-28.
    """

    CHOICE: ClassVar[Choice | None] = Choice(_request_class, member="mode")

    message: str
    """The text for the user."""


@payload
class ElicitFormRequest(ElicitRequest):
    """Ask the user to fill in a form. Never for secrets (ELIC-13)."""

    requested_schema: ElicitSchema
    mode: Literal["form"] = wire(default="form", since=REV_2025_11_25)
    task: TaskMetadata | None = wire(default=None, since=REV_2025_11_25, until=REV_2025_11_25, essential=True)
    """Asks for the request to run as a task (TASK-08)."""


@payload
class ElicitURLRequest(ElicitRequest, since=REV_2025_11_25):
    """Ask the user to visit a URL. Do not open it without their consent (ELIC-18)."""

    mode: ClassVar[Literal["url"]] = "url"

    url: str
    elicitation_id: str | None = wire(default=None, until=REV_2025_11_25, required=True)
    """The server's id of this elicitation, in 2025-11-25 only, and required there (ELIC-14)."""
    task: TaskMetadata | None = wire(default=None, until=REV_2025_11_25, essential=True)
    """Asks for the request to run as a task (TASK-08)."""


ElicitValue: TypeAlias = str | int | float | bool | tuple[str, ...]
"""The value of a form field; a tuple for a multiple choice (ELIC-10)."""


@payload
class ElicitResult(ResultPayload, since=REV_2025_06_18):
    """The user's reaction. ``content`` is present only when a form was accepted (ELIC-10)."""

    action: ElicitAction
    content: Mapping[str, ElicitValue] | None = wire(default=None, strict=True)


@payload
class ElicitationCompleteNotification(NotificationPayload, since=REV_2025_11_25, until=REV_2025_11_25):
    """The user completed a URL elicitation (ELIC-16)."""

    elicitation_id: str


@payload
class URLElicitationRequiredData(Payload, since=REV_2025_11_25, until=REV_2025_11_25):
    """The ``data`` of error -32042: the URLs that the user must visit first (ELIC-17)."""

    elicitations: tuple[ElicitURLRequest, ...]


# ---------------------------------------------------------------------------------------------------------------- roots
# Roots: the places in the client's file system that a server may look at.


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
class ListRootsResult(ResultPayload, itemwise="roots"):
    """The roots."""

    roots: tuple[Root, ...]
    malformed: tuple[MalformedItem, ...] = field(default=(), kw_only=True, metadata=NOT_ON_THE_WIRE)
    """Items that are not well-formed; they cost only themselves."""


@payload
class RootsListChangedNotification(NotificationPayload, until=REV_2025_11_25):
    """The list of roots changed."""
