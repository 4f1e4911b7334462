"""Prompts: message templates that a server offers to users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from mcpio.revisions import REV_2025_06_18, REV_2025_11_25, REV_2026_07_28
from mcpio.types._fields import Payload, payload, wire
from mcpio.types.messages import FinalResult, ListResult, NotificationPayload, ObjectPayload, RequestPayload

if TYPE_CHECKING:
    from mcpio.types.content import ContentBlock, Icon, Role
    from mcpio.types.inputs import InputResponse

__all__ = [
    "GetPromptRequest",
    "GetPromptResult",
    "ListPromptsRequest",
    "ListPromptsResult",
    "Prompt",
    "PromptArgument",
    "PromptListChangedNotification",
    "PromptMessage",
]


@payload
class PromptArgument(Payload):
    """An argument that a prompt takes."""

    name: str
    description: str | None = None
    required: bool = False
    title: str | None = wire(default=None, since=REV_2025_06_18)


@payload
class Prompt(ObjectPayload):
    """A prompt."""

    name: str
    description: str | None = None
    arguments: tuple[PromptArgument, ...] = wire(default=(), strict=True)
    title: str | None = wire(default=None, since=REV_2025_06_18)
    icons: tuple[Icon, ...] = wire(default=(), since=REV_2025_11_25)

    @property
    def display_name(self) -> str:
        """The title, or the name if the title is absent."""
        return self.name if self.title is None else self.title


@payload
class PromptMessage(Payload):
    """One message of a prompt."""

    role: Role
    content: ContentBlock

    @property
    def text(self) -> str:
        """The text of the content; empty if it is not a text block."""
        from mcpio.types.content import text_of

        return text_of((self.content,))


@payload
class ListPromptsRequest(RequestPayload):
    """Ask for a page of the prompts: the first, without ``cursor``."""

    cursor: str | None = None


@payload
class ListPromptsResult(ListResult):
    """A page of the prompts. Only ``next_cursor`` of ``None`` ends the list (GONE-05)."""

    ITEMWISE: ClassVar[str | None] = "prompts"

    prompts: tuple[Prompt, ...]
    next_cursor: str | None = wire(default=None, strict=True)


@payload
class GetPromptRequest(RequestPayload):
    """Ask for a prompt, filled in with string arguments."""

    name: str
    arguments: Mapping[str, str] | None = None
    input_responses: Mapping[str, InputResponse] | None = wire(default=None, since=REV_2026_07_28, essential=True)
    """The answers to an ``InputRequiredResult``, by its keys (MRTR-06)."""
    request_state: str | None = wire(default=None, since=REV_2026_07_28, essential=True)
    """The server's state, returned untouched (MRTR-06)."""


@payload
class GetPromptResult(FinalResult):
    """A prompt, filled in."""

    messages: tuple[PromptMessage, ...]
    description: str | None = None


@payload
class PromptListChangedNotification(NotificationPayload):
    """The list of prompts changed."""
