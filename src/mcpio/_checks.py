"""What was given for an argument looked at: of the wrong kind, or without a meaning, it is refused by its name."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeVar

__all__ = ["check_options", "checked", "chosen", "is_amount", "is_count", "of_kind", "required"]

T = TypeVar("T")


def chosen(name: str, value: Any, kind: type[T]) -> T:
    """Return what was given for an argument, the default of its kind for ``None``. ``TypeError`` for another kind."""
    return checked(name, value, kind) or kind()


def checked(name: str, value: Any, kind: type[T]) -> T | None:
    """Return what was given for an argument, which may be ``None``. ``TypeError``, which names it, for another kind."""
    return None if value is None else required(name, value, kind)


def required(name: str, value: Any, kind: type[T]) -> T:
    """Return what was given for an argument. ``TypeError``, which names it, for another kind, and for ``None``."""
    if isinstance(value, kind):
        return value
    raise TypeError(f"{name}= takes {kind.__name__}, not {value!r:.100}")


def of_kind(kind: type[Any], *, optional: bool = False) -> Any:
    """Return a validator of attrs that does what ``required`` does, or ``checked`` where ``None`` will do."""
    check = checked if optional else required
    return lambda _, field, value: check(field.name, value, kind)


def is_count(value: Any, least: int = 0) -> bool:
    """Tell whether something is an integer that is large enough."""
    return isinstance(value, int) and value >= least


def is_amount(value: Any, least: float = 0) -> bool:
    """Tell whether something is a number that is large enough, and not infinite."""
    return isinstance(value, int | float) and least <= value < math.inf


def check_options(options: Iterable[str], known: Iterable[str]) -> None:
    """Raise ``TypeError`` for an option that there is not."""
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r}; there are {', '.join(sorted(known))}")
