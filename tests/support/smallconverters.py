"""Converters of values that are small enough to see through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mcpio.app.schema.builder import Converter
from mcpio.app.schema.values import Fault, expected


def strictly(kind: type, name: str, *, only_trying: bool = False) -> Converter:
    """Return a converter that takes one type as it is."""

    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise expected(name, value)
        return value

    return Converter(
        name, {"is": name}, convert, as_is=frozenset([kind]), kinds=None if only_trying else frozenset([kind])
    )


def doubled(low: int) -> Converter:
    """Return a converter for integers from ``low`` that doubles them."""

    def convert(value: Any) -> Any:
        if value < low:
            raise Fault(f"{value} is below {low}")
        return 2 * value

    return Converter(f"from {low}", {}, convert, kinds=frozenset([int]), family="number")


INTEGER = strictly(int, "an integer")
TEXT = strictly(str, "a string")


def refused(convert: Callable[[Any], Any], value: Any) -> str:
    """Return path and reason of the fault."""
    with pytest.raises(Fault) as caught:
        convert(value)
    return str(caught.value.as_invalid("x"))
