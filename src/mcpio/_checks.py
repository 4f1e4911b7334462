"""Argument validation helpers; errors name the offending parameter."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar

__all__ = [
    "called",
    "check_options",
    "checked",
    "chosen",
    "is_amount",
    "is_count",
    "is_scope",
    "items_of",
    "of_kind",
    "required",
    "takes",
]

T = TypeVar("T")

_SCOPE: Final = re.compile(r"[!#-\[\]-~]+")


def chosen(name: str, value: Any, kind: type[T]) -> T:
    """Return an argument, or ``kind()`` in place of ``None``. Raises TypeError if it is of another kind."""
    return kind() if value is None else required(name, value, kind)


def checked(name: str, value: Any, kind: type[T]) -> T | None:
    """Return an argument, which may be ``None``. Raises TypeError if it is of another kind."""
    return None if value is None else required(name, value, kind)


def required(name: str, value: Any, kind: type[T]) -> T:
    """Return an argument. Raises TypeError if it is of another kind or ``None``."""
    if isinstance(value, kind):
        return value
    raise TypeError(f"{name} must be {kind.__name__}, not {value!r:.100}")


def called(name: str, value: Any, parameters: str | None = None) -> Any:
    """Return a function that was given as an argument.

    Raises TypeError if it is no function, or cannot be called with the parameters, such as ``(ctx, request)``.
    """
    if not callable(value):
        of = "" if parameters is None else f" of {parameters}"
        raise TypeError(f"{name} must be a function{of}, not {value!r:.100}")
    if parameters is not None:
        try:
            inspect.signature(value).bind(*filter(None, parameters.strip("()").split(", ")))
        except TypeError as error:
            text = f"{name}= is called with {parameters}, which {value!r:.100} does not take: {error}"
            raise TypeError(text) from None
        except ValueError:
            pass  # it has no signature, as some functions of C
    return value


def takes(parameters: str, *, optional: bool = False) -> Any:
    """Return an attrs validator that applies ``called``, if the value is optional only to one that is not ``None``."""
    return lambda _, field, value: (optional and value is None) or called(field.name, value, parameters)


def of_kind(kind: type[Any], *, optional: bool = False) -> Any:
    """Return an attrs validator that applies ``required``, or ``checked`` if the value is optional."""
    check = checked if optional else required
    return lambda _, field, value: check(field.name, value, kind)


def items_of(name: str, value: Iterable[T]) -> tuple[T, ...]:
    """Return the items of a collection. Raises TypeError for a str, whose characters would count, and other values."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a collection, such as a tuple, not {value!r:.100}")
    return tuple(value)


def is_count(value: Any, least: int = 0) -> bool:
    """Return whether a value is an integer of at least ``least``. ``True`` does not count as one."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_amount(value: Any, least: float = 0) -> bool:
    """Return whether a value is a finite number of at least ``least``."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value < math.inf


def is_scope(value: str) -> bool:
    """Return whether a text has only the characters of a scope (RFC 6749 §3.3)."""
    return _SCOPE.fullmatch(value) is not None


def check_options(options: Iterable[str], allowed: Iterable[str]) -> None:
    """Raise TypeError for an unknown option."""
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise TypeError(f"unknown option {unknown[0]!r}; the options are {', '.join(sorted(allowed))}")
