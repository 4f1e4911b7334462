"""Python values as plain JSON by their own type: for results without a declared type, and defaults in schemas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any

from mcpio.app.schema.faults import Fault, expected
from mcpio.app.schema.foreign import foreign_for, write_foreign
from mcpio.app.schema.records import attributes_of, is_payload
from mcpio.app.schema.scalars import scalar_for

__all__ = ["in_order", "plain", "to_json"]


def to_json(value: Any) -> Any:
    """Return a value as plain JSON: dicts with str keys, lists, str, numbers, bool and ``None``.

    Instances of attrs classes, dataclasses and NamedTuples become objects, sets become arrays, members of enumerations
    their values, bytes base64; dates, times, decimals and UUIDs become text. Raises InvalidMessage with the place of a
    value that JSON cannot express.
    """
    try:
        return plain(value)
    except Fault as fault:
        raise fault.as_invalid("") from None
    except RecursionError:
        raise Fault("nested too deeply, or contains itself").as_invalid("") from None


def plain(value: Any) -> Any:
    """Convert as ``to_json``, but raise Fault."""
    kind = type(value)
    if isinstance(value, Enum):
        return plain(value.value)
    for base in kind.__mro__:
        if (scalar := scalar_for(base)) is not None:
            return scalar.write(value)
    if isinstance(value, Mapping):
        return _object(value.items())
    if (foreign := foreign_for(kind)) is not None:
        return write_foreign(foreign, kind, value)
    if is_payload(kind):
        raise Fault(f"{kind.__name__} is a message's own part and cannot stand inside other data")
    if (attributes := attributes_of(kind)) is not None:
        return _object((name, getattr(value, attribute)) for name, attribute in attributes)
    if isinstance(value, list | tuple):
        return _array(value)
    if isinstance(value, AbstractSet):
        return _array(in_order(value))
    why = ": was its await forgotten?" if hasattr(value, "__await__") else ""
    raise Fault(f"a value of type {kind.__name__} has no form in JSON{why}")


def in_order(items: AbstractSet[Any]) -> list[Any]:
    """Return the items of a set, sorted if possible, so that every process has the same order."""
    try:
        return sorted(items)
    except TypeError:
        return list(items)


def _object(members: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in members:
        key = plain(name) if isinstance(name, Enum) else name
        if not isinstance(key, str):
            raise expected("a string as the name of a member", key)
        try:
            found[str.__str__(key)] = plain(value)
        except Fault as fault:
            fault.steps.append(key)
            raise
    return found


def _array(items: Iterable[Any]) -> list[Any]:
    found = []
    for index, item in enumerate(items):
        try:
            found.append(plain(item))
        except Fault as fault:
            fault.steps.append(index)
            raise
    return found
