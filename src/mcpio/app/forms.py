"""Forms from classes: the schema of the form, and its content as a value of the class.

The schema comes from the same annotations as that of a tool (``mcpio.app.schema.builder``), and is restricted to what a
form may contain (SCHEMA-08, ELIC-04 to ELIC-08).
"""

from __future__ import annotations

import re
import typing
import warnings
from collections.abc import Mapping
from enum import EnumMeta
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

from mcpio.app.schema.builder import SchemaBuilder
from mcpio.app.schema.faults import Fault
from mcpio.app.schema.plain import plain
from mcpio.app.schema.records import record_for
from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.revisions import REV_2025_11_25
from mcpio.types._fields import Payload
from mcpio.types.elicitation import ElicitSchema, ElicitValue, UnknownSchema

if typing.TYPE_CHECKING:
    from mcpio.types.elicitation import PrimitiveSchema

__all__ = ["Form", "form_of", "secrets_in", "warn_of_secrets"]

T = TypeVar("T")

_ADVICE: Final = (
    "a form is flat, and its fields are texts, dates, numbers, booleans, and choices among texts (Literal, Enum, a "
    "list or a tuple of those); limits are ge, le, min_length, max_length and format"
)


class Form(Generic[T]):
    """The form of a class: an attrs class, a dataclass, a TypedDict or a NamedTuple.

    ``Context.elicit`` takes the class as well, and makes the form once. Make it beside the class to find mistakes when
    the program starts. Raises TypeError, with the field and the reason, if the class cannot be a form; warns about a
    field that seems to ask for a secret (ELIC-13).

    An Enum whose members have a ``title`` shows the titles, and yields the member. A field with a default, ``None``
    included, may be left empty.
    """

    __slots__ = ("_converter", "kind", "schema")

    kind: type[T]
    """The class."""
    schema: ElicitSchema
    """The form as 2025-11-25 expresses it. For an older client it is translated, or refused."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        builder = SchemaBuilder("the form")
        self._converter = builder.converter(kind)
        self.schema = _schema_of(kind, builder.complete(self._converter.schema))
        warn_of_secrets(self.schema, level=3)

    def read(self, content: Mapping[str, ElicitValue] | None) -> T:
        """Return a value of the class from a form's content. Raises InvalidMessage if it does not fit (ELIC-12)."""
        known = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in (content or {}).items()
            if name in self.schema.properties
        }
        try:
            value: T = self._converter.convert(known)
        except Fault as fault:
            raise fault.as_invalid("content") from fault.__cause__
        return value


def form_of(kind: type[T]) -> Form[T]:
    """Return the form of a class, cached."""
    anything: Any = kind
    form: Form[T] = _made(anything)
    return form


def warn_of_secrets(form: ElicitSchema, *, level: int) -> None:
    """Warn of fields that seem to ask for secrets (ELIC-13). ``level`` is the ``stacklevel``."""
    if names := secrets_in(form):
        text = f"a form must not ask for secrets: {', '.join(names)}; send the user to a web address (elicit_url)"
        warnings.warn(text, stacklevel=level)


_made: Any = lru_cache(maxsize=256)(Form)


def _schema_of(kind: Any, schema: dict[str, Any]) -> ElicitSchema:
    """Return the form of a class's JSON Schema. Raises TypeError if a form cannot express it."""
    where = f"the form, {getattr(kind, '__name__', kind)}"
    if schema.get("type") != "object" or "properties" not in schema:
        raise TypeError(f"{where}: it has no fields; {_ADVICE}")
    titles = _titles_of(kind)
    required = schema.get("required", [])
    fields = {
        name: _field(part, titles.get(name, {}), optional=name not in required)
        for name, part in schema["properties"].items()
    }
    raw = {"type": "object", "properties": fields, "required": required}
    try:
        form = codec(REV_2025_11_25).decode(raw, ElicitSchema)
    except InvalidMessage as error:
        raise TypeError(f"{where}: {error.path}: {error.reason}; {_ADVICE}") from None
    for name, field in form.properties.items():
        if (fault := _too_much(field)) is not None:
            raise TypeError(f"{where}, member {name!r}: {fault}; {_ADVICE}")
    return form


def _too_much(field: Any) -> str | None:
    """Return the part of a field's type that a form cannot express, or ``None``."""
    if isinstance(field, UnknownSchema):
        kind = field.raw.get("type", "of several types")
        return "an object" if "$ref" in field.raw else f"a field that is {kind}"
    parts = [field, *(part for part in (getattr(field, "items", None),) if isinstance(part, Payload))]
    unknown = [name for part in parts for name in part.extra]
    return f"{', '.join(unknown)} cannot be said" if unknown else None


def _field(schema: Mapping[str, Any], titles: Mapping[str, str], *, optional: bool) -> dict[str, Any]:
    """Return the schema of one field as forms express it."""
    field = dict(schema)
    if optional:
        _without_null(field)
    if isinstance(items := field.get("items"), dict) and not items.keys().isdisjoint(("const", "enum")):
        field.pop("uniqueItems", None)  # each choice can be selected only once anyway
        field["items"] = _choices(items, titles, "anyOf")
    return _choices(field, titles, "oneOf")


def _without_null(field: dict[str, Any]) -> None:
    """Remove null from the values of an optional field, where null means that nothing was entered."""
    others = [part for part in field.get("anyOf", ()) if part.get("type") != "null"]
    if len(others) == 1:
        del field["anyOf"]
        for name, value in others[0].items():
            field.setdefault(name, value)
    elif None in (values := field.get("enum", ())):
        # Literal["a", None]: the schema has no type that fits all of them.
        field["enum"] = [value for value in values if value is not None]
        field["type"] = "string"
    if field.get("default", ()) is None:
        del field["default"]


def _choices(schema: Mapping[str, Any], titles: Mapping[str, str], keyword: str) -> dict[str, Any]:
    """Return a schema with its choices as forms express them, under ``keyword`` if they have titles."""
    field = dict(schema)
    if "const" in field:
        field["enum"] = [field.pop("const")]
    if titles and "enum" in field:
        field[keyword] = [{"const": value, "title": titles[value]} for value in field.pop("enum")]
        if keyword == "anyOf":
            del field["type"]
    return field


def _titles_of(kind: Any) -> dict[str, dict[str, str]]:
    """Return the titles of choices: by field, by value. Classes of other libraries have none."""
    record = record_for(typing.get_origin(kind) or kind, {})
    fields = () if record is None else record.fields
    return {field.name: _titles_in(field.annotation) for field in fields}


def _titles_in(annotation: Any) -> dict[str, str]:
    """Return the titles of the Enum in an annotation, if all of its members have one."""
    if isinstance(annotation, EnumMeta):
        members: list[Any] = list(annotation)
        # Every str has a method ``title``, so its type is checked.
        has_titles = all(isinstance(getattr(member, "title", None), str) for member in members)
        return {plain(member): member.title for member in members} if has_titles else {}
    for part in typing.get_args(annotation):
        if titles := _titles_in(part):
            return titles
    return {}


def secrets_in(form: ElicitSchema) -> list[str]:
    """Return the names of the fields that seem to ask for secrets (ELIC-13)."""
    return [name for name, field in form.properties.items() if _SECRET.search(_words(name)) or _hides(field)]


_SECRET: Final = re.compile(
    r"\b(?:passwords?|passwd|pwd|passphrase|passcode|pin|secrets?|token|credentials?|otp|cvv|cvc|iban|ssn"
    r"|(?:api|access|private|secret|signing) ?keys?|apikeys?|credit ?cards?|card ?number|security ?code"
    r"|account ?number|social ?security)\b"
)
"""Words that name credentials or means of payment."""


def _words(name: str) -> str:
    """Return a name in words: ``apiKey``, ``API_KEY`` and ``api-key`` are "api key"."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+", " ", name)
    return apart.lower()


def _hides(field: PrimitiveSchema) -> bool:
    return isinstance(field, UnknownSchema) and field.raw.get("format") == "password"
