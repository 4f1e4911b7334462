"""Elicitation: a server asks the client's user, by a form or at a URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

import attrs

from mcpio.revisions import REV_2025_06_18, REV_2025_11_25, Revision
from mcpio.types._fields import Choice, Payload, Unknown, payload, wire
from mcpio.types.messages import NotificationPayload, RequestPayload, ResultPayload

if TYPE_CHECKING:
    from mcpio.types.tasks import TaskMetadata

__all__ = [
    "BooleanSchema",
    "ElicitAction",
    "ElicitFormRequest",
    "ElicitRequest",
    "ElicitResult",
    "ElicitSchema",
    "ElicitURLRequest",
    "ElicitValue",
    "ElicitationCompleteNotification",
    "LegacyTitledEnumSchema",
    "MultiSelectItems",
    "NumberSchema",
    "PrimitiveSchema",
    "StringFormat",
    "StringSchema",
    "TitledChoice",
    "TitledItems",
    "TitledMultiSelectEnumSchema",
    "TitledSingleSelectEnumSchema",
    "URLElicitationRequiredData",
    "UnknownSchema",
    "UntitledMultiSelectEnumSchema",
    "UntitledSingleSelectEnumSchema",
]

ElicitAction = Literal["accept", "decline", "cancel"]
StringFormat = Literal["email", "uri", "date", "date-time"]

# The fields of a form: a small part of JSON Schema with its own type (SCHEMA-08, ELIC-04 to ELIC-08).


@payload
class StringSchema(Payload):
    """A text field. Lengths are in characters."""

    SINCE: ClassVar[Revision] = REV_2025_06_18
    CONSTANTS: ClassVar[tuple[str, ...]] = ("type",)
    type: ClassVar[Literal["string"]] = "string"

    title: str | None = None
    description: str | None = None
    min_length: int | None = None
    max_length: int | None = None
    format: StringFormat | None = None
    default: str | None = wire(default=None, since=REV_2025_11_25)


@payload
class NumberSchema(Payload):
    """A number field."""

    SINCE: ClassVar[Revision] = REV_2025_06_18

    type: Literal["number", "integer"] = wire(default="number", always=True, required=True)
    title: str | None = None
    description: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    default: float | None = wire(default=None, since=REV_2025_11_25)


@payload
class BooleanSchema(Payload):
    """A checkbox."""

    SINCE: ClassVar[Revision] = REV_2025_06_18
    CONSTANTS: ClassVar[tuple[str, ...]] = ("type",)
    type: ClassVar[Literal["boolean"]] = "boolean"

    title: str | None = None
    description: str | None = None
    default: bool | None = None


@payload
class LegacyTitledEnumSchema(Payload):
    """A choice of one, as 2025-06-18 writes it: there it is called ``EnumSchema``."""

    SINCE: ClassVar[Revision] = REV_2025_06_18
    CONSTANTS: ClassVar[tuple[str, ...]] = ("type",)
    type: ClassVar[Literal["string"]] = "string"

    enum: tuple[str, ...]
    enum_names: tuple[str, ...] | None = None
    """The label of each value, in the same order."""
    title: str | None = None
    description: str | None = None
    default: str | None = wire(default=None, since=REV_2025_11_25)


@payload
class UntitledSingleSelectEnumSchema(Payload):
    """A choice of one. In 2025-06-18 it is an ``EnumSchema`` without names."""

    SINCE: ClassVar[Revision] = REV_2025_06_18
    CONSTANTS: ClassVar[tuple[str, ...]] = ("type",)
    type: ClassVar[Literal["string"]] = "string"

    enum: tuple[str, ...]
    title: str | None = None
    description: str | None = None
    default: str | None = wire(default=None, since=REV_2025_11_25)


@payload
class TitledChoice(Payload):
    """A value and its label."""

    SINCE: ClassVar[Revision] = REV_2025_11_25

    const: str
    title: str


@payload
class TitledSingleSelectEnumSchema(Payload):
    """A choice of one among titled values."""

    SINCE: ClassVar[Revision] = REV_2025_11_25
    CONSTANTS: ClassVar[tuple[str, ...]] = ("type",)
    type: ClassVar[Literal["string"]] = "string"

    one_of: tuple[TitledChoice, ...]
    title: str | None = None
    description: str | None = None
    default: str | None = None


@payload
class MultiSelectItems(Payload):
    """The values of a multiple choice."""

    SINCE: ClassVar[Revision] = REV_2025_11_25
    CONSTANTS: ClassVar[tuple[str, ...]] = ("type",)
    type: ClassVar[Literal["string"]] = "string"

    enum: tuple[str, ...]


@payload
class UntitledMultiSelectEnumSchema(Payload):
    """A multiple choice."""

    SINCE: ClassVar[Revision] = REV_2025_11_25
    CONSTANTS: ClassVar[tuple[str, ...]] = ("type",)
    type: ClassVar[Literal["array"]] = "array"

    items: MultiSelectItems
    title: str | None = None
    description: str | None = None
    min_items: int | None = None
    max_items: int | None = None
    default: tuple[str, ...] | None = None


@payload
class TitledItems(Payload):
    """The titled values of a multiple choice."""

    SINCE: ClassVar[Revision] = REV_2025_11_25

    any_of: tuple[TitledChoice, ...]


@payload
class TitledMultiSelectEnumSchema(Payload):
    """A multiple choice among titled values."""

    SINCE: ClassVar[Revision] = REV_2025_11_25
    CONSTANTS: ClassVar[tuple[str, ...]] = ("type",)
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
class ElicitSchema(Payload):
    """A form: its fields by name, and which of them must be filled in."""

    SINCE: ClassVar[Revision] = REV_2025_06_18
    CONSTANTS: ClassVar[tuple[str, ...]] = ("type",)
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
class ElicitRequest(RequestPayload):
    """The base of ``ElicitFormRequest`` and ``ElicitURLRequest``; decoding gives one of them (ELIC-03).

    A value inside an ``InputRequiredResult`` since 2026-07-28.
    """

    SINCE: ClassVar[Revision] = REV_2025_06_18
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
class ElicitURLRequest(ElicitRequest):
    """Ask the user to visit a URL. Do not open it without their consent (ELIC-18)."""

    SINCE: ClassVar[Revision] = REV_2025_11_25
    CONSTANTS: ClassVar[tuple[str, ...]] = ("mode",)
    mode: ClassVar[Literal["url"]] = "url"

    url: str
    elicitation_id: str | None = wire(default=None, until=REV_2025_11_25, required=True)
    """The server's id of this elicitation, in 2025-11-25 only, and required there (ELIC-14)."""
    task: TaskMetadata | None = wire(default=None, until=REV_2025_11_25, essential=True)
    """Asks for the request to run as a task (TASK-08)."""


ElicitValue: TypeAlias = str | int | float | bool | tuple[str, ...]
"""The value of a form field; a tuple for a multiple choice (ELIC-10)."""


@payload
class ElicitResult(ResultPayload):
    """The user's reaction. ``content`` is present only when a form was accepted (ELIC-10)."""

    SINCE: ClassVar[Revision] = REV_2025_06_18

    action: ElicitAction
    content: Mapping[str, ElicitValue] | None = wire(default=None, strict=True)


@payload
class ElicitationCompleteNotification(NotificationPayload):
    """The user completed a URL elicitation (ELIC-16)."""

    SINCE: ClassVar[Revision] = REV_2025_11_25
    UNTIL: ClassVar[Revision] = REV_2025_11_25

    elicitation_id: str


@payload
class URLElicitationRequiredData(Payload):
    """The ``data`` of error -32042: the URLs that the user must visit first (ELIC-17)."""

    SINCE: ClassVar[Revision] = REV_2025_11_25
    UNTIL: ClassVar[Revision] = REV_2025_11_25

    elicitations: tuple[ElicitURLRequest, ...]
