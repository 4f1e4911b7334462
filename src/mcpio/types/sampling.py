"""Sampling: a server asks its client's model."""

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
    """The model wants a tool called (SAMP-11)."""

    SINCE: ClassVar[Revision] = REV_2025_11_25
    CONSTANTS: ClassVar[tuple[str, ...]] = ("type",)
    type: ClassVar[Literal["tool_use"]] = "tool_use"

    id: str
    name: str
    input: Mapping[str, Any]


@payload
class ToolResultContent(ObjectPayload):
    """What a tool returned to the model. ``tool_use_id`` is the ``id`` of the ``ToolUseContent`` it answers."""

    SINCE: ClassVar[Revision] = REV_2025_11_25
    CONSTANTS: ClassVar[tuple[str, ...]] = ("type",)
    type: ClassVar[Literal["tool_result"]] = "tool_result"

    tool_use_id: str
    content: tuple[ContentBlock, ...]
    structured_content: Any = wire(default=None, object_until=REV_2025_11_25)
    """``None`` when there is none. An object; since 2026-07-28 any JSON value (GONE-07).

    JSON's null, which only 2026-07-28 allows, is ``None`` with ``"structured_content"`` in ``given``: see
    ``has_structured_content``.
    """
    is_error: bool = False

    @property
    def has_structured_content(self) -> bool:
        """Whether there is structured content: ``None`` may stand for JSON's null."""
        return self.structured_content is not None or "structured_content" in self.given

    @property
    def text(self) -> str:
        """The text blocks, with a line break between them."""
        return text_of(self.content)


SamplingContent: TypeAlias = Annotated[
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent | UnknownContent,
    tagged(TextContent, ImageContent, AudioContent, ToolUseContent, ToolResultContent, unknown=unknown_content),
]
"""What messages to and from the model are made of (SAMP-04)."""

SamplingContents: TypeAlias = Annotated[
    SamplingContent | tuple[SamplingContent, ...], OneOrMore(SamplingContent, since=REV_2025_11_25)
]
"""One block; since 2025-11-25 also several. The ``blocks`` of its owner are always a tuple.

A tuple of one block is written as the block itself, which every peer reads.
"""


@payload
class SamplingMessage(Payload):
    """One message of the conversation that the model is to go on with."""

    role: Role
    content: SamplingContents
    meta: Mapping[str, Any] = field(default=EMPTY, kw_only=True, metadata=wired(name="_meta", since=REV_2025_11_25))
    """Protocol metadata (META-01)."""

    @property
    def blocks(self) -> tuple[SamplingContent, ...]:
        """The content as a tuple, also when it is a single block."""
        return tuple(self.content) if isinstance(self.content, (tuple, list)) else (self.content,)

    @property
    def text(self) -> str:
        """The text blocks, with a line break between them."""
        return text_of(self.blocks)


@payload
class ModelHint(Description):
    """A part of the name of a model that would suit (SAMP-13)."""

    name: str | None = None


@payload
class ModelPreferences(Description):
    """Which model would suit: all of it advice (SAMP-13). Priorities go from 0 to 1."""

    hints: tuple[ModelHint, ...] = ()
    """The first that matches wins."""
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
    """For the provider of the model; its form is the provider's."""
    tools: tuple[Tool, ...] | None = wire(default=None, since=REV_2025_11_25, essential=True)
    """What the model may use. Needs the client's ``sampling.tools`` (SAMP-05)."""
    tool_choice: ToolChoice | None = wire(default=None, since=REV_2025_11_25, essential=True)
    task: TaskMetadata | None = wire(default=None, since=REV_2025_11_25, until=REV_2025_11_25, essential=True)
    """Asks for the request to run as a task (TASK-08)."""


@payload
class CreateMessageResult(ResultPayload):
    """What the model said."""

    role: Role
    content: SamplingContents
    model: str
    """The name of the model."""
    stop_reason: str | None = None
    """``"endTurn"``, ``"stopSequence"``, ``"maxTokens"``, ``"toolUse"`` or another."""

    @property
    def blocks(self) -> tuple[SamplingContent, ...]:
        """The content as a tuple, also when it is a single block."""
        return tuple(self.content) if isinstance(self.content, (tuple, list)) else (self.content,)

    @property
    def text(self) -> str:
        """The text blocks, with a line break between them."""
        return text_of(self.blocks)
