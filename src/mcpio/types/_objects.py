"""The work on one object: reading its members from a message, and writing them into one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from mcpio.types._fields import EMPTY, MalformedItem, Payload
from mcpio.types._members import Member, members
from mcpio.types._values import Decoder, Encoder, Fault, refuse

if TYPE_CHECKING:
    from mcpio.revisions import Revision

__all__ = [
    "UNLIKE_ANY",
    "Check",
    "OutRow",
    "Row",
    "checks_of",
    "itemwise_encoder",
    "object_decoder",
    "object_encoder",
    "sort_out",
]

Row = tuple[str, Any, Any, Decoder, Any]
"""An incoming member: attribute, exact class, default, hook, type."""
OutRow = tuple[str, str, Any, Any, Encoder]
"""An outgoing member: attribute, wire name, default, exact class, hook."""
Check = tuple[str, str, Callable[[Any], str | None]]
"""An attribute, its wire name, and what is wrong with a value."""

UNLIKE_ANY: Any = object()
"""Neither the class of any value nor the default of any member."""


def object_decoder(cls: type[Payload], rows: dict[str, Row], needed: set[str]) -> Decoder:
    """Return the decoder of a class: ``rows`` by wire name, ``needed`` the attributes that must be there."""
    constants = cls.CONSTANTS

    def decode(raw: Any, _: Any) -> Any:
        if raw.__class__ is not dict and not isinstance(raw, Mapping):  # The second test alone takes 0.3 µs.
            refuse("an object", raw)
        values: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        given: tuple[str, ...] = ()
        name = ""
        try:
            for name, value in raw.items():
                row = rows.get(name)
                if row is None:
                    extra[name] = value
                    continue
                attribute, exact, default, hook, type_ = row
                made = value if value.__class__ is exact else hook(value, type_)
                if made is default:
                    given += (attribute,)
                values[attribute] = made
        except Fault as fault:
            fault.steps.append(name)
            raise
        if not values.keys() >= needed:
            _refuse_missing(rows, needed - values.keys())
        for name in constants:
            del values[name]
        if extra:
            values["extra"] = extra
        if given:
            values["given"] = given
        return cls(**values)

    return decode


def object_encoder(constants: dict[str, str], rows: list[OutRow], checks: list[Check]) -> Encoder:
    """Return the encoder of a class. ``rows`` may change while it works: it reads each when it comes to it."""

    def encode(payload: Any) -> dict[str, Any]:
        out: dict[str, Any] = constants.copy()
        name = ""
        try:
            for attribute, name, default, exact, hook in rows:
                value = getattr(payload, attribute)
                if value is not default:
                    out[name] = value if value.__class__ is exact else hook(value)
        except Fault as fault:
            fault.steps.append(name)
            raise
        for attribute, name, fault_in in checks:
            reason = fault_in(getattr(payload, attribute))
            if reason is not None:
                raise Fault(reason, name)
        if payload.given:
            for attribute, name, default, _, hook in rows:
                if attribute in payload.given and default is getattr(payload, attribute):
                    out[name] = hook(default)
        return out if payload.extra is EMPTY else {**payload.extra, **out}

    return encode


def checks_of(member: Member, revision: Revision) -> list[Check]:
    """Return what an outgoing member must fulfil besides its type."""
    wire, default = member.wire, member.default
    found: list[Callable[[Any], str | None]] = []
    if wire.essential and not member.exists_in(revision):
        found.append(lambda value: None if value is default else f"does not exist in {revision}")
    if wire.required and default is None and member.exists_in(revision):
        found.append(lambda value: "missing" if value is default else None)
    if wire.limits is not None:
        least, most = wire.limits
        found.append(lambda value: None if value is None or least <= value <= most else f"must lie in {least}..{most}")
    return [(member.attribute, member.name, check) for check in found]


def itemwise_encoder(cls: type[Payload], encode: Encoder) -> Encoder:
    """Return the encoder of a class with a list whose bad items were set aside: it puts them back in their places."""
    name = next(member.name for member in members(cls) if member.attribute == cls.ITEMWISE)

    def encode_itemwise(payload: Any) -> dict[str, Any]:
        out: dict[str, Any] = encode(payload)
        for bad in payload.malformed:
            out[name].insert(bad.index, bad.raw)
        return out

    return encode_itemwise


def sort_out(items: list[Any], hook: Decoder, type_: Any) -> tuple[list[Any], tuple[MalformedItem, ...]]:
    """Return the raw items that convert, and those that do not."""
    good, bad = [], []
    for index, item in enumerate(items):
        try:
            hook(item, type_)
            good.append(item)
        except Fault as fault:
            where = fault.where()
            bad.append(MalformedItem(index, item, f"{where}: {fault.reason}" if where else fault.reason))
    return good, tuple(bad)


def _refuse_missing(rows: dict[str, Row], attributes: set[str]) -> NoReturn:
    raise Fault("missing", next(name for name, row in rows.items() if row[0] in attributes))
