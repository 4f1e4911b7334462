"""Completion: what an argument of a prompt or of a resource template may be."""

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
    """Refers to a prompt."""

    CONSTANTS: ClassVar[tuple[str, ...]] = ("type",)
    type: ClassVar[Literal["ref/prompt"]] = "ref/prompt"

    name: str
    title: str | None = wire(default=None, since=REV_2025_06_18)


@payload
class ResourceTemplateReference(Payload):
    """Refers to a resource or a resource template. Its name before 2025-06-18 is ``ResourceReference``."""

    CONSTANTS: ClassVar[tuple[str, ...]] = ("type",)
    type: ClassVar[Literal["ref/resource"]] = "ref/resource"

    uri: str
    """A URI, or a template of RFC 6570."""


CompletionReference: TypeAlias = Annotated[
    PromptReference | ResourceTemplateReference, tagged(PromptReference, ResourceTemplateReference)
]
"""There is no other: ``ref/tool`` is a fault (COMP-02)."""


@payload
class CompletionArgument(Payload):
    """The argument to complete, and what there is of it so far."""

    name: str
    value: str


@payload
class CompletionContext(Payload):
    """The other arguments, as far as they are chosen (COMP-03)."""

    SINCE: ClassVar[Revision] = REV_2025_06_18

    arguments: Mapping[str, str] | None = None


@payload
class CompleteRequest(RequestPayload):
    """Ask how an argument may go on."""

    ref: CompletionReference
    argument: CompletionArgument
    context: CompletionContext | None = wire(default=None, since=REV_2025_06_18)


@payload
class Completion(Payload):
    """At most 100 values, the best first (COMP-04, COMP-07)."""

    values: tuple[str, ...]
    total: int | None = None
    """How many there are in all, as far as known."""
    has_more: bool | None = None


@payload
class CompleteResult(FinalResult):
    """How the argument may go on."""

    completion: Completion
