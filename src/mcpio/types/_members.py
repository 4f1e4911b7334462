"""What the members of a payload class are on the wire, for the codec and for whoever describes the protocol."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import attrs

import mcpio.types
from mcpio.revisions import REV_2026_07_28, Revision
from mcpio.types._fields import OneOrMore, Payload, Wire

__all__ = ["Member", "is_optional", "is_union", "kinds_check", "members", "without_null"]


def members(cls: type[Payload]) -> tuple[Member, ...]:
    """Return the members in the order in which they go out: those of the base classes last.

    Members with a constant value are not among them: ``cls.CONSTANTS`` has their names.
    """
    known = _KNOWN.get(cls)
    if known is None:
        known = _KNOWN[cls] = tuple(_members(cls))
    return known


def _members(cls: type[Payload]) -> Iterator[Member]:
    for attribute in sorted(attrs.fields(cls), key=lambda attribute: attribute.kw_only):
        wire = attribute.metadata.get("wire", _ORDINARY)
        if wire is not None:
            yield Member(cls, attribute, wire)


_KNOWN: dict[type[Payload], tuple[Member, ...]] = {}
_ORDINARY = Wire()


class Member:
    """What is known of a member before its type is looked up."""

    __slots__ = ("_globals", "annotation", "attribute", "default", "name", "wire")

    def __init__(self, cls: type[Payload], attribute: attrs.Attribute[Any], wire: Wire) -> None:
        self.attribute = attribute.name
        self.default = attribute.default
        """``attrs.NOTHING`` when there is none."""
        self.wire = wire
        self.name = wire.name or _camel(attribute.name)
        self.annotation = str(attribute.type)
        """The type as it is written in the class."""
        self._globals = vars(sys.modules[_owner(cls, attribute.name).__module__])

    def exists_in(self, revision: Revision) -> bool:
        """Whether a revision has the member."""
        return self.wire.since <= revision <= self.wire.until

    def needed_in(self, revision: Revision) -> bool:
        """Whether an incoming message of a revision that has it is at fault without it."""
        return self.default is attrs.NOTHING or (self.wire.required and revision is not self.wire.lenient)

    def type_in(self, revision: Revision) -> Any:
        """Return the type in a revision, importing the features that it names."""
        if self.wire.object_until is not None and revision <= self.wire.object_until:
            return Mapping[str, Any]
        type_ = eval(self.annotation, self._globals, _NAMESPACE)  # noqa: S307  # an annotation of this package
        return without_null(type_) if self.wire.required else type_


def _owner(cls: type[Payload], name: str) -> type:
    """Return the class that declares the attribute: the names in the annotation are those of its module."""
    return next(base for base in cls.__mro__ if any(own.name == name for own in _own_attributes(base)))


def _own_attributes(cls: type) -> list[attrs.Attribute[Any]]:
    return [attribute for attribute in vars(cls).get("__attrs_attrs__", ()) if not attribute.inherited]


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


class _Namespace(dict[str, Any]):
    """The names of ``mcpio.types``, which annotations use without importing them at run time."""

    def __missing__(self, name: str) -> Any:
        try:
            return getattr(mcpio.types, name)
        except AttributeError:
            raise KeyError(name) from None


_NAMESPACE = _Namespace()


# Annotations


def without_null(type_: Any) -> Any:
    """Return the type without ``None``, which it may or may not have among its choices."""
    if not is_optional(type_):
        return type_
    return Union[tuple(choice for choice in get_args(type_) if choice is not NoneType)]  # noqa: UP007  # from a tuple


def is_optional(type_: Any) -> bool:
    """Whether ``None`` is of the type."""
    return NoneType in get_args(type_)


def is_union(type_: Any) -> bool:
    """Whether the type has several choices, ``None`` apart."""
    return get_origin(type_) in (Union, UnionType) and not is_optional(type_)


# Kinds


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
