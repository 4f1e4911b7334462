"""How a payload class says what its members are on the wire.

A payload is a frozen attrs class, one for all revisions: a member that only some revisions have says so
(``icons: tuple[Icon, ...] = wire(default=(), since=REV_2025_11_25)``), and ``mcpio.codec`` does the rest. Wire names
follow from the attribute names (``input_schema`` becomes ``inputSchema``) unless a member names its own.

Annotations may name any class of ``mcpio.types`` without importing it at run time: the codec looks them up when a
message holds such a member, so a feature that no message uses is never loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypedDict, Unpack

import attrs
from attrs import field

from mcpio.revisions import REV_2024_11_05, REV_2026_07_28, Revision

__all__ = [
    "EMPTY",
    "NOT_ON_THE_WIRE",
    "Choice",
    "Description",
    "MalformedItem",
    "OneOrMore",
    "Payload",
    "Unknown",
    "Wire",
    "payload",
    "tagged",
    "wire",
    "wired",
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

else:

    def payload(cls: type) -> type:
        """Make a payload class: ``attrs.frozen`` without the methods that ``Payload`` has for all of them.

        Type checkers see ``attrs.frozen`` itself. Generating those methods anew for each class would double the time
        that importing a feature takes.
        """
        return attrs.frozen(cls, repr=False, eq=False, getstate_setstate=False)


EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})
"""The mapping that stands for "no members"."""


class Wire:
    """What the codec knows about a member beyond its type. See ``wire`` for the meaning of each."""

    __slots__ = (
        "always",
        "check",
        "essential",
        "lenient",
        "limits",
        "name",
        "object_until",
        "required",
        "since",
        "strict",
        "until",
    )

    def __init__(
        self,
        *,
        since: Revision = REV_2024_11_05,
        until: Revision = REV_2026_07_28,
        name: str | None = None,
        essential: bool = False,
        always: bool = False,
        required: bool = False,
        lenient: Revision | None = None,
        strict: bool = False,
        object_until: Revision | None = None,
        limits: tuple[float, float] | None = None,
        check: Callable[[Any], str | None] | None = None,
    ) -> None:
        self.since = since
        self.until = until
        self.name = name
        self.essential = essential
        self.always = always
        self.required = required
        self.lenient = lenient
        self.strict = strict
        self.object_until = object_until
        self.limits = limits
        self.check = check


def wire(*, default: Any, **options: Unpack[WireOptions]) -> Any:
    """Declare a member that may be absent: ``default`` is its value then.

    ``since`` and ``until`` are the first and the last revision that have the member. To any other it is an unknown
    member: kept in ``extra`` when it comes in, and left out when it would go out, unless it is ``essential``: then
    leaving it out would change the meaning, and encoding fails.

    ``name`` is the name on the wire where it does not follow from the attribute. ``always`` puts the member on the wire
    even with its default. ``required`` makes the member's absence a fault in incoming messages, though it has a
    default, apart from those of the revision ``lenient``; and a default of ``None`` cannot go out. ``strict`` makes a
    value of the wrong type a fault in every incoming message: reading the message without the member would change its
    meaning. ``object_until`` is the last revision in which the value must be an object. ``limits`` are the least and
    the greatest number that may go out (CONT-04), and ``check`` says what is wrong with a value that may not, ``None``
    if nothing is; what comes in may be otherwise.
    """
    return field(default=default, metadata=wired(**options))


def wired(**options: Unpack[WireOptions]) -> dict[str, Wire]:
    """Return the attrs metadata of a member, for those that call ``attrs.field`` themselves."""
    return {"wire": Wire(**options)}


NOT_ON_THE_WIRE: Final[Mapping[str, None]] = MappingProxyType({"wire": None})
"""The attrs metadata of an attribute that is no member of the message."""


class Unknown:
    """The base of values that stand for raw objects of an unknown kind; ``raw`` goes out again as it came in."""

    __slots__ = ()

    raw: Mapping[str, Any]


class Choice:
    """How to tell the members of a union apart: an annotation, ``Annotated[A | B, Choice(pick)]``.

    ``pick`` takes the raw object and returns the class that it is of, or ``None``. Then, or when the revision has no
    such class, the value becomes ``unknown(raw)``; without ``unknown`` it is a fault at ``member``.
    """

    __slots__ = ("member", "pick", "unknown")

    pick: Callable[[Mapping[str, Any]], type[Payload] | None]
    unknown: Callable[[Mapping[str, Any]], Any] | None
    member: str | None

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

    __slots__ = ("item", "since")

    item: Any
    since: Revision

    def __init__(self, item: Any, since: Revision) -> None:
        self.item = item
        self.since = since


@attrs.frozen
class MalformedItem:
    """An item of a list that is not what the list holds. The list goes on without it, and encoding puts it back."""

    index: int
    """Its place in the list as it came, from 0."""
    raw: Any
    """The item as it came."""
    reason: str
    """What is wrong with it, with the path inside the item."""


@payload
class Payload:  # noqa: PLW1641  # never hashable: there are mappings inside
    """The base of every payload: frozen, compared by value, never hashable.

    Mappings and the lists inside them are the caller's own objects and must not be changed afterwards.
    """

    SINCE: ClassVar[Revision] = REV_2024_11_05
    """The first revision that has the class."""
    UNTIL: ClassVar[Revision] = REV_2026_07_28
    """The last known revision that has it."""
    CONSTANTS: ClassVar[tuple[str, ...]] = ()
    """The class attributes that are members on the wire with a fixed value."""
    ITEMWISE: ClassVar[str | None] = None
    """The list whose bad items are set aside in ``malformed`` instead of spoiling the whole."""
    CHOICE: ClassVar[Choice | None] = None
    """For a base class that stands for its subclasses: how to tell which one a raw object is."""

    extra: Mapping[str, Any] = field(default=EMPTY, kw_only=True, metadata=NOT_ON_THE_WIRE)
    """Unknown members, by wire name. They go out again as they came in; a known member wins over one here."""
    given: tuple[str, ...] = field(default=(), kw_only=True, metadata=NOT_ON_THE_WIRE)
    """The attributes that were on the wire with just their default value, and so go out again. Equality ignores it."""

    def __attrs_post_init__(self) -> None:
        """Check the kinds of the members: ``TypeError`` names the one that is wrong. Decoding does not pass here."""
        from mcpio.types._members import kinds_check

        cls: Any = self.__class__
        cls.__attrs_post_init__ = check = kinds_check(cls)  # made when the first object of the class is
        check(self)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _compared(self))

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in _said(self).items() if name != "given")
        return f"{self.__class__.__name__}({said})"

    def __reduce__(self) -> Any:
        return _restore, (self.__class__, _said(self))


@payload
class Description(Payload):
    """The base of payloads that describe a peer or decorate content.

    What a request asks for does not depend on them, so an optional member of the wrong type is dropped inside a request
    too, as it is inside a result. A capability of the wrong shape counts as not declared.
    """


def _compared(payload: Payload) -> list[str]:
    return [attribute.name for attribute in attrs.fields(payload.__class__) if attribute.name != "given"]


def _said(payload: Payload) -> dict[str, Any]:
    """Return the members that differ from their defaults, those of the base classes last."""
    said = {}
    for attribute in sorted(attrs.fields(payload.__class__), key=lambda attribute: attribute.kw_only):
        value = getattr(payload, attribute.name)
        if value is not attribute.default:
            said[attribute.name] = value
    return said


def _restore(cls: type[Payload], members: dict[str, Any]) -> Payload:
    return cls(**members)
