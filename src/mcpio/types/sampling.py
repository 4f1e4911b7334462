"""Sampling: a server asks its client's model for a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from attrs import field

from mcpio.revisions import REV_2025_11_25, Revision
from mcpio.types._fields import EMPTY, Description, OneOrMore, Payload, payload, tagged, wire, wired
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
from mcpio.types.messages import ObjectPayload, RequestPayload, ResultPayload

if TYPE_CHECKING:
    from mcpio.types.tasks import TaskMetadata
    from mcpio.types.tools import Tool

__all__ = [
    "CreateMessageRequest",
    "CreateMessageResult",
    "IncludeContext",
    "ModelHint",
    "ModelPreferences",
    "SamplingContent",
    "SamplingContents",
    "SamplingMessage",
    "ToolChoice",
    "ToolChoiceMode",
    "ToolResultContent",
    "ToolUseContent",
]

IncludeContext = Literal["none", "thisServer", "allServers"]
ToolChoiceMode = Literal["auto", "required", "none"]


@payload
class ToolUseContent(ObjectPayload):
    """A tool call that the model asks for (SAMP-11)."""

    SINCE: ClassVar[Revision] = REV_2025_11_25
    CONSTANTS: ClassVar[tuple[str, ...]] = ("type",)
    type: ClassVar[Literal["tool_use"]] = "tool_use"

    id: str
    name: str
    input: Mapping[str, Any]


@payload
class ToolResultContent(ObjectPayload):
    """The result of a tool call. ``tool_use_id`` is the ``id`` of the ``ToolUseContent`` that it answers."""

    SINCE: ClassVar[Revision] = REV_2025_11_25
    CONSTANTS: ClassVar[tuple[str, ...]] = ("type",)
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
class ToolChoice(Payload):
    """Whether the model may, must or must not use tools (SAMP-08)."""

    SINCE: ClassVar[Revision] = REV_2025_11_25

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
