"""Apply a list of store effects, batching consecutive writes; failures are returned as values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

__all__ = ["apply_effects"]

E = TypeVar("E")


def apply_effects(
    effects: Iterable[E], read: Callable[[E], Callable[[], Any] | None], write: Callable[[list[Any]], None]
) -> list[Any]:
    """Return the store's answer to each effect: a value, or the exception that it raised.

    ``read`` returns the function to call for an effect that reads, ``None`` for one that writes. ``write`` makes a list
    of changes atomically.
    """
    values: list[Any] = []
    changes: list[E] = []
    for effect in effects:
        call = read(effect)
        if call is None:
            changes.append(effect)
            continue
        values += _change(write, changes)
        changes = []
        values.append(_tried(call))
    return values + _change(write, changes)


def _change(write: Callable[[list[Any]], None], changes: list[E]) -> list[Any]:
    return [_tried(lambda: write(changes))] * len(changes) if changes else []


def _tried(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return error
