"""Conversion between payloads and plain JSON values: strict, lossless, one converter for each revision.

cattrs finds the hook for a type, by class or by predicate, and nothing else: its own hooks are lenient. ``objects.py``
generates code, a function for each class of payload, which takes half the time of a loop over members;
``values.py`` has the hooks for plain values. A hook is made when the first message needs it, member by member, because
a process that only lists tools must not pay for sampling.

``codec(REV_2025_11_25)`` has two methods, ``decode(raw, CallToolRequest)`` and ``encode(payload)``. Nothing is coerced:
``5`` is not a string and ``[]`` not an object. Whatever a revision does not know is kept, not refused: unknown members
in ``extra``, content of an unknown type as ``UnknownContent``, a malformed item of a list in ``malformed``. A member
received with just its default value is sent again, and so is a null for a member whose default is ``None``. Encoding a
decoded payload gives an equal JSON value, except that an array of one block becomes the block, and that a question in
an ``InputRequiredResult`` keeps its method and its params only.

Results lose as little as possible (CONT-04): an optional member of the wrong type moves to ``extra``, its attribute
gets the default, and a malformed block of a known type becomes an ``UnknownContent``. Requests and notifications are
checked strictly, because dropping a member could change what the receiver does; only nulls and descriptions
(``Description``) are treated as in results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeVar, get_args, get_origin

import attrs
from cattrs import BaseConverter

from mcpio.codec.objects import (
    UNLIKE_ANY,
    InRow,
    OutRow,
    Tolerance,
    checks_of,
    itemwise_encoder,
    object_decoder,
    object_encoder,
    sort_out,
)
from mcpio.codec.values import (
    PLAIN,
    BoundedOddities,
    Decoder,
    Encoder,
    Fault,
    Oddities,
    TooManyItems,
    choices_hook,
    each_value,
    exact_class,
    note,
    quoted,
    refuse,
    union_hook,
)
from mcpio.errors import InvalidMessage
from mcpio.methods import METHODS, Method, method_of
from mcpio.types._fields import (
    Choice,
    Description,
    Embedded,
    Member,
    OneOrMore,
    Payload,
    Unknown,
    is_optional,
    is_union,
    members,
    without_null,
)
from mcpio.types.base import CustomNotification, CustomRequest, RawNotification, RawRequest, ResultPayload

if TYPE_CHECKING:
    from mcpio.revisions import Revision

__all__ = ["BoundedOddities", "Codec", "codec"]

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

    __slots__ = ("_decoders", "_encoders", "revision")

    revision: Revision

    def __init__(self, revision: Revision) -> None:
        self.revision = revision
        # Two sets, because a class inside of a result is read with more tolerance than the same class in a request.
        tolerant, strict = _Hooks(revision), _Hooks(revision, strict=True)
        self._decoders = _Cache(lambda cls: (tolerant if _is_tolerant(cls) else strict).decoders[cls])
        tolerant.messages = strict.messages = self._decoders
        self._encoders = strict.encoders

    def decode(self, raw: Mapping[str, Any], cls: type[T], odd: list[str] | None = None) -> T:
        """Return the payload of class ``cls`` that ``raw`` holds.

        Mappings in the result are those of ``raw``, not copies. For each member of the wrong type that is dropped, a
        text is added to ``odd``. Raises InvalidMessage, and nothing else, for any other ``raw`` that does not fit; its
        path starts at ``raw``. Without ``odd``, and by a ``BoundedOddities``, the items of all lists and mappings that
        are decoded one by one are limited; by a plain list they are not.
        """
        try:
            return self._decoders[cls](raw, BoundedOddities() if odd is None else odd)  # type: ignore[no-any-return]  # the hooks' own types are erased
        except Fault as fault:
            raise InvalidMessage(fault.where(), fault.reason, self.revision.name) from None
        except TooManyItems as error:
            raise InvalidMessage("", str(error), self.revision.name) from None

    def encode(self, payload: Any) -> dict[str, Any]:
        """Return the plain JSON object for a payload: a new one, though mappings inside it may be the payload's own.

        Members that have their default are left out where the protocol allows it. Raises InvalidMessage if this
        revision cannot express the payload, or a member is not of its type.
        """
        try:
            return self._encoders[payload.__class__](payload)  # type: ignore[no-any-return]  # the same holds here
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


def _is_tolerant(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, ResultPayload)


class _Hooks:
    """The hooks of one revision, with cattrs to find the one for a type."""

    messages: _Cache
    """The decoders of whole messages, by class."""

    def __init__(self, revision: Revision, *, strict: bool = False) -> None:
        self.revision = revision
        self.strict = strict
        self.converter = converter = BaseConverter(detailed_validation=False)
        self.decoders = _Cache(converter.get_structure_hook)
        self.existing = _Cache(lambda cls: self.decoders[cls] if cls.SINCE <= revision <= cls.UNTIL else None)
        self.encoders = _Cache(self._encoder_of)
        for wanted, decoder, encoder in (
            (is_optional, self._optional_decoder, self._optional_encoder),
            (is_union, self._union_decoder, self._union_encoder),
            (_is_a(tuple), self._list_decoder, self._list_encoder),
            (_is_a(Mapping), self._map_decoder, self._map_encoder),
            (_is_a(Literal), _literal_hook, _literal_hook),
            (_is_payload, self._payload_decoder, self._payload_encoder),
            (_is_marked(Choice), self._choice_decoder, self._choice_encoder),
            (_is_marked(OneOrMore), self._one_or_more_decoder, self._one_or_more_encoder),
            (_is_marked(Embedded), self._embedded_decoder, self._embedded_encoder),
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
            return _refuser(f"{cls.__name__} does not exist in {self.revision}")
        rows: list[InRow] = [
            (
                member.name,
                member.attribute,
                member.default,
                member.needed_in(self.revision),
                self._tolerance(cls, member),
                partial(self._read, member),
            )
            for member in members(cls)
            if member.exists_in(self.revision)
        ]
        rows += [
            (name, None, UNLIKE_ANY, True, "none", partial(_constant, getattr(cls, name))) for name in cls.CONSTANTS
        ]
        decode = object_decoder(cls, rows)
        return decode if cls.ITEMWISE is None else self._itemwise_decoder(cls, decode)

    def _tolerance(self, cls: type[Payload], member: Member) -> Tolerance:
        if member.wire.strict or member.wire.required or member.needed_in(self.revision):
            return "none"
        return "null" if self.strict and not issubclass(cls, Description) else "any"

    def _read(self, member: Member) -> tuple[type | None, Decoder]:
        """Return the exact class and the hook of a received member."""
        type_ = member.type_in(self.revision)
        return exact_class(type_), self.converter.get_structure_hook(type_)

    def _payload_encoder(self, cls: type[Payload]) -> Encoder:
        if vars(cls).get("CHOICE") is not None:
            return _refuser(f"{cls.__name__} is only a base: use one of its subclasses")
        if not cls.SINCE <= self.revision <= cls.UNTIL:
            return _refuser(f"{cls.__name__} does not exist in {self.revision}")
        rows: list[OutRow] = []
        checks = []
        for member in members(cls):
            if member.exists_in(self.revision):
                always = member.wire.always or member.default is attrs.NOTHING
                default = UNLIKE_ANY if always else member.default
                rows.append((member.attribute, member.name, default, partial(self._write, member)))
            checks += checks_of(member, self.revision)
        constants = {name: getattr(cls, name) for name in cls.CONSTANTS}
        encode = object_encoder(cls, constants, rows, checks)
        return encode if cls.ITEMWISE is None else itemwise_encoder(cls, encode)

    def _write(self, member: Member) -> tuple[type | None, Encoder]:
        """Return the exact class and the hook of a member to send."""
        type_ = member.type_in(self.revision)
        return exact_class(type_), self.converter.get_unstructure_hook(type_)

    def _encoder_of(self, cls: type) -> Encoder:
        """Return the encoder for values of any class."""
        if issubclass(cls, Payload):
            return self._payload_encoder(cls)
        if issubclass(cls, Unknown):
            return lambda value: dict(value.raw)
        if issubclass(cls, (CustomRequest, CustomNotification, RawRequest, RawNotification)):
            return lambda value: dict(value.params)
        return lambda value: refuse("a payload", value)

    # Lists of which a malformed item costs only itself (P8)

    def _itemwise_decoder(self, cls: type[Payload], decode: Decoder) -> Decoder:
        member = next(member for member in members(cls) if member.attribute == cls.ITEMWISE)

        hook: Decoder | None = None

        def decode_itemwise(raw: Any, odd: Oddities) -> Any:
            nonlocal hook
            items = raw.get(member.name) if isinstance(raw, Mapping) else None
            if not isinstance(items, list):
                return decode(raw, odd)  # which finds the fault
            made = decode({**raw, member.name: []}, odd)
            if isinstance(odd, BoundedOddities):
                odd.take(len(items))
            if hook is None:
                hook = self.converter.get_structure_hook(get_args(member.type_in(self.revision))[0])
            good, malformed = sort_out(items, hook, odd)
            setattr(made, member.attribute, good)
            made.malformed = malformed
            return made

        return decode_itemwise

    # Composed types

    def _optional_decoder(self, type_: Any) -> Decoder:
        inner = without_null(type_)
        hook = self.converter.get_structure_hook(inner)
        return lambda value, odd: None if value is None else hook(value, odd)

    def _optional_encoder(self, type_: Any) -> Encoder:
        hook = self.converter.get_unstructure_hook(without_null(type_))
        return lambda value: None if value is None else hook(value)

    def _union_decoder(self, type_: Any) -> Decoder:
        find = self.converter.get_structure_hook
        return union_hook(_by_kind(type_, lambda inner: find(inner)))  # noqa: PLW0108  # its type has a second argument

    def _union_encoder(self, type_: Any) -> Encoder:
        return union_hook(_by_kind(type_, self.converter.get_unstructure_hook))

    def _list_decoder(self, type_: Any) -> Decoder:
        item_type = get_args(type_)[0]
        exact, hook = exact_class(item_type), self.converter.get_structure_hook(item_type)

        def decode(value: Any, odd: Oddities) -> tuple[Any, ...]:
            if not isinstance(value, list):
                refuse("an array", value)
            if exact is None and isinstance(odd, BoundedOddities):
                odd.take(len(value))
            items: list[Any] = []
            try:
                for item in value:
                    made = item if item.__class__ is exact else hook(item, odd)
                    items.append(made)  # their number so far is the place of a fault
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
                    made = item if item.__class__ is exact else hook(item)
                    items.append(made)  # their number so far is the place of a fault
            except Fault as fault:
                fault.steps.append(len(items))
                raise
            return items

        return encode

    def _map_decoder(self, type_: Any) -> Decoder:
        hook = self.converter.get_structure_hook(get_args(type_)[1])

        def decode(value: Any, odd: Oddities) -> Any:
            if isinstance(odd, BoundedOddities) and isinstance(value, Mapping):
                odd.take(len(value))
            return each_value(value, lambda item: hook(item, odd))

        return decode

    def _map_encoder(self, type_: Any) -> Encoder:
        hook = self.converter.get_unstructure_hook(get_args(type_)[1])
        return lambda value: each_value(value, hook)

    def _choice_decoder(self, type_: Any) -> Decoder:
        choice: Choice = get_args(type_)[1]

        def decode(value: Any, odd: Oddities) -> Any:
            if value.__class__ is not dict and not isinstance(value, Mapping):
                refuse("an object", value)
            cls = choice.pick(value)
            hook = None if cls is None else self.existing[cls]
            if hook is not None:
                return hook(value, odd)
            made = None if choice.unknown is None else choice.unknown(value)
            return _refuse_choice(choice, value) if made is None else made

        def decode_tolerantly(value: Any, odd: Oddities) -> Any:
            try:
                return decode(value, odd)
            except Fault as fault:
                cls = choice.pick(value) if isinstance(value, Mapping) else None
                if cls is None or choice.unknown is None:
                    raise
                note(odd, cls, fault)
                return choice.unknown(value)

        return decode if self.strict or choice.unknown is None else decode_tolerantly

    def _choice_encoder(self, type_: Any) -> Encoder:
        choices: tuple[type, ...] = get_args(get_args(type_)[0])
        expected = " or ".join(cls.__name__ for cls in choices)

        def encoder_of(cls: type) -> Any:
            return self.encoders[cls] if issubclass(cls, choices) else lambda value: refuse(expected, value)

        encoders = _Cache(encoder_of)
        return lambda value: encoders[value.__class__](value)

    def _embedded_decoder(self, type_: Any) -> Decoder:
        return self._embedded_request if get_args(type_)[1].is_request else self._embedded_result

    def _embedded_encoder(self, type_: Any) -> Encoder:
        if not get_args(type_)[1].is_request:
            return lambda value: self.encoders[_embedded_result_class(value)](value)

        def encode(value: Any) -> dict[str, Any]:
            method, params = _embedded_method(value), self.encoders[value.__class__](value)
            return {"method": method.name, "params": params} if params else {"method": method.name}

        return encode

    def _embedded_request(self, value: Any, odd: Oddities) -> Any:
        if not isinstance(value, Mapping):
            refuse("an object", value)
        name = value.get("method")
        method = METHODS.get(name) if isinstance(name, str) else None
        if method is None or not method.embedded:
            raise Fault(f"expected {_EMBEDDED}, got {quoted(name)}" if "method" in value else "missing", "method")
        try:
            return self.messages[method.params_type](value.get("params", {}), odd)
        except Fault as fault:
            fault.steps.append("params")
            raise

    def _embedded_result(self, value: Any, odd: Oddities) -> Any:
        if not isinstance(value, Mapping):
            refuse("an object", value)
        name = next((name for member, name in _RESULT_MEMBERS.items() if member in value), None)
        if name is None:
            raise Fault(f"expected the result of {_EMBEDDED}")
        return self.messages[METHODS[name].result_type](value, odd)

    def _one_or_more_decoder(self, type_: Any) -> Decoder:
        mark: OneOrMore = get_args(type_)[1]
        decode_item = self.converter.get_structure_hook(mark.item)
        decode_list = self.converter.get_structure_hook(GenericAlias(tuple, (mark.item, ...)))
        is_list = mark.since <= self.revision
        return lambda value, odd: (decode_list if is_list and isinstance(value, list) else decode_item)(value, odd)

    def _one_or_more_encoder(self, type_: Any) -> Encoder:
        mark: OneOrMore = get_args(type_)[1]
        encode_item = self.converter.get_unstructure_hook(mark.item)
        encode_list = self.converter.get_unstructure_hook(GenericAlias(tuple, (mark.item, ...)))

        def encode(value: Any) -> Any:
            if not isinstance(value, (tuple, list)):
                return encode_item(value)
            if len(value) == 1:
                # The official SDKs refuse an array in answers to requests without tools, in every revision.
                return encode_item(value[0])
            if self.revision < mark.since:
                raise Fault(f"has {len(value)} items: before {mark.since} it is a single one")
            return encode_list(value)

        return encode


_EMBEDDED = " or ".join(sorted(method.name for method in METHODS.values() if method.embedded))

_RESULT_MEMBERS = {
    "action": "elicitation/create",
    "roots": "roots/list",
    "role": "sampling/createMessage",
    "model": "sampling/createMessage",
}
"""The members that tell the results of embedded requests apart: a result does not say what it answers."""


def _embedded_method(value: Any) -> Method:
    try:
        method = method_of(value.__class__)
    except KeyError:
        refuse(f"the params of {_EMBEDDED}", value)
    return method if method.embedded else refuse(f"the params of {_EMBEDDED}", value)


def _embedded_result_class(value: Any) -> type[Any]:
    cls: type[Any] = value.__class__
    kinds = tuple(METHODS[name].result_type for name in _RESULT_MEMBERS.values())
    return cls if issubclass(cls, kinds) else refuse(f"the result of {_EMBEDDED}", value)


def _by_kind(type_: Any, hook_of: Callable[[Any], Callable[..., Any]]) -> dict[type, Callable[..., Any]]:
    """Return the hooks for the choices of a plain union, by the class of the value."""
    hooks: dict[type, Callable[..., Any]] = {}
    for inner in get_args(type_):
        kinds = (list, tuple) if get_origin(inner) is tuple else (inner,)
        hooks.update(dict.fromkeys(kinds, hook_of(inner)))
    return hooks


def _constant(value: str) -> tuple[None, Decoder]:
    return None, choices_hook((value,))


def _literal_hook(type_: Any) -> Callable[..., Any]:
    return choices_hook(get_args(type_))


def _refuser(reason: str) -> Callable[..., Any]:
    def refuse_all(value: Any, _: Any = None) -> NoReturn:
        raise Fault(reason)

    return refuse_all


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
