"""What the members of a payload class are on the wire, for the codec and for whoever describes the protocol."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

import mcpio.types
from mcpio.revisions import Revision
from mcpio.types._fields import Payload, Wire
from mcpio.types._values import without_null

__all__ = ["Member", "members"]


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
