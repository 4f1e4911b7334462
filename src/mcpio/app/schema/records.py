"""Classes that are JSON objects with named members: attrs classes, dataclasses, TypedDict and NamedTuple."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

from mcpio.app.schema.docstring import parse_docstring

__all__ = ["NO_DEFAULT", "Field", "Record", "attributes_of", "evaluate", "is_payload", "record_for"]

NO_DEFAULT: Final = inspect.Parameter.empty
"""Marks a missing default, or one that a factory makes."""


class Field:
    """One member: its name in JSON (and in the constructor), its attribute, its type and its default."""

    __slots__ = ("annotation", "attribute", "computed", "default", "description", "name", "required")

    def __init__(self, name: str, annotation: Any, *, required: bool, default: Any = NO_DEFAULT) -> None:
        self.name: str = name
        self.attribute: str = name
        self.annotation: Any = annotation
        self.required: bool = required
        self.default: Any = default
        self.description: str | None = None
        # Set by the class itself, so it is written and never read.
        self.computed: bool = False


class Record:
    """A class as its members. ``make`` makes an instance from them; ``kind`` is the class of an instance."""

    __slots__ = ("description", "fields", "kind", "make")

    def __init__(self, kind: type, fields: list[Field], make: Callable[..., Any], documentation: str | None) -> None:
        self.kind: type = kind
        self.fields: list[Field] = fields
        self.make: Callable[..., Any] = make
        parsed = parse_docstring(documentation)
        self.description: str | None = parsed.description
        for field in fields:
            field.description = parsed.parameters.get(field.name)


def record_for(kind: Any, namespace: Mapping[str, Any]) -> Record | None:
    """Return the members of a class, or ``None`` if it is not such a class.

    ``namespace`` adds names for annotations that are strings. Raises NameError if a name is unknown.
    """
    if not isinstance(kind, type):
        return None
    for builds in (_attrs_fields, _dataclass_fields, _typed_dict_fields, _named_tuple_fields):
        fields = builds(kind, namespace)
        if fields is not None:
            make = dict if builds is _typed_dict_fields else kind
            return Record(kind, fields, make, _documentation(kind))
    return None


def attributes_of(kind: type) -> list[tuple[str, str]] | None:
    """Return (name in JSON, attribute) of each member of an attrs class, dataclass or NamedTuple, else ``None``.

    Types are not evaluated.
    """
    if (attributes := getattr(kind, "__attrs_attrs__", None)) is not None:
        return [(attribute.alias, attribute.name) for attribute in attributes]
    if hasattr(kind, "__dataclass_fields__"):
        import dataclasses

        return [(member.name, member.name) for member in dataclasses.fields(kind)]
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return [(name, name) for name in kind._fields]
    return None


def is_payload(kind: Any) -> bool:
    """Whether a class is, or inherits from, a protocol type, whose form depends on the revision."""
    return isinstance(kind, type) and any(base.__module__.startswith("mcpio.types") for base in kind.__mro__)


def evaluate(annotations: Mapping[str, Any], names: dict[str, Any], namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return annotations with strings evaluated; ``names`` are the globals of their module."""
    holder = _Holder()
    holder.__annotations__ = dict(annotations)
    return typing.get_type_hints(holder, names, dict(namespace), include_extras=True)


class _Holder:
    """Carries annotations for ``typing.get_type_hints``."""


def _hints(kind: type, namespace: Mapping[str, Any]) -> dict[str, Any]:
    # A local class is not among the globals of its module.
    return typing.get_type_hints(kind, localns={kind.__name__: kind, **namespace}, include_extras=True)


def _attrs_fields(kind: type, namespace: Mapping[str, Any]) -> list[Field] | None:
    attributes = getattr(kind, "__attrs_attrs__", None)
    if attributes is None:
        return None
    hints = _hints(kind, namespace)
    fields = []
    for attribute in attributes:
        # Recognized by name, so that attrs need not be imported: NOTHING means no default.
        has_default = type(attribute.default).__name__ != "_Nothing"
        fixed = has_default and not hasattr(attribute.default, "takes_self")
        field = Field(
            attribute.alias,
            hints.get(attribute.name, attribute.type if attribute.type is not None else Any),
            required=not has_default,
            default=attribute.default if fixed else NO_DEFAULT,
        )
        field.attribute = attribute.name
        field.computed = not attribute.init
        fields.append(field)
    return fields


def _dataclass_fields(kind: type, namespace: Mapping[str, Any]) -> list[Field] | None:
    if not hasattr(kind, "__dataclass_fields__"):
        return None
    import dataclasses

    hints = _hints(kind, namespace)
    fields = []
    for member in dataclasses.fields(kind):
        fixed = member.default is not dataclasses.MISSING
        required = not fixed and member.default_factory is dataclasses.MISSING
        field = Field(
            member.name, hints[member.name], required=required, default=member.default if fixed else NO_DEFAULT
        )
        field.computed = not member.init
        fields.append(field)
    return fields


def _typed_dict_fields(kind: type, namespace: Mapping[str, Any]) -> list[Field] | None:
    # Recognized by its attributes, since that of typing_extensions is another class.
    if not (issubclass(kind, dict) and hasattr(kind, "__required_keys__") and hasattr(kind, "__total__")):
        return None
    fields = []
    for name, annotation in _hints(kind, namespace).items():
        required = name in kind.__required_keys__
        # If annotations are strings, the class did not see these marks when it was made.
        bare = annotation
        while (mark := _mark(bare)) is not None:
            required = {"Required": True, "NotRequired": False}.get(mark, required)
            bare = bare.__args__[0]
        fields.append(Field(name, bare, required=required))
    return fields


def _mark(annotation: Any) -> str | None:
    name = getattr(typing.get_origin(annotation), "_name", None)
    return name if name in ("Required", "NotRequired", "ReadOnly") else None


def _named_tuple_fields(kind: type, namespace: Mapping[str, Any]) -> list[Field] | None:
    if not (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        return None
    hints = _hints(kind, namespace)
    defaults: dict[str, Any] = getattr(kind, "_field_defaults", {})
    return [
        Field(name, hints.get(name, Any), required=name not in defaults, default=defaults.get(name, NO_DEFAULT))
        for name in kind._fields
    ]


def _documentation(kind: type) -> str | None:
    """Return the class's own docstring: not that of a base class, and not a generated one."""
    text = kind.__dict__.get("__doc__")
    generated = (f"{kind.__name__}(", "Method generated by attrs", "dict(")
    return None if not isinstance(text, str) or text.startswith(generated) else text
