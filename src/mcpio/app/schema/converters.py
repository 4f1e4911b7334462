"""How values of one type go in or come out, put together from the plans of the types that it is made of."""

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
    """What to do with the values of one type, in one direction.

    ``schema`` describes the JSON value. ``convert`` turns a value into its other form, or raises `Fault`. Values whose
    type is in ``as_is`` are their own other form, so a caller may skip ``convert``. ``kinds`` are the types of the
    values that may fit at all, ``None`` where only trying tells. ``name`` is the type in words. Constraints that apply
    to a ``family`` apply to the values, ``moment`` being the class of a date or time.

    ``alternatives`` are the plans of a union. ``tags`` are the members of a class that have a fixed set of values, so
    that they tell it from others.

    A plan that refers to itself is filled in after it was handed out, so its parts are looked up when used.
    """

    __slots__ = ("alternatives", "as_is", "convert", "family", "kinds", "moment", "name", "schema", "tags")

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

    def with_schema(self, schema: dict[str, Any]) -> Converter:
        """Return the same plan with another schema."""
        plan = Converter(self.name, schema, self.convert)
        plan.become(self)
        return plan

    def become(self, other: Converter) -> None:
        """Do what another plan does from now on, keeping one's own schema and name."""
        self.convert = other.convert
        self.as_is = other.as_is
        self.kinds = other.kinds
        self.family = other.family
        self.moment = other.moment
        self.alternatives = other.alternatives
        self.tags = other.tags


class ObjectConverter:
    """The named members of an object, or the arguments of a function: which there are, and the plan of each.

    ``extra`` is the plan of all members with other names, ``None`` when there may be none. ``noun`` is what a member
    is called in an error: ``argument``, ``member``.
    """

    __slots__ = ("extra", "noun", "plans", "required")

    def __init__(
        self,
        plans: dict[str, Converter],
        required: Iterable[str],
        *,
        extra: Converter | None = None,
        noun: str = "member",
    ) -> None:
        self.plans: dict[str, Converter] = plans
        self.required: tuple[str, ...] = tuple(required)
        self.extra: Converter | None = extra
        self.noun: str = noun

    def convert(self, members: Mapping[str, Any]) -> dict[str, Any]:
        """Return the members converted, in the order they came. `Fault` for unknown, missing and unfit ones."""
        found: dict[str, Any] = {}
        get = self.plans.get
        for name, value in members.items():
            plan = get(name, self.extra)
            if plan is None:
                raise self._unknown(members)
            if type(value) in plan.as_is:
                found[name] = value
            else:
                try:
                    found[name] = plan.convert(value)
                except Fault as fault:
                    fault.steps.append(name)
                    raise
        for name in self.required:
            if name not in found:
                raise self._missing(found)
        return found

    def _unknown(self, members: Mapping[str, Any]) -> Fault:
        names = _quoted([name for name in members if name not in self.plans])
        known = f"the {self.noun}s are {_listed(self.plans)}" if self.plans else f"there are no {self.noun}s"
        missing = _listed(name for name in self.required if name not in members)
        return Fault(f"unknown {self.noun} {names}; {known}" + (f"; missing: {missing}" if missing else ""))

    def _missing(self, found: dict[str, Any]) -> Fault:
        names = [name for name in self.required if name not in found]
        return Fault(f"missing {self.noun}{'s' if len(names) > 1 else ''} {_listed(names)}")


def array(item: Converter, make: Callable[[list[Any]], Any] | None = None) -> Callable[[Any], Any]:
    """Return the conversion of lists, by ``make`` from the list of converted items."""

    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            raise expected("an array", value)
        as_is = item.as_is
        found = [member if type(member) in as_is else _item(item, index, member) for index, member in enumerate(value)]
        return found if make is None else make(found)

    return convert


def from_any_array(convert: Callable[[list[Any]], Any], *, ordered: bool) -> Callable[[Any], Any]:
    """Return a conversion of lists that takes other sequences too, and sets unless the order matters."""

    def convert_any(value: Any) -> Any:
        if isinstance(value, AbstractSet) and not ordered:
            return convert(in_order(value))
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            return convert(list(value))
        return convert(value)

    return convert_any


def all_different(make: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Return how to make a set, with a `Fault` for items that are equal or cannot stand in one."""

    def made(items: list[Any]) -> Any:
        try:
            found = make(items)
        except TypeError:
            raise Fault("expected items that can be told apart, got arrays or objects") from None
        if len(found) != len(items):
            raise Fault("expected items that are all different")
        return found

    return made


def _item(plan: Converter, index: int, value: Any) -> Any:
    try:
        return plan.convert(value)
    except Fault as fault:
        fault.steps.append(index)
        raise


def fixed_array(items: list[Converter], make: Callable[[list[Any]], Any]) -> Callable[[Any], Any]:
    """Return the conversion of lists with one plan for each place."""

    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            raise expected("an array", value)
        if len(value) != len(items):
            raise Fault(f"expected {len(items)} items, got {len(value)}")
        return make([_item(plan, index, value[index]) for index, plan in enumerate(items)])

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
    """Return the conversion of objects to values of a class. What the class itself refuses is a fault too."""

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise expected("an object", value)
        found = members.convert(value)
        try:
            return make(**found)
        except (ValueError, TypeError) as error:
            raise Fault(str(error)) from error

    return convert


def record_writer(
    members: ObjectConverter, attributes: list[tuple[str, str]], kind: type | None
) -> Callable[[Any], Any]:
    """Return the conversion of values of a class to objects; a mapping with the same members will do as well."""

    def convert(value: Any) -> Any:
        if kind is not None and isinstance(value, kind):
            return members.convert({name: getattr(value, attribute) for name, attribute in attributes})
        if isinstance(value, Mapping):
            return members.convert(value)
        raise expected("a mapping" if kind is None else f"a {kind.__name__}", value)

    return convert


def choice(values: list[tuple[Any, Any]], *, output: bool) -> tuple[str, Callable[[Any], Any]]:
    """Return a fixed set of values in words and their conversion; the values are (value in JSON, value in Python).

    On the way out either form is understood: an enumeration's member and its value.
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
    """Return a key that tells ``True`` from ``1`` and a member from its value, but not ``1.0`` from ``1`` (as JSON)."""
    kind = type(value)
    return value, float if kind is int else kind


def constrained(plan: Converter, rules: list[Rule], *, output: bool) -> Converter:
    """Return a plan with constraints, checked on the Python value, so after reading and before writing."""
    inner = plan.convert
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

    schema = dict(plan.schema)
    for rule in rules:
        if rule.keywords.keys() & schema.keys():
            schema["allOf"] = [*schema.get("allOf", ()), rule.keywords]
        else:
            schema.update(rule.keywords)
    return Converter(
        plan.name, schema, write if output else read, kinds=plan.kinds, family=plan.family, moment=plan.moment
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _quoted(names: list[Any]) -> str:
    """Return names that somebody else chose, as many and as much of each as an error needs."""
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(map(shown, names[:_NAMES])) + more


_NAMES: Final = 5


def union(members: Sequence[Converter]) -> tuple[Callable[[Any], Any], frozenset[type], frozenset[type] | None]:
    """Return the conversion of values that fit one of several plans, what it takes as it is, and the kinds that fit.

    Plans are tried in order, but a number goes to the plan that takes it unchanged: for ``float | int``, 5 is an
    integer. Of classes with a member that tells them apart only those whose value is there are tried.
    """
    known: frozenset[type] = frozenset().union(*(plan.as_is | (plan.kinds or frozenset()) for plan in members))
    candidates = {kind: _candidates(members, kind) for kind in known}
    others = tuple(plan for plan in members if plan.kinds is None)
    attempts = _Attempts()

    def convert(value: Any) -> Any:
        kind = type(value)
        fitting = candidates.get(kind, others)
        if not fitting:
            raise expected(_names(members), value)
        if kind in fitting[0].as_is:
            return value
        if len(fitting) > 1 and kind is dict:
            fitting = _tagged(fitting, value)
        if len(fitting) == 1:
            return fitting[0].convert(value)
        return _first(fitting, value) if kind in _SCALARS else attempts.first(fitting, value)

    as_is = frozenset(kind for kind, plans in candidates.items() if kind in plans[0].as_is)
    return convert, as_is, None if others else known


def _candidates(members: Sequence[Converter], kind: type) -> tuple[Converter, ...]:
    found = [plan for plan in members if plan.kinds is None or kind in plan.kinds]
    if kind in (int, float):
        found.sort(key=lambda plan: kind not in plan.as_is)
    return tuple(found)


def _tagged(plans: tuple[Converter, ...], value: dict[str, Any]) -> tuple[Converter, ...]:
    """Return the plans that a value's tags do not rule out; all, when they rule out all."""
    found = tuple(
        plan for plan in plans if all(_takes(tag, value[name]) for name, tag in plan.tags.items() if name in value)
    )
    return found or plans


def _takes(plan: Converter, value: Any) -> bool:
    try:
        plan.convert(value)
    except Fault:
        return False
    return True


class _Attempts:
    """Tries one alternative after another, and each value once.

    Where alternatives that are alike contain themselves, every level of a value would be tried once for each level
    around it and each alternative: a billion times for thirty levels. So what became of a value is kept until the
    outermost attempt is over. The value is kept with it, which makes its identity a safe key.
    """

    __slots__ = ("_known", "_running")

    def __init__(self) -> None:
        self._running = 0
        self._known: dict[int, tuple[Any, Any, Fault | None]] = {}

    def first(self, plans: tuple[Converter, ...], value: Any) -> Any:
        """Return what the first plan makes of the value that takes it; `Fault` when none does."""
        if (known := self._known.get(id(value))) is not None:
            _, found, fault = known
            if fault is not None:
                raise Fault(fault.reason, *fault.steps)
            return found
        self._running += 1
        try:
            found = _first(plans, value)
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


def _first(plans: tuple[Converter, ...], value: Any) -> Any:
    faults: list[tuple[Converter, Fault]] = []
    for plan in plans:
        if type(value) in plan.as_is:
            return value
        try:
            return plan.convert(value)
        except Fault as fault:
            faults.append((plan, fault))
    # What merely is of another type gets one list of types.
    if all(fault.reason == expected(plan.name, value).reason for plan, fault in faults):
        raise expected(_names(plans), value)
    reasons = "; ".join(dict.fromkeys(f"{plan.name}: {fault.as_invalid('')}" for plan, fault in faults))
    raise Fault("fits no alternative: " + (reasons if len(reasons) <= _REASONS else reasons[:_REASONS] + "…"))


_REASONS: Final = 500
"""How many characters of all reasons together are kept: a reason may contain those of alternatives inside."""


_SCALARS: Final = frozenset([str, int, float, bool, type(None)])


def _names(plans: Sequence[Converter]) -> str:
    return " or ".join(dict.fromkeys(plan.name for plan in plans))
