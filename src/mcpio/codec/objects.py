"""Decoders and encoders of payload classes.

They are generated as source, member by member: constants in the code replace what a loop would look up for each member
of each message, which halves the time. Their globals hold what does not depend on the message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import attrs

from mcpio.codec.values import Decoder, Encoder, Fault, Oddities, note, refuse
from mcpio.types._fields import EMPTY, MalformedItem, Member, Payload, members

if TYPE_CHECKING:
    from mcpio.revisions import Revision

__all__ = [
    "UNLIKE_ANY",
    "Check",
    "InRow",
    "OutRow",
    "Tolerance",
    "checks_of",
    "itemwise_encoder",
    "object_decoder",
    "object_encoder",
    "sort_out",
]

Tolerance = Literal["none", "null", "any"]
"""The wrong values that a received member may have: those are dropped and noted, any other is a fault."""
InRow = tuple[str, str | None, Any, bool, Tolerance, Callable[[], tuple[type | None, Decoder]]]
"""A received member: wire name, attribute (``None`` for one that is only checked), default, whether it is required, its
tolerance, and a function that returns its exact class (whose values need no check) and its hook. The function is called
when a message first has the member."""
OutRow = tuple[str, str, Any, Callable[[], tuple[type | None, Encoder]]]
"""A member to send: attribute, wire name, default, and a function that returns its exact class and its hook."""
Check = tuple[str, str, Callable[[Any], str | None]]
"""An attribute, its wire name, and a function that returns the fault of a value, or ``None``."""

_FEW = 64

UNLIKE_ANY: Any = object()
"""The default of a member that has none."""


def object_decoder(cls: type[Payload], rows: list[InRow]) -> Decoder:
    """Return the decoder of a class."""
    wire_names = {row[0] for row in rows}

    def others(raw: Mapping[str, Any], dropped: tuple[str, ...]) -> Mapping[str, Any]:
        if len(raw) <= _FEW:
            return {name: value for name, value in raw.items() if name not in wire_names or name in dropped} or EMPTY
        # A peer can send a million: copied as a whole, each takes a tenth of the time.
        unknown = dict(raw)
        for name in wire_names.difference(dropped):
            unknown.pop(name, None)
        return unknown

    def drop_any(fault: Fault, name: str, value: Any, odd: Oddities) -> None:
        fault.steps.append(name)
        note(odd, cls, fault)

    def drop_null(fault: Fault, name: str, value: Any, odd: Oddities) -> None:
        if value is not None:
            raise fault
        drop_any(fault, name, value, odd)

    names: dict[str, Any] = {"cls": cls, "others": others, "any": drop_any, "null": drop_null, **_COMMON}
    body, filled = "", {"given": "given", "extra": "extra"}
    for index, (name, attribute, default, needed, tolerance, resolve) in enumerate(rows):
        names |= {f"exact{index}": None, f"hook{index}": _first_hook(names, index, resolve), f"default{index}": default}
        absent = "raise Fault('missing')" if needed else f"v{index} = default{index}"
        source = _MEMBER_IN if tolerance == "none" else _TOLERATED_MEMBER_IN
        body += source.format(place=index, name=name, attribute=attribute, absent=absent, drop=tolerance)
        if attribute is not None:
            filled[attribute] = f"v{index}"
    fill = ""
    for one in attrs.fields(cls):
        # Attribute by attribute: ``__init__`` would check again what the hooks have checked.
        names[f"default_{one.name}"] = one.default
        fill += f"    made.{one.name} = {filled.get(one.name, f'default_{one.name}')}\n"
    return _made("decode", _DECODE.format(body=body, fill=fill), names, cls)


_DECODE = """
def decode(raw, odd):
    if raw.__class__ is not dict and not isinstance(raw, Mapping):  # the second test alone takes 0.3 µs
        refuse("an object", raw)
    known, given, dropped, name = 0, (), (), ""
    try:
        pass
{body}
    except Fault as fault:
        fault.steps.append(name)
        raise
    extra = EMPTY if known == len(raw) else others(raw, dropped)
    made = new(cls)
{fill}
    return made
"""
# The class is compared before the hook is called: most members are plain values, and a call costs more than the rest.
_MEMBER_IN = """
        name = {name!r}
        if name in raw:
            known += 1
            v{place} = raw[name]
            if v{place}.__class__ is not exact{place}:
                v{place} = hook{place}(v{place}, odd)
            if v{place} is default{place}:
                given += ({attribute!r},)
        else:
            {absent}
"""
_TOLERATED_MEMBER_IN = """
        name = {name!r}
        if name in raw:
            v{place} = raw[name]
            try:
                if v{place}.__class__ is not exact{place}:
                    v{place} = hook{place}(v{place}, odd)
            except Fault as fault:
                {drop}(fault, name, v{place}, odd)
                v{place} = default{place}
                dropped += (name,)
            else:
                known += 1
                if v{place} is default{place}:
                    given += ({attribute!r},)
        else:
            {absent}
"""


def object_encoder(cls: type[Payload], constants: dict[str, str], rows: list[OutRow], checks: list[Check]) -> Encoder:
    """Return the encoder of a class."""

    def put_back(payload: Any, out: dict[str, Any]) -> None:
        for index, (attribute, name, default, _) in enumerate(rows):
            if attribute in payload.given and getattr(payload, attribute) is default:
                try:
                    out[name] = names[f"hook{index}"](default)
                except Fault as fault:
                    fault.steps.append(name)
                    raise

    def check(payload: Any) -> None:
        for attribute, name, fault_in in checks:
            reason = fault_in(getattr(payload, attribute))
            if reason is not None:
                raise Fault(reason, name)

    names: dict[str, Any] = {"put_back": put_back, "check": check, "expected": cls.__name__, **_COMMON}
    body = ""
    for index, (attribute, name, default, resolve) in enumerate(rows):
        names |= {f"exact{index}": None, f"hook{index}": _first_hook(names, index, resolve), f"default{index}": default}
        body += _MEMBER_OUT.format(place=index, name=name, attribute=attribute)
    checked = "check(payload)" if checks else ""
    return _made("encode", _ENCODE.format(body=body, constants=constants, checked=checked), names, cls)


_ENCODE = """
def encode(payload):
    out = {constants!r}
    name = ""
    try:
        pass
{body}
    except Fault as fault:
        fault.steps.append(name)
        raise
    except AttributeError:  # an object of another class, which no test before each member has to look for
        refuse(expected, payload)
    {checked}
    if payload.given:
        put_back(payload, out)
    return out if payload.extra is EMPTY else {{**payload.extra, **out}}
"""
_MEMBER_OUT = """
        value = payload.{attribute}
        if value is not default{place}:
            name = {name!r}
            out[name] = value if value.__class__ is exact{place} else hook{place}(value)
"""

_COMMON = {"EMPTY": EMPTY, "new": object.__new__, "Fault": Fault, "Mapping": Mapping, "refuse": refuse}


def _first_hook(names: dict[str, Any], index: int, resolve: Callable[[], tuple[Any, ...]]) -> Callable[..., Any]:
    """Return a hook that replaces itself by the right one, once a message has the member, and calls that."""

    def first(value: Any, *odd: Any) -> Any:
        exact, hook = resolve()
        names[f"exact{index}"] = exact
        names[f"hook{index}"] = hook
        return hook(value, *odd)

    return first


def _made(function: str, source: str, names: dict[str, Any], cls: type[Payload]) -> Callable[..., Any]:
    code = compile(source, f"<{function} {cls.__name__}>", "exec")
    exec(code, names)  # noqa: S102  # made of the names of this package's own classes
    made: Callable[..., Any] = names[function]
    return made


def checks_of(member: Member, revision: Revision) -> list[Check]:
    """Return the checks of a member to send, besides that of its type."""
    wire, default = member.wire, member.default
    checks: list[Callable[[Any], str | None]] = []
    if wire.essential and not member.exists_in(revision):
        checks.append(lambda value: None if value is default else f"does not exist in {revision}")
    if wire.required and default is None and member.exists_in(revision):
        checks.append(lambda value: "missing" if value is default else None)
    if wire.limits is not None:
        least, most = wire.limits
        checks.append(lambda value: None if value is None or least <= value <= most else f"must lie in {least}..{most}")
    if wire.check is not None and revision <= wire.check_until and member.exists_in(revision):
        checks.append(wire.check)
    return [(member.attribute, member.name, check) for check in checks]


def itemwise_encoder(cls: type[Payload], encode: Encoder) -> Encoder:
    """Return the encoder of a class with malformed list items set aside: it puts them back in their places."""
    name = next(member.name for member in members(cls) if member.attribute == cls.ITEMWISE)

    def encode_itemwise(payload: Any) -> dict[str, Any]:
        out: dict[str, Any] = encode(payload)
        for bad in payload.malformed:
            out[name].insert(bad.index, bad.raw)
        return out

    return encode_itemwise


def sort_out(items: list[Any], hook: Decoder, odd: Oddities) -> tuple[tuple[Any, ...], tuple[MalformedItem, ...]]:
    """Return the items that convert, decoded, and the malformed ones."""
    good, bad = [], []
    for index, item in enumerate(items):
        before = len(odd)
        try:
            good.append(hook(item, odd))
        except Fault as fault:
            del odd[before:]
            where = fault.where()
            bad.append(MalformedItem(index, item, f"{where}: {fault.reason}" if where else fault.reason))
    return tuple(good), tuple(bad)
