"""Payload classes: how they are declared, what their members are on the wire, and the check of new ones.

A payload is an attrs class, one for all revisions. A member that only some revisions have says so
(``icons: tuple[Icon, ...] = wire(default=(), since=REV_2025_11_25)``), and ``mcpio.codec`` does the rest. Wire names
follow from the attribute names (``input_schema`` becomes ``inputSchema``) unless a member names its own.

Annotations may name any class of ``mcpio.types`` without importing it at run time: `Member.type_in` looks them up when
a message holds such a member, so a feature that no message uses is never loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    TypedDict,
    Union,
    Unpack,
    get_args,
    get_origin,
)

import attrs
from attrs import field

import mcpio.types
from mcpio.revisions import REV_2024_11_05, REV_2026_07_28, Revision

__all__ = [
    "EMPTY",
    "NOT_ON_THE_WIRE",
    "Choice",
    "Description",
    "Embedded",
    "MalformedItem",
    "Member",
    "OneOrMore",
    "Payload",
    "Unknown",
    "Wire",
    "is_optional",
    "is_union",
    "members",
    "payload",
    "tagged",
    "wire",
    "wired",
    "without_null",
]

if TYPE_CHECKING:
    from attrs import frozen as payload

    class WireOptions(TypedDict, total=False):
        since: Revision
        until: Revision
        name: str
        essential: bool
        always: bool
        required: bool
        lenient: Revision
        strict: bool
        object_until: Revision
        limits: tuple[float, float]
        check: Callable[[Any], str | None]
        check_until: Revision

else:

    def payload(cls: type) -> type:
        """Make a payload class: frozen to type checkers, who see ``attrs.frozen``, and cheap to make at run time.

        A frozen attrs class stores each attribute through ``object.__setattr__``, which doubles the time it takes to
        make one, and a server makes several for each answer. The methods that ``Payload`` has for all its subclasses
        are not generated anew for each: that would double the time it takes to import a feature.
        """
        return attrs.define(cls, repr=False, eq=False, getstate_setstate=False)


EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})
"""The empty mapping."""


@attrs.define(kw_only=True, eq=False, repr=False)
class Wire:
    """The options of a member, as ``wire`` explains them."""

    since: Revision = REV_2024_11_05
    until: Revision = REV_2026_07_28
    name: str | None = None
    essential: bool = False
    always: bool = False
    required: bool = False
    lenient: Revision | None = None
    strict: bool = False
    object_until: Revision | None = None
    limits: tuple[float, float] | None = None
    check: Callable[[Any], str | None] | None = None
    check_until: Revision = REV_2026_07_28


def wire(*, default: Any, **options: Unpack[WireOptions]) -> Any:
    """Declare a member that may be absent, with ``default`` as its value then.

    Args:
        default: the value of an absent member.
        since, until: the first and the last revision that have the member. Any other revision treats it as unknown: it
            is kept in ``extra`` when received, and left out when sent.
        name: the name on the wire, where it does not follow from the attribute.
        essential: leaving the member out would change the meaning, so encoding fails instead.
        always: write the member even with its default.
        required: a received message without the member is at fault, though it has a default, and a default of ``None``
            cannot be sent.
        lenient: the revision whose messages may lack a ``required`` member.
        strict: a value of the wrong type is a fault in every received message: reading the message without the member
            would change its meaning.
        object_until: the last revision in which the value must be an object.
        limits: the least and the greatest number that may be sent (CONT-04).
        check: returns the fault of a value that may not be sent, ``None`` for any other. Received values are not
            checked.
        check_until: the last revision with that check.
    """
    return field(default=default, metadata=wired(**options))


def wired(**options: Unpack[WireOptions]) -> dict[str, Wire]:
    """Return the attrs metadata of a member, for a call of ``attrs.field``."""
    return {"wire": Wire(**options)}


NOT_ON_THE_WIRE: Final[Mapping[str, None]] = MappingProxyType({"wire": None})
"""The attrs metadata of an attribute that is not a member of the message."""


class Unknown:
    """Base of values for raw objects of an unknown kind; ``raw`` is sent again as received."""

    __slots__ = ()

    raw: Mapping[str, Any]


class Choice:
    """How to tell the members of a union apart: an annotation, ``Annotated[A | B, Choice(pick)]``.

    ``pick`` takes the raw object and returns its class, or ``None``. Without a class, or when the revision lacks that
    class, the value becomes ``unknown(raw)``; without ``unknown`` it is a fault at ``member``.
    """

    def __init__(
        self,
        pick: Callable[[Mapping[str, Any]], type[Payload] | None],
        *,
        unknown: Callable[[Mapping[str, Any]], Any] | None = None,
        member: str | None = None,
    ) -> None:
        self.pick = pick
        self.unknown = unknown
        self.member = member


def tagged(*classes: type[Payload], unknown: Callable[[Mapping[str, Any]], Any] | None = None) -> Choice:
    """Return the choice among classes that differ in the constant ``type``."""
    table: dict[str, type[Payload]] = {vars(cls)["type"]: cls for cls in classes}

    def pick(raw: Mapping[str, Any]) -> type[Payload] | None:
        tag = raw.get("type")
        return table.get(tag) if isinstance(tag, str) else None

    return Choice(pick, unknown=unknown, member="type")


class OneOrMore:
    """Marks a member that is one item or, since a revision, an array of them."""

    def __init__(self, item: Any, since: Revision) -> None:
        self.item = item
        self.since = since


class Embedded:
    """Marks a whole message of another method inside a message: a request with its method, or a bare result.

    Those of the methods with ``Method.embedded``. They are read as they would be if they came alone.
    """

    def __init__(self, *, is_request: bool) -> None:
        self.is_request = is_request


@attrs.frozen
class MalformedItem:
    """A malformed item of a list. Decoding sets it aside, and encoding puts it back in its place."""

    index: int
    """The place of the item in the list as received, from 0."""
    raw: Any
    """The item as received."""
    reason: str
    """The fault, with its path inside the item."""


@payload
class Payload:  # noqa: PLW1641  # never hashable: there are mappings inside
    """The base of every payload: a value that is not to be changed, compared by its members, never hashable.

    Type checkers refuse assignments to its attributes; at run time nothing does, to keep payloads cheap. Mappings and
    the lists inside them are the caller's own objects. Changing any of it later gives undefined results.
    """

    SINCE: ClassVar[Revision] = REV_2024_11_05
    """The first revision that has the class: the argument ``since`` of the class."""
    UNTIL: ClassVar[Revision] = REV_2026_07_28
    """The last known revision that has it: ``until``."""
    CONSTANTS: ClassVar[tuple[str, ...]] = ()
    """The members on the wire with a fixed value: the class attributes of a type ``ClassVar[Literal[…]]``."""
    ITEMWISE: ClassVar[str | None] = None
    """The list whose bad items are set aside in ``malformed`` instead of spoiling the whole: ``itemwise``."""
    CHOICE: ClassVar[Choice | None] = None
    """For a base class: how to choose the subclass for a raw object."""

    extra: Mapping[str, Any] = field(default=EMPTY, kw_only=True, metadata=NOT_ON_THE_WIRE)
    """Unknown members, by wire name. They are sent again as received; a known member wins over one here."""
    given: tuple[str, ...] = field(default=(), kw_only=True, metadata=NOT_ON_THE_WIRE)
    """The attributes received with just their default value, which are sent again. Equality ignores it."""

    def __init_subclass__(
        cls, *, since: Revision | None = None, until: Revision | None = None, itemwise: str | None = None
    ) -> None:
        """Set what the arguments of a class say. attrs makes each class twice, the second time without them."""
        cls.SINCE = since or cls.SINCE
        cls.UNTIL = until or cls.UNTIL
        cls.ITEMWISE = itemwise or cls.ITEMWISE
        constants = [name for name, annotation in cls.__annotations__.items() if "ClassVar[Literal[" in annotation]
        cls.CONSTANTS = tuple(constants) or cls.CONSTANTS

    def __attrs_post_init__(self) -> None:
        """Check the kinds of the members; raises TypeError, naming the wrong one. Decoding does not call this."""
        cls: Any = self.__class__
        # The check is generated for each class when its first object is made, and replaces this method.
        cls.__attrs_post_init__ = check = _kinds_check(cls)
        check(self)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _compared(self))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in _members_of(self).items() if name != "given")
        return f"{self.__class__.__name__}({shown})"

    def __reduce__(self) -> Any:
        return _restore, (self.__class__, _members_of(self))


@payload
class Description(Payload):
    """The base of payloads that describe a peer or decorate content.

    The meaning of a request does not depend on them, so an optional member of the wrong type is dropped inside a
    request too, as it is inside a result. A capability of the wrong shape counts as not declared.
    """


def _compared(payload: Payload) -> list[str]:
    return [attribute.name for attribute in attrs.fields(payload.__class__) if attribute.name != "given"]


def _members_of(payload: Payload) -> dict[str, Any]:
    """Return the members that differ from their defaults, those of the base classes last."""
    members = {}
    for attribute in sorted(attrs.fields(payload.__class__), key=lambda attribute: attribute.kw_only):
        value = getattr(payload, attribute.name)
        if value is not attribute.default:
            members[attribute.name] = value
    return members


def _restore(cls: type[Payload], members: dict[str, Any]) -> Payload:
    return cls(**members)


# Members, as the codec and the reference see them


def members(cls: type[Payload]) -> tuple[Member, ...]:
    """Return the members of a class in the order of the wire: those of the base classes last.

    Members with a constant value are not included: ``cls.CONSTANTS`` has their names.
    """
    cached = _KNOWN.get(cls)
    if cached is None:
        cached = _KNOWN[cls] = tuple(_members(cls))
    return cached


def _members(cls: type[Payload]) -> Iterator[Member]:
    for attribute in sorted(attrs.fields(cls), key=lambda attribute: attribute.kw_only):
        wire = attribute.metadata.get("wire", _ORDINARY)
        if wire is not None:
            yield Member(cls, attribute, wire)


_KNOWN: dict[type[Payload], tuple[Member, ...]] = {}
_ORDINARY = Wire()


class Member:
    """A member of a payload class, before its type is looked up."""

    __slots__ = ("_globals", "_kinds", "annotation", "attribute", "default", "name", "wire")

    def __init__(self, cls: type[Payload], attribute: attrs.Attribute[Any], wire: Wire) -> None:
        self.attribute = attribute.name
        self.default = attribute.default
        """``attrs.NOTHING`` if the member has no default."""
        self.wire = wire
        self.name = wire.name or _camel(attribute.name)
        self.annotation = str(attribute.type)
        """The type, as written in the class."""
        self._kinds: tuple[tuple[type, ...], bool] | None = None
        self._globals = vars(sys.modules[_owner(cls, attribute.name).__module__])

    def exists_in(self, revision: Revision) -> bool:
        """Whether a revision has the member."""
        return self.wire.since <= revision <= self.wire.until

    def needed_in(self, revision: Revision) -> bool:
        """Whether a received message of a revision that has the member is at fault without it."""
        return self.default is attrs.NOTHING or (self.wire.required and revision is not self.wire.lenient)

    def type_in(self, revision: Revision) -> Any:
        """Return the type in a revision, importing the features that it names."""
        if self.wire.object_until is not None and revision <= self.wire.object_until:
            return Mapping[str, Any]
        type_ = eval(self.annotation, self._globals, _NAMESPACE)  # noqa: S307  # an annotation of this package
        return without_null(type_) if self.wire.required else type_

    @property
    def kinds(self) -> tuple[tuple[type, ...], bool]:
        """The kinds of its values, and whether ``None`` is one too. Imports the features that its type names."""
        if self._kinds is None:
            type_ = self.type_in(REV_2026_07_28)
            self._kinds = _kinds_of(type_), is_optional(type_)
        return self._kinds


def _owner(cls: type[Payload], name: str) -> type:
    """Return the class that declares an attribute; its module has the names of the annotation."""
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
    """Return the type without ``None`` among its choices."""
    if not is_optional(type_):
        return type_
    return Union[tuple(choice for choice in get_args(type_) if choice is not NoneType)]  # noqa: UP007  # from a tuple


def is_optional(type_: Any) -> bool:
    """Whether the type allows ``None``."""
    return NoneType in get_args(type_)


def is_union(type_: Any) -> bool:
    """Whether the type is a union without ``None``."""
    return get_origin(type_) in (Union, UnionType) and not is_optional(type_)


# Kinds: the outermost layer of a type, such as a string, a mapping or a TextContent. The kinds of members are checked
# when a payload is made; what lies inside, and what the peer's revision allows, is checked when it is encoded.


def _kinds_check(cls: type[Payload]) -> Callable[[Payload], None]:
    """Return a function that checks the members of a new payload.

    It is generated as a single condition that holds for most payloads, because a server makes several for each answer.
    """
    names: dict[str, Any] = {"check": _check_kinds, "cls": cls}
    conditions = ["self.__class__ is cls"]  # a subclass inherits this function until its first object is made
    for index, member in enumerate(members(cls)):
        if member.annotation == "Any":
            continue
        value, default = f"self.{member.attribute}", f"default{index}"
        names[default] = member.default
        exact = _exact_kind(member)
        if exact is not None:
            names[f"exact{index}"] = exact
            conditions.append(f"({value} is {default} or {value}.__class__ is exact{index})")
        else:
            conditions.append(f"{value} is {default}")
    source = f"def check_kinds(self):\n    if not ({' and '.join(conditions)}):\n        check(self)"
    exec(compile(source, f"<kinds of {cls.__name__}>", "exec"), names)  # noqa: S102  # made of this package's names
    made: Callable[[Payload], None] = names["check_kinds"]
    return made


def _exact_kind(member: Member) -> type | None:
    """Return the usual class of the values of a member, if its annotation tells it."""
    return _EXACT.get(member.annotation.partition("[")[0].removesuffix(" | None"))


_EXACT: dict[str, type] = {"str": str, "bool": bool, "int": int, "float": float, "tuple": tuple, "Mapping": dict}


def _check_kinds(payload: Payload) -> None:
    """Raise TypeError for a member of the wrong kind; the message names it and says what to do."""
    for member in members(payload.__class__):
        value = getattr(payload, member.attribute)
        if value is member.default:
            continue  # so that its type need not be loaded
        kinds, may_be_none = member.kinds
        if not (value is None and may_be_none) and not _is_one_of(value, kinds):
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
    shown = value[:40] if isinstance(value, str | bytes | bytearray) else value  # it may be a whole image
    fault = f"{payload.__class__.__name__}: {member.attribute} must be {names}, not {shown!r:.80}"
    if isinstance(value, bytes | bytearray) and member.attribute in ("data", "blob"):
        if hasattr(payload, "of"):
            return f"{fault}. Write {payload.__class__.__name__}.of(data)"
        return f"{fault}. Encode the bytes in base64: base64.b64encode(data).decode()"
    if isinstance(value, str) and member.attribute == "content":
        text = f"TextContent({shown!r})"
        return f"{fault}. Wrap the text: {f'({text},)' if kinds == _OF_ORIGIN[tuple] else text}"
    if isinstance(value, Payload) and tuple in kinds:
        return f"{fault}. Put the item in a tuple"
    return fault


_NAMES: dict[type, str] = {
    str: "a str",
    int: "a number",
    float: "a number",
    bool: "a bool",
    tuple: "a tuple",
    list: "a tuple",
    Mapping: "a mapping",
}
