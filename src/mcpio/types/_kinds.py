"""The kinds of values that members of payloads take, checked where a payload is made.

The kind is the outermost layer of a type: whether a value is a string, a mapping or a `TextContent`. What lies inside,
and what the revision of a peer allows, is checked when the payload is encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

from mcpio.revisions import REV_2026_07_28
from mcpio.types._fields import OneOrMore, Payload
from mcpio.types._members import Member, members
from mcpio.types._values import is_optional, is_union, without_null

__all__ = ["kinds_check"]


def kinds_check(cls: type[Payload]) -> Callable[[Payload], None]:
    """Return what checks the members of a new payload of a class.

    It is generated as one condition, which holds for most payloads: a server makes several for each answer.
    """
    names: dict[str, Any] = {"check": _check_kinds, "cls": cls}
    conditions = ["self.__class__ is cls"]  # a subclass inherits this function until it has one
    for place, member in enumerate(members(cls)):
        value, default = f"self.{member.attribute}", f"default{place}"
        names[default] = member.default
        exact = _exact_kind(member)
        if exact is not None:
            names[f"exact{place}"] = exact
            conditions.append(f"({value} is {default} or {value}.__class__ is exact{place})")
        else:
            conditions.append(f"{value} is {default}")
    source = f"def check_kinds(self):\n    if not ({' and '.join(conditions)}):\n        check(self)"
    exec(compile(source, f"<kinds of {cls.__name__}>", "exec"), names)  # noqa: S102  # made of this package's names
    made: Callable[[Payload], None] = names["check_kinds"]
    return made


def _exact_kind(member: Member) -> type | None:
    """Return the class that most values have which are of the kind of a member, as far as its annotation tells."""
    return _EXACT.get(member.annotation.partition("[")[0].removesuffix(" | None"))


_EXACT: dict[str, type] = {"str": str, "bool": bool, "int": int, "float": float, "tuple": tuple, "Mapping": dict}


def _check_kinds(payload: Payload) -> None:
    """Raise ``TypeError`` for a member of the wrong kind; the message names it and says what to do."""
    for member in members(payload.__class__):
        value = getattr(payload, member.attribute)
        if value is member.default:
            continue  # and its type need not be loaded
        type_ = member.type_in(REV_2026_07_28)
        kinds = _kinds_of(type_)
        if not (value is None and is_optional(type_)) and not _is_one_of(value, kinds):
            raise TypeError(_fault(payload, member, value, kinds))


def _is_one_of(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not (isinstance(value, bool) and kinds == _NUMBER)


def _kinds_of(type_: Any) -> tuple[type, ...]:
    """Return the classes whose instances are of the kind of a type."""
    type_ = without_null(type_)
    if type_ in (int, float):
        return _NUMBER
    origin = get_origin(type_)
    if origin is Annotated:
        inner, mark = get_args(type_)[:2]
        return (*_kinds_of(mark.item), tuple, list) if isinstance(mark, OneOrMore) else _kinds_of(inner)
    if is_union(type_):
        return tuple(kind for choice in get_args(type_) for kind in _kinds_of(choice))
    return (object,) if type_ is Any else _OF_ORIGIN.get(origin) or (type_,)


_NUMBER = (int, float)
_OF_ORIGIN: dict[Any, tuple[type, ...]] = {Literal: (str,), tuple: (tuple, list), Mapping: (Mapping,)}


def _fault(payload: Payload, member: Member, value: Any, kinds: tuple[type, ...]) -> str:
    names = " or ".join(dict.fromkeys(_NAMES.get(kind, kind.__name__) for kind in kinds))
    shown = value[:40] if isinstance(value, str | bytes | bytearray) else value  # it may be a whole picture
    told = f"{payload.__class__.__name__}: {member.attribute}= takes {names}, not {shown!r:.80}"
    if isinstance(value, bytes | bytearray) and member.attribute in ("data", "blob"):
        return f"{told}. Encode the bytes in base64: base64.b64encode(data).decode()"
    if isinstance(value, str) and member.attribute == "content":
        text = f"TextContent({shown!r})"
        return f"{told}. Wrap the text: {f'({text},)' if kinds == _OF_ORIGIN[tuple] else text}"
    if isinstance(value, Payload) and tuple in kinds:
        return f"{told}. Put the item in a tuple"
    return told


_NAMES: dict[type, str] = {
    str: "a str",
    int: "a number",
    float: "a number",
    bool: "a bool",
    tuple: "a tuple",
    list: "a tuple",
    Mapping: "a mapping",
}
