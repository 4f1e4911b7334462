"""Conversion between payloads and plain JSON values: strict, lossless, one converter for each revision.

``codec(REV_2025_11_25).decode(raw, CallToolRequest)`` and ``.encode(payload)`` are the whole of it. Nothing is coerced:
``5`` is no string and ``[]`` no object. What a revision does not know is kept, not refused: unknown members in
``extra``, content of an unknown type as ``UnknownContent``, a bad item of a list in ``malformed``. A member that
came in with just its default value goes out again, and so does a null for a member whose default is ``None``; encoding
what was decoded gives an equal JSON value.

cattrs finds the hook for a type; the hooks themselves are below. A hook is made when the first message needs it, member
by member, since a process that only lists tools must not pay for sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeVar, get_args, get_origin

import attrs
from cattrs import BaseConverter

from mcpio.errors import InvalidMessage
from mcpio.types._fields import EMPTY, Choice, MalformedItem, OneOrMore, Payload, Unknown
from mcpio.types._members import Member, members
from mcpio.types._values import (
    PLAIN,
    Decoder,
    Encoder,
    Fault,
    choices_hook,
    each_value,
    exact_class,
    is_optional,
    is_union,
    quoted,
    refuse,
    union_hook,
    without_null,
)
from mcpio.types.custom import CustomNotification, CustomRequest

if TYPE_CHECKING:
    from mcpio.revisions import Revision

__all__ = ["Codec", "codec"]

T = TypeVar("T")


def codec(revision: Revision) -> Codec:
    """Return the codec of a revision, always the same one."""
    made = _CODECS.get(revision.rank)
    if made is None:
        made = _CODECS[revision.rank] = Codec(revision)
    return made


_CODECS: dict[int, Codec] = {}


class Codec:
    """Converts payloads as one revision writes them. It holds no state but caches; use it from any thread."""

    __slots__ = ("_decoders", "_encoders", "_hooks", "revision")

    def __init__(self, revision: Revision) -> None:
        self.revision = revision
        hooks = _Hooks(revision)
        self._decoders = hooks.decoders
        self._encoders = hooks.encoders

    def decode(self, raw: Mapping[str, Any], cls: type[T]) -> T:
        """Return the payload of class ``cls`` that ``raw`` holds.

        Raises ``InvalidMessage``, whatever ``raw`` is; its path starts at ``raw``. Mappings in the result are those of
        ``raw``, not copies.
        """
        try:
            return self._decoders[cls](raw, cls)  # type: ignore[no-any-return]  # the hooks' own types are erased
        except Fault as fault:
            raise InvalidMessage(fault.where(), fault.reason, self.revision.name) from None

    def encode(self, payload: Any) -> dict[str, Any]:
        """Return the plain JSON object for a payload.

        Members that are at their default are left out where the protocol allows it. Raises ``InvalidMessage`` when the
        payload cannot be said in this revision, or a member is not of its type.
        """
        try:
            return self._encoders[payload.__class__](payload)  # type: ignore[no-any-return]  # as above
        except Fault as fault:
            raise InvalidMessage(fault.where(), fault.reason, self.revision.name) from None


# Hooks for composed values


class _Cache(dict[Any, Any]):
    """Hooks by class, made when first asked for."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, cls: Any) -> Any:
        hook = self[cls] = self._make(cls)
        return hook


class _Hooks:
    """The hooks of one revision, with cattrs to find the one for a type."""

    def __init__(self, revision: Revision) -> None:
        self.revision = revision
        self.converter = converter = BaseConverter(detailed_validation=False)
        self.decoders = _Cache(converter.get_structure_hook)
        self.encoders = _Cache(self._encoder_of)
        for wanted, decoder, encoder in (
            (is_optional, self._optional_decoder, self._optional_encoder),
            (is_union, self._union_decoder, self._union_encoder),
            (_is_a(tuple), self._list_decoder, self._list_encoder),
            (_is_a(Mapping), self._map_decoder, self._map_encoder),
            (_is_a(Literal), _literal_hook, _literal_hook),
            (_is_payload, self._payload_decoder, self._payload_encoder),
            (_is_marked(Choice), self._choice_decoder, lambda _: self._encode_any),
            (_is_marked(OneOrMore), self._one_or_more_decoder, self._one_or_more_encoder),
            (PLAIN.__contains__, lambda type_: PLAIN[type_][1], lambda type_: PLAIN[type_][2]),
        ):
            converter.register_structure_hook_factory(wanted, decoder)
            converter.register_unstructure_hook_factory(wanted, encoder)
        for simple in (str, bool, int, float):
            converter.register_structure_hook(simple, PLAIN[simple][1])
            converter.register_unstructure_hook(simple, PLAIN[simple][2])

    # Payload classes

    def _payload_decoder(self, cls: type[Payload]) -> Decoder:
        choice = vars(cls).get("CHOICE")
        if choice is not None:
            return self._choice_decoder(Annotated[cls, choice])
        if not cls.SINCE <= self.revision <= cls.UNTIL:
            return _refuser(cls, self.revision)
        rows: dict[str, _Row] = {}
        needed = set(cls.CONSTANTS)
        for member in members(cls):
            if member.exists_in(self.revision):
                rows[member.name] = (
                    member.attribute,
                    _UNLIKE_ANY,
                    member.default,
                    self._first_decoder(rows, member),
                    None,
                )
                if member.needed_in(self.revision):
                    needed.add(member.attribute)
        for name in cls.CONSTANTS:
            rows[name] = (name, _UNLIKE_ANY, _UNLIKE_ANY, choices_hook((getattr(cls, name),)), str)
        decode = _object_decoder(cls, rows, needed)
        return decode if cls.ITEMWISE is None else self._itemwise_decoder(cls, decode)

    def _first_decoder(self, rows: dict[str, _Row], member: Member) -> Decoder:
        """Return a hook that puts the right one for the member's type in its own place, and does its work."""

        def decode(value: Any, _: Any) -> Any:
            type_ = member.type_in(self.revision)
            exact, hook = exact_class(type_), self.converter.get_structure_hook(type_)
            rows[member.name] = (member.attribute, exact, member.default, hook, type_)
            return hook(value, type_)

        return decode

    def _payload_encoder(self, cls: type[Payload]) -> Encoder:
        if not cls.SINCE <= self.revision <= cls.UNTIL or vars(cls).get("CHOICE") is not None:
            return _refuser(cls, self.revision)
        rows: list[_OutRow] = []
        checks = []
        for member in members(cls):
            if member.exists_in(self.revision):
                always = member.wire.always or member.default is attrs.NOTHING
                default = _UNLIKE_ANY if always else member.default
                rows.append((member.attribute, member.name, default, _UNLIKE_ANY, self._first_encoder(rows, member)))
            checks += _checks(member, self.revision)
        constants = {name: getattr(cls, name) for name in cls.CONSTANTS}
        encode = _object_encoder(constants, rows, checks)
        return encode if cls.ITEMWISE is None else _itemwise_encoder(cls, encode)

    def _first_encoder(self, rows: list[_OutRow], member: Member) -> Encoder:
        """Return a hook that puts the right one for the member's type in its own place, and does its work."""
        place = len(rows)

        def encode(value: Any) -> Any:
            type_ = member.type_in(self.revision)
            hook = self.converter.get_unstructure_hook(type_)
            rows[place] = (*rows[place][:3], exact_class(type_), hook)
            return hook(value)

        return encode

    def _encoder_of(self, cls: type) -> Encoder:
        """Return the encoder for values of a class, whatever class that is."""
        if issubclass(cls, Payload):
            return self._payload_encoder(cls)
        if issubclass(cls, Unknown):
            return lambda value: dict(value.raw)
        if issubclass(cls, (CustomRequest, CustomNotification)):
            return lambda value: dict(value.params)
        return lambda value: refuse("a payload", value)

    def _encode_any(self, value: Any) -> Any:
        return self.encoders[value.__class__](value)

    # Lists that live on without their bad items (P8)

    def _itemwise_decoder(self, cls: type[Payload], decode: Decoder) -> Decoder:
        member = next(member for member in members(cls) if member.attribute == cls.ITEMWISE)

        def decode_itemwise(raw: Any, _: Any) -> Any:
            try:
                return decode(raw, cls)
            except Fault:
                items = raw.get(member.name) if isinstance(raw, Mapping) else None
                if not isinstance(items, list):
                    raise
            (item_type, _) = get_args(member.type_in(self.revision))
            good, bad = _sort_out(items, self.converter.get_structure_hook(item_type), item_type)
            return attrs.evolve(decode({**raw, member.name: good}, cls), malformed=bad)

        return decode_itemwise

    # Composed types

    def _optional_decoder(self, type_: Any) -> Decoder:
        inner = without_null(type_)
        hook = self.converter.get_structure_hook(inner)
        return lambda value, _: None if value is None else hook(value, inner)

    def _optional_encoder(self, type_: Any) -> Encoder:
        hook = self.converter.get_unstructure_hook(without_null(type_))
        return lambda value: None if value is None else hook(value)

    def _union_decoder(self, type_: Any) -> Decoder:
        return union_hook(
            _by_kind(type_, lambda inner: partial(_decode_as, self.converter.get_structure_hook(inner), inner))
        )

    def _union_encoder(self, type_: Any) -> Encoder:
        return union_hook(_by_kind(type_, self.converter.get_unstructure_hook))

    def _list_decoder(self, type_: Any) -> Decoder:
        item_type = get_args(type_)[0]
        exact, hook = exact_class(item_type), self.converter.get_structure_hook(item_type)

        def decode(value: Any, _: Any) -> tuple[Any, ...]:
            if not isinstance(value, list):
                refuse("an array", value)
            items: list[Any] = []
            try:
                for item in value:
                    # Not a comprehension: the number of items so far is the place of the fault.
                    items.append(item if item.__class__ is exact else hook(item, item_type))  # noqa: PERF401
            except Fault as fault:
                fault.steps.append(len(items))
                raise
            return tuple(items)

        return decode

    def _list_encoder(self, type_: Any) -> Encoder:
        item_type = get_args(type_)[0]
        exact, hook = exact_class(item_type), self.converter.get_unstructure_hook(item_type)

        def encode(value: Any) -> list[Any]:
            if not isinstance(value, (tuple, list)):
                refuse("an array", value)
            items: list[Any] = []
            try:
                for item in value:
                    # Not a comprehension: the number of items so far is the place of the fault.
                    items.append(item if item.__class__ is exact else hook(item))  # noqa: PERF401
            except Fault as fault:
                fault.steps.append(len(items))
                raise
            return items

        return encode

    def _map_decoder(self, type_: Any) -> Decoder:
        value_type = get_args(type_)[1]
        hook = self.converter.get_structure_hook(value_type)
        return lambda value, _: each_value(value, lambda item: hook(item, value_type))

    def _map_encoder(self, type_: Any) -> Encoder:
        hook = self.converter.get_unstructure_hook(get_args(type_)[1])
        return lambda value: each_value(value, hook)

    def _choice_decoder(self, type_: Any) -> Decoder:
        choice: Choice = get_args(type_)[1]

        def decode(value: Any, _: Any) -> Any:
            if value.__class__ is not dict and not isinstance(value, Mapping):
                refuse("an object", value)
            cls = choice.pick(value)
            if cls is not None and cls.SINCE <= self.revision <= cls.UNTIL:
                return self.decoders[cls](value, cls)
            made = None if choice.unknown is None else choice.unknown(value)
            return _refuse_choice(choice, value) if made is None else made

        return decode

    def _one_or_more_decoder(self, type_: Any) -> Decoder:
        mark: OneOrMore = get_args(type_)[1]
        item_type, list_type = mark.item, GenericAlias(tuple, (mark.item, ...))
        decode_item = self.converter.get_structure_hook(item_type)
        decode_list = self.converter.get_structure_hook(list_type)
        listed = mark.since <= self.revision
        return lambda value, _: (
            decode_list(value, list_type) if listed and isinstance(value, list) else decode_item(value, item_type)
        )

    def _one_or_more_encoder(self, type_: Any) -> Encoder:
        mark: OneOrMore = get_args(type_)[1]
        encode_item = self.converter.get_unstructure_hook(mark.item)
        encode_list = self.converter.get_unstructure_hook(GenericAlias(tuple, (mark.item, ...)))

        def encode(value: Any) -> Any:
            if not isinstance(value, (tuple, list)):
                return encode_item(value)
            if self.revision >= mark.since:
                return encode_list(value)
            if len(value) != 1:
                raise Fault(f"has {len(value)} items: before {mark.since} it is a single one")
            return encode_item(value[0])

        return encode


# The work on one object

_Row = tuple[str, Any, Any, Decoder, Any]
"""An incoming member: attribute, exact class, default, hook, type."""
_OutRow = tuple[str, str, Any, Any, Encoder]
"""An outgoing member: attribute, wire name, default, exact class, hook."""
_Check = tuple[str, str, Callable[[Any], str | None]]
"""An attribute, its wire name, and what is wrong with a value."""

_UNLIKE_ANY: Any = object()
"""Neither the class of any value nor the default of any member."""


def _object_decoder(cls: type[Payload], rows: dict[str, _Row], needed: set[str]) -> Decoder:
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


def _object_encoder(constants: dict[str, str], rows: list[_OutRow], checks: list[_Check]) -> Encoder:
    def encode(payload: Any) -> dict[str, Any]:
        out: dict[str, Any] = constants.copy()
        for attribute, name, fault_in in checks:
            reason = fault_in(getattr(payload, attribute))
            if reason is not None:
                raise Fault(reason, name)
        name = ""
        try:
            for attribute, name, default, exact, hook in rows:
                value = getattr(payload, attribute)
                if value is not default:
                    out[name] = value if value.__class__ is exact else hook(value)
        except Fault as fault:
            fault.steps.append(name)
            raise
        if payload.given:
            for attribute, name, default, _, hook in rows:
                if attribute in payload.given and default is getattr(payload, attribute):
                    out[name] = hook(default)
        if payload.extra is not EMPTY:
            out = {**payload.extra, **out}
        return out

    return encode


def _checks(member: Member, revision: Revision) -> list[_Check]:
    """Return what an outgoing member must fulfil besides its type."""
    wire, default = member.wire, member.default
    found: list[Callable[[Any], str | None]] = []
    if wire.essential and not member.exists_in(revision):
        found.append(lambda value: None if value is default else f"does not exist in {revision}")
    if wire.required and member.exists_in(revision):
        found.append(lambda value: "missing" if value is default else None)
    if wire.limits is not None:
        least, most = wire.limits
        found.append(lambda value: None if value is None or least <= value <= most else f"must lie in {least}..{most}")
    return [(member.attribute, member.name, check) for check in found]


def _itemwise_encoder(cls: type[Payload], encode: Encoder) -> Encoder:
    name = next(member.name for member in members(cls) if member.attribute == cls.ITEMWISE)

    def encode_itemwise(payload: Any) -> dict[str, Any]:
        out: dict[str, Any] = encode(payload)
        for bad in payload.malformed:
            out[name].insert(bad.index, bad.raw)
        return out

    return encode_itemwise


def _sort_out(items: list[Any], hook: Decoder, type_: Any) -> tuple[list[Any], tuple[MalformedItem, ...]]:
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


def _by_kind(type_: Any, hook_of: Callable[[Any], Encoder]) -> dict[type, Encoder]:
    """Return the hooks for the choices of a plain union, by the class of the value."""
    hooks: dict[type, Encoder] = {}
    for inner in get_args(type_):
        kinds = (list, tuple) if get_origin(inner) is tuple else (inner,)
        hooks.update(dict.fromkeys(kinds, hook_of(inner)))
    return hooks


def _decode_as(hook: Decoder, type_: Any, value: Any) -> Any:
    return hook(value, type_)


def _literal_hook(type_: Any) -> Callable[..., Any]:
    return choices_hook(get_args(type_))


def _refuser(cls: type[Payload], revision: Revision) -> Callable[..., Any]:
    def refuse(value: Any, _: Any = None) -> NoReturn:
        raise Fault(f"{cls.__name__} does not exist in {revision}")

    return refuse


def _refuse_missing(rows: dict[str, _Row], attributes: set[str]) -> NoReturn:
    raise Fault("missing", next(name for name, row in rows.items() if row[0] in attributes))


def _refuse_choice(choice: Choice, value: Mapping[str, Any]) -> NoReturn:
    if choice.member is None:
        raise Fault("has none of the known shapes")
    if choice.member not in value:
        raise Fault("missing", choice.member)
    raise Fault(f"{quoted(value[choice.member])} is not known here", choice.member)


def _is_payload(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, Payload)


def _is_a(origin: Any) -> Callable[[Any], bool]:
    wanted = get_origin(origin[str, Any]) if origin is Mapping else origin
    return lambda type_: get_origin(type_) is wanted


def _is_marked(kind: type) -> Callable[[Any], bool]:
    return lambda type_: get_origin(type_) is Annotated and isinstance(get_args(type_)[1], kind)
