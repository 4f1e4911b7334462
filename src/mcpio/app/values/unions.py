"""Values that fit one of several types: which one is tried, and what is said when none fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from mcpio.app.values.faults import Fault, expected

if TYPE_CHECKING:
    from mcpio.app.values.plans import Plan

__all__ = ["union"]


def union(members: Sequence[Plan]) -> tuple[Callable[[Any], Any], frozenset[type], frozenset[type] | None]:
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


def _candidates(members: Sequence[Plan], kind: type) -> tuple[Plan, ...]:
    found = [plan for plan in members if plan.kinds is None or kind in plan.kinds]
    if kind in (int, float):
        found.sort(key=lambda plan: kind not in plan.as_is)
    return tuple(found)


def _tagged(plans: tuple[Plan, ...], value: dict[str, Any]) -> tuple[Plan, ...]:
    """Return the plans that a value's tags do not rule out; all, when they rule out all."""
    found = tuple(
        plan for plan in plans if all(_takes(tag, value[name]) for name, tag in plan.tags.items() if name in value)
    )
    return found or plans


def _takes(plan: Plan, value: Any) -> bool:
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

    def first(self, plans: tuple[Plan, ...], value: Any) -> Any:
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


def _first(plans: tuple[Plan, ...], value: Any) -> Any:
    faults: list[tuple[Plan, Fault]] = []
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


def _names(plans: Sequence[Plan]) -> str:
    return " or ".join(dict.fromkeys(plan.name for plan in plans))
