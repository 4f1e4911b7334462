"""Plans of values that are small enough to see through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mcpio.app.values.faults import Fault, expected
from mcpio.app.values.plans import Plan


def strictly(kind: type, name: str, *, only_trying: bool = False) -> Plan:
    """Return a plan that takes one type as it is."""

    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise expected(name, value)
        return value

    return Plan(name, {"is": name}, convert, as_is=frozenset([kind]), kinds=None if only_trying else frozenset([kind]))


def doubled(low: int) -> Plan:
    """Return a plan for integers from ``low`` that doubles them."""

    def convert(value: Any) -> Any:
        if value < low:
            raise Fault(f"{value} is below {low}")
        return 2 * value

    return Plan(f"from {low}", {}, convert, kinds=frozenset([int]), family="number")


INTEGER = strictly(int, "an integer")
TEXT = strictly(str, "a string")


def refused(convert: Callable[[Any], Any], value: Any) -> str:
    """Return path and reason of the fault."""
    with pytest.raises(Fault) as caught:
        convert(value)
    return str(caught.value.as_invalid("x"))
