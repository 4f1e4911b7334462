"""JSON Schemas and converters from annotations."""

from __future__ import annotations

import collections.abc
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from enum import EnumMeta
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mcpio.app.schema.constraints import collect, description_of, rule
from mcpio.app.schema.values import (
    NO_DEFAULT,
    Fault,
    Field,
    ForeignType,
    evaluate,
    expected,
    foreign_for,
    in_order,
    is_payload,
    plain,
    read_foreign,
    record_for,
    scalar_for,
    shown,
    spend,
    write_foreign,
)

if TYPE_CHECKING:
    from mcpio.app.schema.constraints import Rule
    from mcpio.app.schema.values import Family


# ----------------------------------------------------------------------------------------------------------- converters
# Converters: how values of one type are read or written, composed from those of the types that it contains.

NOTHING: Final[frozenset[type]] = frozenset()


class Converter:
    """Converts the values of one type in one direction.

    ``schema`` describes the JSON value. ``convert`` converts a value, or raises ``Fault``. A value whose type is in
    ``as_is`` converts to itself, so the call can be skipped. ``kinds`` are the types of values that may fit, ``None``
    if only trying tells. ``name`` describes the type. Constraints of a ``family`` apply to the values; ``moment`` is
    the class of a date or time.

    ``alternatives`` are the converters of a union. ``tags`` are the members of a class with a fixed set of values,
    which distinguish it from other classes. ``written`` is the class whose instances it writes.

    A recursive converter is filled in after it was handed out, so look up its parts when they are used.
    """

    __slots__ = ("alternatives", "as_is", "convert", "family", "kinds", "moment", "name", "schema", "tags", "written")

    def __init__(
        self,
        name: str,
        schema: dict[str, Any],
        convert: Callable[[Any], Any],
        *,
        as_is: frozenset[type] = NOTHING,
        kinds: frozenset[type] | None = None,
        family: Family | None = None,
        moment: type | None = None,
        alternatives: tuple[Converter, ...] = (),
    ) -> None:
        self.name: str = name
        self.schema: dict[str, Any] = schema
        self.convert: Callable[[Any], Any] = convert
        self.as_is: frozenset[type] = as_is
        self.kinds = kinds
        self.family: Family | None = family
        self.moment = moment
        self.alternatives: tuple[Converter, ...] = alternatives
        self.tags: dict[str, Converter] = {}
        self.written: type | None = None

    def with_schema(self, schema: dict[str, Any]) -> Converter:
        """Return the same converter with another schema."""
        converter = Converter(self.name, schema, self.convert)
        converter.become(self)
        return converter

    def become(self, other: Converter) -> None:
        """Copy the conversion of another converter, keeping the schema and the name."""
        self.convert = other.convert
        self.as_is = other.as_is
        self.kinds = other.kinds
        self.family = other.family
        self.moment = other.moment
        self.alternatives = other.alternatives
        self.tags = other.tags
        self.written = other.written


class ObjectConverter:
    """Converts the members of an object, or the arguments of a function.

    ``extra`` converts members with other names; ``None`` refuses them. ``noun`` describes a member in errors:
    ``argument``, ``member``.
    """

    __slots__ = ("converters", "extra", "noun", "required")

    def __init__(
        self,
        converters: dict[str, Converter],
        required: Iterable[str],
        *,
        extra: Converter | None = None,
        noun: str = "member",
    ) -> None:
        self.converters: dict[str, Converter] = converters
        self.required: tuple[str, ...] = tuple(required)
        self.extra: Converter | None = extra
        self.noun: str = noun

    def convert(self, members: Mapping[str, Any]) -> dict[str, Any]:
        """Return the members converted, in their order. Raises Fault for unknown, missing and invalid ones."""
        converted: dict[str, Any] = {}
        get = self.converters.get
        for name, value in members.items():
            converter = get(name, self.extra)
            if converter is None:
                raise self._unknown(members)
            if type(value) in converter.as_is:
                converted[name] = value
            else:
                spend(1)
                try:
                    converted[name] = converter.convert(value)
                except Fault as fault:
                    fault.steps.append(name)
                    raise
        for name in self.required:
            if name not in converted:
                raise self._missing(converted)
        return converted

    def _unknown(self, members: Mapping[str, Any]) -> Fault:
        spend(len(members) // 100)  # all names are looked at, for each alternative of a union again
        names = _quoted([name for name in members if name not in self.converters])
        hint = f"the {self.noun}s are {_joined(self.converters)}" if self.converters else f"there are no {self.noun}s"
        missing = _joined(name for name in self.required if name not in members)
        return Fault(f"unknown {self.noun} {names}; {hint}" + (f"; missing: {missing}" if missing else ""))

    def _missing(self, members: dict[str, Any]) -> Fault:
        names = [name for name in self.required if name not in members]
        return Fault(f"missing {self.noun}{'s' if len(names) > 1 else ''} {_joined(names)}")


_CONTAINERS: Final = frozenset({list, dict})


def _containers(values: Iterable[Any]) -> int:
    return sum(map(_CONTAINERS.__contains__, map(type, values)))


def array(item: Converter, make: Callable[[list[Any]], Any] | None = None) -> Callable[[Any], Any]:
    """Return the conversion of lists; ``make`` makes the result from the converted items."""

    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            raise expected("an array", value)
        as_is = item.as_is
        # Where only some types stay as they are, as in a union, arrays and objects among them are converted.
        spend(_containers(value) if as_is else len(value))
        items = [member if type(member) in as_is else _item(item, index, member) for index, member in enumerate(value)]
        return items if make is None else make(items)

    return convert


def from_any_array(convert: Callable[[list[Any]], Any], *, ordered: bool) -> Callable[[Any], Any]:
    """Extend the conversion of lists to other sequences, and to sets unless the order matters."""

    def convert_any(value: Any) -> Any:
        if isinstance(value, AbstractSet) and not ordered:
            return convert(in_order(value))
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            return convert(list(value))
        return convert(value)

    return convert_any


def all_different(make: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Return a function that makes a set, or raises Fault for equal or unhashable items."""

    def make_distinct(items: list[Any]) -> Any:
        try:
            collection = make(items)
        except TypeError:
            raise Fault("expected items that can be told apart, got arrays or objects") from None
        if len(collection) != len(items):
            raise Fault("expected items that are all different")
        return collection

    return make_distinct


def _item(converter: Converter, index: int, value: Any) -> Any:
    try:
        return converter.convert(value)
    except Fault as fault:
        fault.steps.append(index)
        raise


def fixed_array(items: list[Converter], make: Callable[[list[Any]], Any]) -> Callable[[Any], Any]:
    """Return the conversion of lists with one converter for each position."""

    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            raise expected("an array", value)
        if len(value) != len(items):
            raise Fault(f"expected {len(items)} items, got {len(value)}")
        spend(len(value))
        return make([_item(converter, index, value[index]) for index, converter in enumerate(items)])

    return convert


def mapping(key: Converter, item: Converter) -> Callable[[Any], dict[Any, Any]]:
    """Return the conversion of objects with any names."""

    def convert(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict | Mapping):
            raise expected("an object", value)
        is_converted = not item.as_is or str not in key.as_is
        spend(len(value) if is_converted else _containers(value.values()))
        converted: dict[Any, Any] = {}
        names_as_is, as_is, convert_item = key.as_is, item.as_is, item.convert
        for name, member in value.items():
            try:
                new_name = name if type(name) in names_as_is else key.convert(name)
                converted[new_name] = member if type(member) in as_is else convert_item(member)
            except Fault as fault:
                fault.steps.append(name if isinstance(name, str) else shown(name))
                raise
        return converted

    return convert


def record_reader(members: ObjectConverter, make: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return the conversion of objects to instances of a class. Its constructor refuses values as validators do.

    That is by ValueError, TypeError or AssertionError. Any other exception is a mistake of its author, and propagates.
    """

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise expected("an object", value)
        arguments = members.convert(value)
        try:
            return make(**arguments)
        except (ValueError, TypeError, AssertionError) as error:
            raise Fault(_text(error) or "the value is refused") from error

    return convert


def _text(error: Exception) -> str:
    """Return what an exception says. The validators of attrs say it in the first of several arguments."""
    if type(error) in (ValueError, TypeError) and error.args and isinstance(error.args[0], str):
        return error.args[0]
    return str(error)


def record_writer(
    members: ObjectConverter, attributes: list[tuple[str, str]], kind: type | None
) -> Callable[[Any], Any]:
    """Return the conversion of instances of a class, or mappings with the same members, to objects."""

    def convert(value: Any) -> Any:
        if kind is not None and isinstance(value, kind):
            return members.convert({name: getattr(value, attribute) for name, attribute in attributes})
        if isinstance(value, Mapping):
            return members.convert(value)
        raise expected("a mapping" if kind is None else f"a {kind.__name__}", value)

    return convert


def choice(values: list[tuple[Any, Any]], *, output: bool) -> tuple[str, Callable[[Any], Any]]:
    """Return the description and conversion of a fixed set of values, given as (value in JSON, value in Python).

    For output both forms are accepted: a member of an enumeration, and its value.
    """
    table = {_distinct(json_value): (json_value if output else python_value) for json_value, python_value in values}
    if output:
        table |= {_distinct(python_value): json_value for json_value, python_value in values}
    names = ", ".join(shown(json_value) for json_value, _ in values)
    description = f"one of {names}" if len(values) > 1 else names

    def convert(value: Any) -> Any:
        try:
            return table[_distinct(value)]
        except (KeyError, TypeError):
            raise expected(description, value) from None

    return description, convert


def _distinct(value: Any) -> Any:
    """Return a key that distinguishes ``True`` from ``1``, and a member from its value, but not ``1.0`` from ``1``."""
    kind = type(value)
    return value, float if kind is int else kind


def constrained(converter: Converter, rules: list[Rule], *, output: bool) -> Converter:
    """Return a converter with constraints on the Python value: checked after reading and before writing."""
    inner = converter.convert
    checks = [each.check for each in rules]

    def read(value: Any) -> Any:
        result = inner(value)
        for check in checks:
            check(result)
        return result

    def write(value: Any) -> Any:
        result = inner(value)
        for check in checks:
            check(value)
        return result

    schema = dict(converter.schema)
    for each in rules:
        if each.keywords.keys() & schema.keys():
            schema["allOf"] = [*schema.get("allOf", ()), each.keywords]
        else:
            schema.update(each.keywords)
    return Converter(
        converter.name,
        schema,
        write if output else read,
        kinds=converter.kinds,
        family=converter.family,
        moment=converter.moment,
    )


def _joined(names: Iterable[str]) -> str:
    return ", ".join(names)


def _quoted(names: list[Any]) -> str:
    """Return names chosen by the caller, shortened for an error message."""
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(map(shown, names[:_NAMES])) + more


_NAMES: Final = 5


def union(members: Sequence[Converter]) -> tuple[Callable[[Any], Any], frozenset[type], frozenset[type] | None]:
    """Return the conversion of a union, the types that it leaves as they are, and the types that may fit.

    Converters are tried in order, but a number goes to the one that leaves it unchanged: for ``float | int``, 5 stays
    an integer. Classes with tags are tried only if the tags fit. An instance is written as its own class, not as one
    that this class inherits from, which would lose members.
    """
    kinds: frozenset[type] = frozenset().union(
        *(converter.as_is | (converter.kinds or frozenset()) for converter in members)
    )
    candidates = {kind: _candidates(members, kind) for kind in kinds}
    others = tuple(converter for converter in members if converter.kinds is None)
    classes = [converter.written for converter in members]
    # Those of a generic class, such as Box[int] and Box[str], have the same one, which tells nothing.
    owners = {each.written: each for each in members if each.written is not None and classes.count(each.written) == 1}
    names = _names(members)
    attempts = _Attempts(names)
    # Made by the first object: until then, a recursive converter may lack its tags.
    by_tag = cache(lambda: _ByTag(candidates.get(dict, others)))

    def only(converter: Converter, value: Any) -> Any:
        try:
            return converter.convert(value)
        except Fault as fault:
            if fault.steps or fault.reason != expected(converter.name, value).reason:
                raise
            # Of the wrong type after all, such as 1.5 for an integer: then the alternatives of other types matter too.
            raise expected(names, value) from None

    def convert(value: Any) -> Any:
        kind = type(value)
        if owners and (owner := next((owners[base] for base in kind.__mro__ if base in owners), None)) is not None:
            return owner.convert(value)
        fitting = candidates.get(kind, others)
        if not fitting:
            raise expected(names, value)
        if kind in fitting[0].as_is:
            return value
        if len(fitting) > 1 and kind is dict:
            fitting = by_tag().fitting(value)
        if len(fitting) == 1:
            return only(fitting[0], value)
        return _first(fitting, value, names) if kind in _SCALARS else attempts.first(fitting, value)

    as_is = frozenset(kind for kind, converters in candidates.items() if kind in converters[0].as_is)
    return convert, as_is, None if others else kinds


def _candidates(members: Sequence[Converter], kind: type) -> tuple[Converter, ...]:
    fitting = [converter for converter in members if converter.kinds is None or kind in converter.kinds]
    if kind in (int, float):
        fitting.sort(key=lambda converter: kind not in converter.as_is)
    return tuple(fitting)


class _ByTag:
    """Finds the converters whose tags fit a value, by one look-up for each tag however many converters there are.

    Sets of converters are integers, with one bit for each.
    """

    __slots__ = ("_by_text", "_converters", "_others")

    def __init__(self, converters: tuple[Converter, ...]) -> None:
        self._converters = converters
        tags = [(name, tag) for converter in converters for name, tag in converter.tags.items()]
        # For each tag, the converters that take each text, and those that have no such tag and so take every text.
        self._others = {name: self._set(name not in each.tags for each in converters) for name, _ in tags}
        self._by_text: dict[str, dict[Any, int]] = {name: {} for name in self._others}
        for name, tag in tags:
            for value in tag.schema.get("enum") or [tag.schema["const"]]:
                self._by_text[name][value] = self._taking(name, value)

    def fitting(self, value: dict[str, Any]) -> tuple[Converter, ...]:
        """Return the converters whose tags fit; all of them if none does."""
        candidates = (1 << len(self._converters)) - 1
        for name, by_text in self._by_text.items():
            if name in value:
                tag = value[name]
                if type(tag) is str:
                    candidates &= by_text.get(tag, self._others[name])
                else:
                    spend(len(self._converters))
                    candidates &= self._taking(name, tag)
        if candidates and not candidates & (candidates - 1):
            return (self._converters[candidates.bit_length() - 1],)
        return tuple(each for bit, each in enumerate(self._converters) if candidates >> bit & 1) or self._converters

    def _taking(self, name: str, value: Any) -> int:
        return self._set(name not in each.tags or _takes(each.tags[name], value) for each in self._converters)

    @staticmethod
    def _set(are_in: Iterable[bool]) -> int:
        return sum(1 << bit for bit, is_in in enumerate(are_in) if is_in)


def _takes(converter: Converter, value: Any) -> bool:
    try:
        converter.convert(value)
    except Fault:
        return False
    return True


class _Attempts:
    """Tries alternatives in order, each value only once.

    With recursive alternatives that are alike, every level of a value would be tried once for each level around it: a
    billion times for thirty levels. So the outcome for a value is kept until the outermost attempt is over. The value
    is kept too, so that its id stays a valid key.
    """

    __slots__ = ("_cache", "_names", "_running")

    def __init__(self, names: str) -> None:
        self._names = names
        self._running = 0
        self._cache: dict[int, tuple[Any, Any, Fault | None]] = {}

    def first(self, converters: tuple[Converter, ...], value: Any) -> Any:
        """Return the conversion by the first converter that accepts the value, or raise Fault."""
        if (earlier := self._cache.get(id(value))) is not None:
            _, result, fault = earlier
            if fault is not None:
                raise Fault(fault.reason, *fault.steps)
            return result
        self._running += 1
        try:
            result = _first(converters, value, self._names)
        except Fault as fault:
            self._cache[id(value)] = (value, None, Fault(fault.reason, *fault.steps))
            raise
        else:
            self._cache[id(value)] = (value, result, None)
            return result
        finally:
            self._running -= 1
            if not self._running:
                self._cache.clear()


def _first(converters: tuple[Converter, ...], value: Any, names: str) -> Any:
    """Return the conversion by the first converter that accepts the value. ``names`` are those of the whole union."""
    faults: list[tuple[Converter, Fault]] = []
    for converter in converters:
        if type(value) in converter.as_is:
            return value
        try:
            return converter.convert(value)
        except Fault as fault:
            spend(3)  # the reason takes twice as long to describe as a value to convert
            faults.append((converter, fault))
    # Values of the wrong type need no list of reasons, only one of types.
    if all(fault.reason == expected(converter.name, value).reason for converter, fault in faults):
        raise expected(names, value)
    reasons = "; ".join(dict.fromkeys(f"{converter.name}: {fault.as_invalid('')}" for converter, fault in faults))
    raise Fault("fits no alternative: " + (reasons if len(reasons) <= _REASONS else reasons[:_REASONS] + "…"))


_REASONS: Final = 500
"""The length of all reasons together: each may contain those of nested alternatives."""


_SCALARS: Final = frozenset([str, int, float, bool, type(None)])


def _names(converters: Sequence[Converter]) -> str:
    return " or ".join(dict.fromkeys(converter.name for converter in converters))


# -------------------------------------------------------------------------------------------------------------- builder
# From Python annotations to JSON Schema (2020-12) and to the conversion of values (SCHEMA-01, SCHEMA-09).
# The schema of a type and the code that checks its values are made together, so that exactly what the schema allows is
# accepted. The same annotation gives the same schema in every process.

T = TypeVar("T")
_DEFINITIONS: Final = "#/$defs/"
_ADVICE: Final = (
    "use str, int, float, bool, None, list, dict, tuple, set, Literal, Enum, datetime, date, timedelta, Decimal, UUID, "
    "Path, bytes, a dataclass, an attrs class, a TypedDict, a NamedTuple or a pydantic model; "
    "mcpio.app.register_type() makes other types known"
)


def json_schema(annotation: Any, *, output: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of a type.

    ``output`` selects the schema of written instead of read values; they differ for models of other libraries and for
    members that a class computes. Raises TypeError if the type cannot be expressed in JSON.
    """
    builder = SchemaBuilder("the type", output=output)
    return builder.complete(builder.converter(annotation).schema)


class SchemaBuilder:
    """Makes converters for annotations, and collects the definitions that their schemas refer to.

    ``where`` is the place for error messages, such as ``search(), parameter 'limit'``; it may be changed between
    annotations. ``namespace`` adds names for annotations that are strings.
    """

    def __init__(self, where: str, *, output: bool = False, namespace: Mapping[str, Any] | None = None) -> None:
        self.where: str = where
        self.output = output
        self.namespace: Mapping[str, Any] | dict[str, Any] = namespace or {}
        self._definitions: dict[str, dict[str, Any]] = {}
        # Definitions of other libraries before references in them were renamed, to recognize one that comes twice.
        self._foreign_definitions: dict[str, dict[str, Any]] = {}
        self._named: dict[Any, Converter] = {}
        self._variables: dict[Any, Any] = {}

    def converter(self, annotation: Any) -> Converter:
        """Return the converter for an annotation. Raises TypeError with the place and advice."""
        annotation = self._substituted(annotation)
        origin = typing.get_origin(annotation)
        if annotation is Any or annotation is object or annotation is inspect.Parameter.empty:
            return self._anything()
        if annotation is None:
            annotation = type(None)
        if (special := self._special(annotation, origin)) is not None:
            return special
        if (foreign := foreign_for(annotation)) is not None:
            return self._foreign(annotation, foreign)
        if not isinstance(origin or annotation, type):
            raise self._unsupported(annotation)
        return self._array(annotation, origin) or self._object(annotation, origin) or self._class(annotation, origin)

    def members(
        self, fields: Iterable[Field], *, noun: str = "member", extra: Any = NO_DEFAULT
    ) -> tuple[dict[str, Any], ObjectConverter]:
        """Return the schema of an object with these members, and its converter.

        ``extra`` is the annotation of all other members; without it there may be none.
        """
        outer = self.where
        properties: dict[str, Any] = {}
        converters: dict[str, Converter] = {}
        required = []
        for field in fields:
            self.where = f"{outer}, {noun} {field.name!r}"
            converter = converters[field.name] = self.converter(field.annotation)
            properties[field.name] = self._member_schema(field, converter)
            if field.required:
                required.append(field.name)
        self.where = outer
        others = None if extra is NO_DEFAULT else self.converter(extra)
        schema: dict[str, Any] = {"type": "object"}
        if properties:
            schema["properties"] = properties
        if required:
            schema["required"] = required
        if others is None or others.schema:
            schema["additionalProperties"] = False if others is None else others.schema
        return schema, ObjectConverter(converters, required, extra=others, noun=noun)

    def complete(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return a self-contained schema: with the definitions that it needs, and not a reference itself."""
        complete = dict(schema)
        if (reference := complete.pop("$ref", None)) is not None:
            complete = self._definitions[reference.removeprefix(_DEFINITIONS)] | complete
        needed: dict[str, Any] = {}
        waiting = [complete]
        while waiting:
            for name in _references(waiting.pop()):
                if name in self._definitions and name not in needed:
                    needed[name] = self._definitions[name]
                    waiting.append(needed[name])
        if needed:
            complete["$defs"] = {name: needed[name] for name in sorted(needed)}
        # Parts are shared between schemas, so a caller that adds to its schema gets a deep copy.
        copied: dict[str, Any] = _renamed(complete, {})
        return copied

    # One method for each kind of annotation.

    def _special(self, annotation: Any, origin: Any) -> Converter | None:
        """Return the converter of a special form of ``typing``, or ``None`` for a class."""
        if origin is typing.Annotated:
            return self._annotated(annotation)
        if hasattr(annotation, "__supertype__"):
            return self.converter(annotation.__supertype__)
        if type(origin or annotation).__name__ == "TypeAliasType":
            return self._alias(annotation, origin)
        if origin is typing.Union or origin is types.UnionType:
            return self._union([self.converter(member) for member in annotation.__args__])
        if origin is typing.Literal:
            return self._choice(annotation, annotation.__args__)
        if origin is typing.Final:
            return self.converter(annotation.__args__[0])
        if isinstance(annotation, TypeVar):
            raise self._unsupported(annotation, "say which type it stands for, as in Page[int]")
        return None

    def _substituted(self, annotation: Any) -> Any:
        """Replace the type variables in an annotation by the arguments of the generic class around it."""
        if isinstance(annotation, typing.TypeVar):
            return self._variables.get(annotation, annotation)
        parameters = getattr(annotation, "__parameters__", ())
        if self._variables and parameters and not isinstance(annotation, type):
            return annotation[tuple(self._variables.get(each, each) for each in parameters)]
        return annotation

    def _anything(self) -> Converter:
        if self.output:
            return Converter("any value", {}, plain, as_is=_SURELY_JSON)
        return Converter("any value", {}, lambda value: value, as_is=_JSON, kinds=_JSON)

    def _annotated(self, annotation: Any) -> Converter:
        converter = self.converter(annotation.__origin__)
        metadata = annotation.__metadata__
        try:
            converter = self._constrained(converter, collect(metadata))
        except ValueError as error:
            raise TypeError(f"{self.where}: {error}") from error
        if (description := description_of(metadata)) is not None:
            return converter.with_schema({**converter.schema, "description": description})
        return converter

    def _constrained(self, converter: Converter, limits: list[tuple[str, Any]]) -> Converter:
        """Return a converter with constraints. Those of a union go to the alternatives that they apply to."""
        parts = converter.alternatives or (converter,)
        converters = []
        unused = dict.fromkeys(name for name, _ in limits)
        for part in parts:
            rules = []
            for name, limit in limits:
                if (made := rule(name, limit, part.family, part.moment)) is not None:
                    rules.append(made)
                    unused.pop(name, None)
            converters.append(constrained(part, rules, output=self.output) if rules else part)
        if unused:
            raise ValueError(f"{', '.join(unused)} cannot constrain {converter.name}")
        return self._union(converters) if converter.alternatives else converters[0]

    def _alias(self, annotation: Any, origin: Any) -> Converter:
        """Return the converter of a type alias. A recursive alias becomes a definition."""
        if (cached := self._named.get(annotation)) is not None:
            return cached
        alias = origin or annotation
        named = self._begin(annotation, alias.__name__)
        name = named.name
        # A string alias is evaluated in its module; the type statement of Python 3.12 has no strings.
        names = getattr(sys.modules.get(alias.__module__), "__dict__", {})
        meant = evaluate({"it": alias.__value__}, names, self.namespace)["it"]
        converter = self._with_variables(annotation, origin, lambda: self.converter(meant))
        self._definitions[name] = converter.schema
        if name in self.complete(converter.schema).get("$defs", {}):
            named.become(converter)
            return named
        del self._named[annotation], self._definitions[name]
        return converter

    def _union(self, members: list[Converter]) -> Converter:
        flat = [part for member in members for part in member.alternatives or (member,)]
        if any(not part.schema for part in flat):
            return self._anything()
        schemas: list[dict[str, Any]] = []
        for part in flat:
            if part.schema not in schemas:
                schemas.append(part.schema)
        convert, as_is, kinds = union(flat)
        return Converter(
            " or ".join(dict.fromkeys(part.name for part in flat)),
            {"anyOf": schemas},
            convert,
            as_is=as_is,
            kinds=kinds,
            alternatives=tuple(flat),
        )

    def _choice(self, annotation: Any, values: Iterable[Any]) -> Converter:
        pairs = []
        for value in values:
            try:
                json_value = plain(value)
            except Fault:
                json_value = ()
            if not isinstance(json_value, str | int | float | None):
                raise self._unsupported(annotation, "its values are to be strings, numbers, booleans or None")
            pairs.append((json_value, value))
        json_values = [json_value for json_value, _ in pairs]
        if not json_values:
            raise self._unsupported(annotation, "it has no members")
        schema: dict[str, Any] = {"const": json_values[0]} if len(json_values) == 1 else {"enum": json_values}
        kinds = {type(json_value) for json_value in json_values}
        if len(kinds) == 1:
            schema["type"] = _TYPE_NAMES[next(iter(kinds))]
        if kinds & {int, float}:
            kinds |= {int, float}
        name, convert = choice(pairs, output=self.output)
        return Converter(name, schema, convert, kinds=None if self.output else frozenset(kinds))

    def _foreign(self, annotation: Any, foreign: ForeignType) -> Converter:
        if (cached := self._named.get(annotation)) is not None:
            return cached
        schema = self._adopted(foreign.schema(annotation, output=self.output))
        step = write_foreign if self.output else read_foreign
        name = getattr(annotation, "__name__", None) or _readable(annotation)
        converter = self._named[annotation] = Converter(name, schema, partial(step, foreign, annotation))
        return converter

    def _array(self, annotation: Any, origin: Any) -> Converter | None:
        kind = origin or annotation
        arguments = typing.get_args(annotation)
        schema: dict[str, Any] = {"type": "array"}
        if kind is tuple and not _is_bare_tuple(annotation) and arguments[-1:] != (...,):
            return self._fixed(arguments)
        if kind not in _ARRAYS:
            return None
        make = _ARRAYS[kind]
        if make in (set, frozenset):
            if arguments and not self.output and _is_unhashable(arguments[0]):
                raise self._unsupported(annotation, "its items are not hashable; take a list")
            schema["uniqueItems"] = True
            make = all_different(make)
        item = self.converter(arguments[0]) if arguments else self._anything()
        if item.schema:
            schema["items"] = item.schema
        convert = from_any_array(array(item), ordered=False) if self.output else array(item, make)
        return Converter("an array", schema, convert, kinds=self._kinds(list), family="array")

    def _fixed(self, arguments: tuple[Any, ...]) -> Converter:
        items = [self.converter(argument) for argument in arguments]
        schema: dict[str, Any] = {"type": "array", "maxItems": len(items)}
        if items:
            schema |= {"prefixItems": [item.schema for item in items], "minItems": len(items)}
        convert = from_any_array(fixed_array(items, list), ordered=True) if self.output else fixed_array(items, tuple)
        return Converter(f"an array of {len(items)} items", schema, convert, kinds=self._kinds(list), family="array")

    def _object(self, annotation: Any, origin: Any) -> Converter | None:
        if (origin or annotation) not in _OBJECTS:
            return None
        key_type, item_type = typing.get_args(annotation) or (str, Any)
        key = self.converter(str if key_type is Any else key_type)
        if key.schema.get("type") != "string":
            raise self._unsupported(annotation, "the names of members are strings, so write dict[str, ...]")
        item = self.converter(item_type)
        schema: dict[str, Any] = {"type": "object"}
        if len(key.schema) > 1:
            schema["propertyNames"] = key.schema
        if item.schema:
            schema["additionalProperties"] = item.schema
        return Converter("an object", schema, mapping(key, item), kinds=self._kinds(dict), family="object")

    def _class(self, annotation: Any, origin: Any) -> Converter:
        kind = origin or annotation
        if isinstance(kind, EnumMeta):
            return self._choice(kind, kind)
        if (scalar := scalar_for(kind)) is not None:
            moment = kind if scalar.family == "moment" else None
            if self.output:
                as_is = scalar.as_is - {float}
                return Converter(
                    scalar.name, scalar.schema, scalar.write, as_is=as_is, family=scalar.family, moment=moment
                )
            return Converter(
                scalar.name,
                scalar.schema,
                scalar.read,
                as_is=scalar.as_is,
                kinds=scalar.read_kinds,
                family=scalar.family,
                moment=moment,
            )
        if is_payload(kind):
            raise self._unsupported(annotation, "it is a part of the protocol's messages; return it as it is")
        return self._record(annotation, origin)

    def _record(self, annotation: Any, origin: Any) -> Converter:
        if (cached := self._named.get(annotation)) is not None:
            return cached
        kind = origin or annotation
        try:
            record = record_for(kind, self.namespace)
        except NameError as error:
            raise self._unsupported(annotation, f"{error}; annotations are needed at run time") from error
        if record is None:
            raise self._unsupported(annotation)
        name = _readable(annotation) if origin else kind.__name__
        converter = self._begin(annotation, re.sub(r"\W+", "_", name).strip("_"))
        converter.kinds = self._kinds(dict)
        if self.output and record.make is kind:
            converter.written = record.kind
        outer, self.where = self.where, f"{self.where}, {name}"
        fields = [field for field in record.fields if self.output or not field.computed]
        if not self.output and record.make is kind:
            self._check_constructor(kind, {field.name for field in fields})
        schema, members = self._with_variables(annotation, origin, lambda: self.members(fields))
        self.where = outer
        if record.description:
            schema["description"] = record.description
        self._definitions[converter.name] = schema
        converter.tags = {
            name: each for name, each in members.converters.items() if each.schema.keys() & {"const", "enum"}
        }
        if self.output:
            attributes = [(field.name, field.attribute) for field in fields]
            converter.convert = record_writer(members, attributes, None if record.make is dict else kind)
        else:
            converter.convert = record_reader(members, record.make)
        return converter

    def _check_constructor(self, kind: Any, names: set[str]) -> None:
        """Raise TypeError if the constructor of a class needs more than the members."""
        parameters = inspect.signature(kind).parameters.values()
        open_ended = any(each.kind is each.VAR_KEYWORD for each in parameters)
        takes = {each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
        needs = {
            each.name
            for each in parameters
            if each.default is each.empty and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
        }
        if wrong := sorted((needs - names) | (set() if open_ended else names - takes)):
            raise self._unsupported(kind, f"its members and the parameters of its constructor differ: {wrong[0]!r}")

    # Shared by them.

    def _kinds(self, kind: type) -> frozenset[type] | None:
        return None if self.output else frozenset([kind])

    def _begin(self, annotation: Any, name: str) -> Converter:
        """Return a converter for a type that may contain itself, to be filled in later, under a free name."""
        free = self._free_name(name)
        self._definitions[free] = {}

        def later(value: Any) -> Any:
            return converter.convert(value)

        converter = Converter(free, {"$ref": _DEFINITIONS + free}, later)
        self._named[annotation] = converter
        return converter

    def _free_name(self, name: str) -> str:
        free = name
        number = 1
        while free in self._definitions:
            number += 1
            free = f"{name}_{number}"
        return free

    def _with_variables(self, annotation: Any, origin: Any, make: Callable[[], T]) -> T:
        """Call ``make`` with the type variables of a generic class or alias bound to its arguments."""
        outer = self._variables
        parameters = getattr(origin, "__parameters__", ()) or getattr(origin, "__type_params__", ())
        self._variables = dict(zip(parameters, typing.get_args(annotation), strict=False))
        try:
            return make()
        finally:
            self._variables = outer

    def _member_schema(self, field: Field, converter: Converter) -> dict[str, Any]:
        schema = dict(converter.schema)
        if field.description:
            schema.setdefault("description", field.description)
        if field.default is not NO_DEFAULT and not self.output:
            # A default that does not fit the type (``text: str = None``) concerns the function, not the caller.
            with suppress(Fault):
                default = plain(field.default)
                converter.convert(default)
                schema["default"] = default
        return schema

    def _adopted(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return a schema of another library with its definitions merged into this schema's, renamed on conflicts."""
        theirs = dict(schema)
        definitions: dict[str, Any] = theirs.pop("$defs", {})
        names = {name: name for name in definitions}
        if any(self._foreign_definitions.get(name) != definitions[name] for name in self._definitions.keys() & names):
            names = {name: self._free_name(name) for name in definitions}
        moved = {_DEFINITIONS + old: _DEFINITIONS + new for old, new in names.items() if old != new}
        for name, definition in definitions.items():
            self._foreign_definitions[names[name]] = definition
            self._definitions[names[name]] = _renamed(definition, moved)
        adopted: dict[str, Any] = _renamed(theirs, moved)
        return adopted

    def _unsupported(self, annotation: Any, advice: str = _ADVICE) -> TypeError:
        return TypeError(f"{self.where}: {_readable(annotation)} has no JSON Schema: {advice}")


_TYPE_NAMES: Final[dict[type, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
_SURELY_JSON: Final[frozenset[type]] = frozenset([str, int, bool, type(None)])
_JSON: Final = _SURELY_JSON | {float, list, dict}
_ARRAYS: Final[dict[Any, Callable[[Any], Any] | None]] = {
    list: None,
    collections.abc.Sequence: None,
    collections.abc.MutableSequence: None,
    collections.abc.Collection: None,
    collections.abc.Iterable: None,
    tuple: tuple,
    set: set,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
    frozenset: frozenset,
}
_OBJECTS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def _is_unhashable(annotation: Any) -> bool:
    """Whether all values of a type are unhashable, as those of ``list[int]``."""
    while typing.get_origin(annotation) is typing.Annotated:
        annotation = annotation.__origin__
    kind = typing.get_origin(annotation) or annotation
    return isinstance(kind, type) and kind.__hash__ is None


def _is_bare_tuple(annotation: Any) -> bool:
    # typing.Tuple looks like Tuple[()] to get_origin and get_args.
    return annotation is tuple or annotation is typing.Tuple  # noqa: UP006 - annotations of other authors may use the old name


def _readable(annotation: Any) -> str:
    """Return an annotation as people write it: ``Point``, ``list[int]``."""
    origin = typing.get_origin(annotation)
    if isinstance(origin, type) and origin is not types.UnionType:
        return f"{origin.__name__}[{', '.join(map(_readable, typing.get_args(annotation)))}]"
    return annotation.__name__ if isinstance(annotation, type) else repr(annotation).replace("typing.", "")


def _references(schema: Any) -> Iterator[str]:
    """Yield the names of the definitions that a schema refers to."""
    if isinstance(schema, dict):
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith(_DEFINITIONS):
            yield reference.removeprefix(_DEFINITIONS)
    if isinstance(schema, dict | list):
        for part in schema.values() if isinstance(schema, dict) else schema:
            yield from _references(part)


def _renamed(schema: Any, moved: Mapping[str, str]) -> Any:
    """Return a schema with references replaced, including those in the mapping of a discriminator."""
    if isinstance(schema, dict):
        return {name: _renamed(part, moved) for name, part in schema.items()}
    if isinstance(schema, list):
        return [_renamed(part, moved) for part in schema]
    return moved.get(schema, schema) if isinstance(schema, str) else schema
