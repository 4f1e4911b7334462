"""Completion: suggestions for an argument of a prompt or a resource template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, TypeAlias

from mcpio.revisions import REV_2025_06_18, Revision
from mcpio.types._fields import Payload, payload, tagged, wire
from mcpio.types.messages import FinalResult, RequestPayload

__all__ = [
    "CompleteRequest",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "CompletionReference",
    "PromptReference",
    "ResourceTemplateReference",
]


@payload
class PromptReference(Payload):
    """A reference to a prompt."""

    CONSTANTS: ClassVar[tuple[str, ...]] = ("type",)
    type: ClassVar[Literal["ref/prompt"]] = "ref/prompt"

    name: str
    title: str | None = wire(default=None, since=REV_2025_06_18)


@payload
class ResourceTemplateReference(Payload):
    """A reference to a resource or a resource template, called ``ResourceReference`` before 2025-06-18."""

    CONSTANTS: ClassVar[tuple[str, ...]] = ("type",)
    type: ClassVar[Literal["ref/resource"]] = "ref/resource"

    uri: str
    """A URI, or a template of RFC 6570."""


CompletionReference: TypeAlias = Annotated[
    PromptReference | ResourceTemplateReference, tagged(PromptReference, ResourceTemplateReference)
]
"""The only two kinds: ``ref/tool`` is refused (COMP-02)."""


@payload
class CompletionArgument(Payload):
    """The argument to complete, and its text so far."""

    name: str
    value: str


@payload
class CompletionContext(Payload):
    """The values of the other arguments chosen so far (COMP-03)."""

    SINCE: ClassVar[Revision] = REV_2025_06_18

    arguments: Mapping[str, str] | None = None


@payload
class CompleteRequest(RequestPayload):
    """Ask for completions of an argument."""

    ref: CompletionReference
    argument: CompletionArgument
    context: CompletionContext | None = wire(default=None, since=REV_2025_06_18)


@payload
class Completion(Payload):
    """At most 100 values, the best first (COMP-04, COMP-07)."""

    values: tuple[str, ...]
    total: int | None = None
    """The total number of values, if known."""
    has_more: bool | None = None


@payload
class CompleteResult(FinalResult):
    """The completions of an argument."""

    completion: Completion
