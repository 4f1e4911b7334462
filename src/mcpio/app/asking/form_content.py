"""What a form holds, against the form: on its way out of a client, and when it arrives at the server (ELIC-12)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from mcpio.app.values.faults import Fault, expected
from mcpio.app.values.formats import check_format
from mcpio.revisions import REV_2025_11_25
from mcpio.types.elicitation import (
    BooleanSchema,
    ElicitSchema,
    LegacyTitledEnumSchema,
    NumberSchema,
    StringSchema,
    TitledMultiSelectEnumSchema,
    TitledSingleSelectEnumSchema,
    UnknownSchema,
    UntitledMultiSelectEnumSchema,
    UntitledSingleSelectEnumSchema,
)

if TYPE_CHECKING:
    from mcpio.revisions import Revision
    from mcpio.types.elicitation import ElicitValue, PrimitiveSchema

__all__ = ["check_content", "defaults_of", "lowered", "secrets_in"]


def defaults_of(form: ElicitSchema) -> dict[str, ElicitValue]:
    """Return what a form says its fields hold at first, by name: what to show in them (ELIC-09)."""
    defaults = {}
    for name, field in form.properties.items():
        default = field.raw.get("default") if isinstance(field, UnknownSchema) else field.default
        if default is not None:
            defaults[name] = default
    return defaults


def check_content(form: ElicitSchema, content: Mapping[str, Any]) -> None:
    """Return when a form may be filled in like this; ``InvalidMessage`` names the field that is wrong, and why.

    Members that the form does not have are not looked at.
    """
    missing = [name for name in form.required if name not in content]
    if missing:
        raise Fault(f"missing: {', '.join(missing)}").as_invalid("content")
    for name, field in form.properties.items():
        if name in content:
            try:
                _check(field, content[name])
            except Fault as fault:
                fault.steps.append(name)
                raise fault.as_invalid("content") from None


def lowered(form: ElicitSchema, revision: Revision) -> ElicitSchema:
    """Return a form in the words of a revision, as far as it has them: titles of choices as 2025-06-18 says them."""
    if revision >= REV_2025_11_25:
        return form
    fields = {name: _lowered(field) for name, field in form.properties.items()}
    return attrs.evolve(form, properties=fields)


def secrets_in(form: ElicitSchema) -> list[str]:
    """Return the names of the fields that seem to ask for what no form may ask for (ELIC-13)."""
    return [name for name, field in form.properties.items() if _SECRET.search(_words(name)) or _hides(field)]


def _check(field: PrimitiveSchema, value: Any) -> None:
    match field:
        case StringSchema():
            _check_text(field, value)
        case NumberSchema():
            _check_number(field, value)
        case BooleanSchema():
            if not isinstance(value, bool):
                raise expected("true or false", value)
        case UntitledSingleSelectEnumSchema() | LegacyTitledEnumSchema():
            _check_choice(field.enum, value)
        case TitledSingleSelectEnumSchema():
            _check_choice([choice.const for choice in field.one_of], value)
        case UntitledMultiSelectEnumSchema():
            _check_choices(field, field.items.enum, value)
        case TitledMultiSelectEnumSchema():
            _check_choices(field, [choice.const for choice in field.items.any_of], value)
        case _:
            pass  # a field of a kind that is not known may hold anything


def _check_text(field: StringSchema, value: Any) -> None:
    if not isinstance(value, str):
        raise expected("a string", value)
    _check_count(len(value), field.min_length, field.max_length, "characters")
    if field.format is not None:
        check_format(field.format, value)


def _check_number(field: NumberSchema, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise expected("a number", value)
    if field.type == "integer" and isinstance(value, float) and not value.is_integer():
        raise expected("an integer", value)
    if field.minimum is not None and value < field.minimum:
        raise expected(f"a value at least {field.minimum}", value)
    if field.maximum is not None and value > field.maximum:
        raise expected(f"a value at most {field.maximum}", value)


def _check_choice(choices: Collection[str], value: Any) -> None:
    if value not in choices:
        raise expected("one of " + ", ".join(choices), value)


def _check_choices(
    field: UntitledMultiSelectEnumSchema | TitledMultiSelectEnumSchema, choices: Collection[str], value: Any
) -> None:
    if not isinstance(value, tuple | list):
        raise expected("an array", value)
    _check_count(len(value), field.min_items, field.max_items, "items")
    for index, item in enumerate(value):
        try:
            _check_choice(choices, item)
        except Fault as fault:
            fault.steps.append(index)
            raise


def _check_count(count: int, least: int | None, most: int | None, unit: str) -> None:
    if least is not None and count < least:
        raise Fault(f"expected at least {least} {unit}, got {count}")
    if most is not None and count > most:
        raise Fault(f"expected at most {most} {unit}, got {count}")


def _lowered(field: PrimitiveSchema) -> PrimitiveSchema:
    if not isinstance(field, TitledSingleSelectEnumSchema):
        return field
    return LegacyTitledEnumSchema(
        tuple(choice.const for choice in field.one_of),
        tuple(choice.title for choice in field.one_of),
        title=field.title,
        description=field.description,
        extra=field.extra,
    )


_SECRET: Final = re.compile(
    r"\b(?:passwords?|passwd|pwd|passphrase|passcode|pin|secrets?|token|credentials?|otp|cvv|cvc|iban|ssn"
    r"|(?:api|access|private|secret|signing) ?keys?|apikeys?|credit ?cards?|card ?number|security ?code"
    r"|account ?number|social ?security)\b"
)
"""Words for what gives access, or pays."""


def _words(name: str) -> str:
    """Return a name in words: ``apiKey``, ``API_KEY`` and ``api-key`` are "api key"."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+", " ", name)
    return apart.lower()


def _hides(field: PrimitiveSchema) -> bool:
    return isinstance(field, UnknownSchema) and field.raw.get("format") == "password"
