"""How values of one type go in or come out, put together from the plans of the types that it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final

from mcpio.app.values.faults import Fault, expected, shown
from mcpio.app.values.plain import in_order

if TYPE_CHECKING:
    from mcpio.app.values.constraints import Family, Rule

__all__ = [
    "Members",
    "Plan",
    "all_different",
    "array",
    "choice",
    "constrained",
    "fixed_array",
    "from_any_array",
    "mapping",
    "record_reader",
    "record_writer",
]

NOTHING: Final[frozenset[type]] = frozenset()


class Plan:
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
        alternatives: tuple[Plan, ...] = (),
    ) -> None:
        self.name: str = name
        self.schema: dict[str, Any] = schema
        self.convert: Callable[[Any], Any] = convert
        self.as_is: frozenset[type] = as_is
        self.kinds = kinds
        self.family: Family | None = family
        self.moment = moment
        self.alternatives: tuple[Plan, ...] = alternatives
        self.tags: dict[str, Plan] = {}

    def with_schema(self, schema: dict[str, Any]) -> Plan:
        """Return the same plan with another schema."""
        plan = Plan(self.name, schema, self.convert)
        plan.become(self)
        return plan

    def become(self, other: Plan) -> None:
        """Do what another plan does from now on, keeping one's own schema and name."""
        self.convert = other.convert
        self.as_is = other.as_is
        self.kinds = other.kinds
        self.family = other.family
        self.moment = other.moment
        self.alternatives = other.alternatives
        self.tags = other.tags


class Members:
    """The named members of an object, or the arguments of a function: which there are, and the plan of each.

    ``extra`` is the plan of all members with other names, ``None`` when there may be none. ``noun`` is what a member
    is called in an error: ``argument``, ``member``.
    """

    __slots__ = ("extra", "noun", "plans", "required")

    def __init__(
        self, plans: dict[str, Plan], required: Iterable[str], *, extra: Plan | None = None, noun: str = "member"
    ) -> None:
        self.plans: dict[str, Plan] = plans
        self.required: tuple[str, ...] = tuple(required)
        self.extra: Plan | None = extra
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


def array(item: Plan, make: Callable[[list[Any]], Any] | None = None) -> Callable[[Any], Any]:
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


def _item(plan: Plan, index: int, value: Any) -> Any:
    try:
        return plan.convert(value)
    except Fault as fault:
        fault.steps.append(index)
        raise


def fixed_array(items: list[Plan], make: Callable[[list[Any]], Any]) -> Callable[[Any], Any]:
    """Return the conversion of lists with one plan for each place."""

    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            raise expected("an array", value)
        if len(value) != len(items):
            raise Fault(f"expected {len(items)} items, got {len(value)}")
        return make([_item(plan, index, value[index]) for index, plan in enumerate(items)])

    return convert


def mapping(key: Plan, item: Plan) -> Callable[[Any], dict[Any, Any]]:
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


def record_reader(members: Members, make: Callable[..., Any]) -> Callable[[Any], Any]:
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


def record_writer(members: Members, attributes: list[tuple[str, str]], kind: type | None) -> Callable[[Any], Any]:
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


def constrained(plan: Plan, rules: list[Rule], *, output: bool) -> Plan:
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
    return Plan(plan.name, schema, write if output else read, kinds=plan.kinds, family=plan.family, moment=plan.moment)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _quoted(names: list[Any]) -> str:
    """Return names that somebody else chose, as many and as much of each as an error needs."""
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(map(shown, names[:_NAMES])) + more


_NAMES: Final = 5
