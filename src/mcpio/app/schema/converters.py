"""Converters: how values of one type are read or written, composed from those of the types that it contains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final

from mcpio.app.schema.faults import Fault, expected, shown
from mcpio.app.schema.plain import in_order

if TYPE_CHECKING:
    from mcpio.app.schema.constraints import Rule
    from mcpio.app.schema.faults import Family

__all__ = [
    "Converter",
    "ObjectConverter",
    "all_different",
    "array",
    "choice",
    "constrained",
    "fixed_array",
    "from_any_array",
    "mapping",
    "record_reader",
    "record_writer",
    "union",
]


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
        found: dict[str, Any] = {}
        get = self.converters.get
        for name, value in members.items():
            converter = get(name, self.extra)
            if converter is None:
                raise self._unknown(members)
            if type(value) in converter.as_is:
                found[name] = value
            else:
                try:
                    found[name] = converter.convert(value)
                except Fault as fault:
                    fault.steps.append(name)
                    raise
        for name in self.required:
            if name not in found:
                raise self._missing(found)
        return found

    def _unknown(self, members: Mapping[str, Any]) -> Fault:
        names = _quoted([name for name in members if name not in self.converters])
        known = f"the {self.noun}s are {_listed(self.converters)}" if self.converters else f"there are no {self.noun}s"
        missing = _listed(name for name in self.required if name not in members)
        return Fault(f"unknown {self.noun} {names}; {known}" + (f"; missing: {missing}" if missing else ""))

    def _missing(self, found: dict[str, Any]) -> Fault:
        names = [name for name in self.required if name not in found]
        return Fault(f"missing {self.noun}{'s' if len(names) > 1 else ''} {_listed(names)}")


def array(item: Converter, make: Callable[[list[Any]], Any] | None = None) -> Callable[[Any], Any]:
    """Return the conversion of lists; ``make`` makes the result from the converted items."""

    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            raise expected("an array", value)
        as_is = item.as_is
        found = [member if type(member) in as_is else _item(item, index, member) for index, member in enumerate(value)]
        return found if make is None else make(found)

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

    def made(items: list[Any]) -> Any:
        try:
            found = make(items)
        except TypeError:
            raise Fault("expected items that can be told apart, got arrays or objects") from None
        if len(found) != len(items):
            raise Fault("expected items that are all different")
        return found

    return made


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
        return make([_item(converter, index, value[index]) for index, converter in enumerate(items)])

    return convert


def mapping(key: Converter, item: Converter) -> Callable[[Any], dict[Any, Any]]:
    """Return the conversion of objects with any names."""

    def convert(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict | Mapping):
            raise expected("an object", value)
        found: dict[Any, Any] = {}
        for name, member in value.items():
            try:
                found[key.convert(name)] = member if type(member) in item.as_is else item.convert(member)
            except Fault as fault:
                fault.steps.append(name if isinstance(name, str) else shown(name))
                raise
        return found

    return convert


def record_reader(members: ObjectConverter, make: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return the conversion of objects to instances of a class. Its constructor refuses values as validators do.

    That is by ValueError, TypeError or AssertionError. Any other exception is a mistake of its author, and propagates.
    """

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise expected("an object", value)
        found = members.convert(value)
        try:
            return make(**found)
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
    table = {_distinct(said): (said if output else meant) for said, meant in values}
    if output:
        table |= {_distinct(meant): said for said, meant in values}
    names = ", ".join(shown(said) for said, _ in values)
    what = f"one of {names}" if len(values) > 1 else names

    def convert(value: Any) -> Any:
        try:
            return table[_distinct(value)]
        except (KeyError, TypeError):
            raise expected(what, value) from None

    return what, convert


def _distinct(value: Any) -> Any:
    """Return a key that distinguishes ``True`` from ``1``, and a member from its value, but not ``1.0`` from ``1``."""
    kind = type(value)
    return value, float if kind is int else kind


def constrained(converter: Converter, rules: list[Rule], *, output: bool) -> Converter:
    """Return a converter with constraints on the Python value: checked after reading and before writing."""
    inner = converter.convert
    checks = [rule.check for rule in rules]

    def read(value: Any) -> Any:
        found = inner(value)
        for check in checks:
            check(found)
        return found

    def write(value: Any) -> Any:
        found = inner(value)
        for check in checks:
            check(value)
        return found

    schema = dict(converter.schema)
    for rule in rules:
        if rule.keywords.keys() & schema.keys():
            schema["allOf"] = [*schema.get("allOf", ()), rule.keywords]
        else:
            schema.update(rule.keywords)
    return Converter(
        converter.name,
        schema,
        write if output else read,
        kinds=converter.kinds,
        family=converter.family,
        moment=converter.moment,
    )


def _listed(names: Iterable[str]) -> str:
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
    known: frozenset[type] = frozenset().union(
        *(converter.as_is | (converter.kinds or frozenset()) for converter in members)
    )
    candidates = {kind: _candidates(members, kind) for kind in known}
    others = tuple(converter for converter in members if converter.kinds is None)
    classes = [converter.written for converter in members]
    # Those of a generic class, such as Box[int] and Box[str], have the same one, which tells nothing.
    owners = {each.written: each for each in members if each.written is not None and classes.count(each.written) == 1}
    names = _names(members)
    attempts = _Attempts(names)

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
            fitting = _tagged(fitting, value)
        if len(fitting) == 1:
            return only(fitting[0], value)
        return _first(fitting, value, names) if kind in _SCALARS else attempts.first(fitting, value)

    as_is = frozenset(kind for kind, converters in candidates.items() if kind in converters[0].as_is)
    return convert, as_is, None if others else known


def _candidates(members: Sequence[Converter], kind: type) -> tuple[Converter, ...]:
    found = [converter for converter in members if converter.kinds is None or kind in converter.kinds]
    if kind in (int, float):
        found.sort(key=lambda converter: kind not in converter.as_is)
    return tuple(found)


def _tagged(converters: tuple[Converter, ...], value: dict[str, Any]) -> tuple[Converter, ...]:
    """Return the converters whose tags fit the value; all of them if none does."""
    found = tuple(
        converter
        for converter in converters
        if all(_takes(tag, value[name]) for name, tag in converter.tags.items() if name in value)
    )
    return found or converters


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

    __slots__ = ("_known", "_names", "_running")

    def __init__(self, names: str) -> None:
        self._names = names
        self._running = 0
        self._known: dict[int, tuple[Any, Any, Fault | None]] = {}

    def first(self, converters: tuple[Converter, ...], value: Any) -> Any:
        """Return the conversion by the first converter that accepts the value, or raise Fault."""
        if (known := self._known.get(id(value))) is not None:
            _, found, fault = known
            if fault is not None:
                raise Fault(fault.reason, *fault.steps)
            return found
        self._running += 1
        try:
            found = _first(converters, value, self._names)
        except Fault as fault:
            self._known[id(value)] = (value, None, Fault(fault.reason, *fault.steps))
            raise
        else:
            self._known[id(value)] = (value, found, None)
            return found
        finally:
            self._running -= 1
            if not self._running:
                self._known.clear()


def _first(converters: tuple[Converter, ...], value: Any, names: str) -> Any:
    """Return the conversion by the first converter that accepts the value. ``names`` are those of the whole union."""
    faults: list[tuple[Converter, Fault]] = []
    for converter in converters:
        if type(value) in converter.as_is:
            return value
        try:
            return converter.convert(value)
        except Fault as fault:
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
