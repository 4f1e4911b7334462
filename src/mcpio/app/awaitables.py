"""Values that may have to be waited for, from functions that may be plain or async."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcpio.app.runtime import Runtime

__all__ = [
    "cancellation_of",
    "check_nothing_waits",
    "checked_callback",
    "is_awaitable",
    "is_of_kind",
    "is_stopping",
    "settle",
    "without_partial",
]


def is_awaitable(value: Any) -> bool:
    """Do what ``inspect.isawaitable`` does, without asking abstract classes: every result comes by here."""
    kind = value.__class__
    found = _AWAITABLE.get(kind)
    if found is None:
        found = hasattr(kind, "__await__")
        if len(_AWAITABLE) >= _MOST_CLASSES:
            # Classes that are made on the run must not live on for the sake of this table.
            _AWAITABLE.clear()
        _AWAITABLE[kind] = found
    return found or (kind is GeneratorType and inspect.isawaitable(value))


_AWAITABLE: Final[dict[type, bool]] = {}
"""Whether the values of a class are awaitable: looking that up in the class costs more than half a microsecond."""
_MOST_CLASSES: Final = 500


def is_of_kind(kind: Callable[[Any], bool], function: Any) -> bool:
    """Tell whether a function, or what is called by calling it, is of a kind that ``inspect`` knows."""
    function = without_partial(function)
    return kind(function) or (callable(function) and kind(type(function).__call__))


def without_partial(function: Any) -> Any:
    """Return the function that partial applications are made of."""
    while isinstance(function, partial):
        function = function.func
    return function


def cancellation_of(runtime: Runtime) -> tuple[type[BaseException], ...]:
    """Return what plain functions of an event loop may raise when what they ask for a result was cancelled.

    A runtime says so by a member ``cancellation``. Most have none: their loops cancel only what waits.
    """
    kind = getattr(runtime, "cancellation", None)
    return () if kind is None else (kind,)


async def is_stopping(runtime: Runtime) -> bool:
    """Tell whether the task that asks is to stop at every wait: it was cancelled, and not only what it waited for."""
    turn = runtime.one_shot()
    turn.set(None)
    try:
        await turn.wait()
    except BaseException:
        return True
    return False


def settle(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Return ``convert(value)``, or a coroutine for it where ``value`` is awaitable."""
    return _settled(value, convert) if is_awaitable(value) else convert(value)


async def _settled(value: Any, convert: Callable[[Any], Any]) -> Any:
    return convert(await value)


def checked_callback(name: str, callback: Any) -> Any:
    """Return a callback, or ``None``; ``TypeError`` for one that would have to be awaited."""
    if callback is None or (callable(callback) and not inspect.iscoroutinefunction(callback)):
        return callback
    raise TypeError(f"{name} is a plain function, called without waiting, not {callback!r:.100}")


def check_nothing_waits(result: Any) -> None:
    """Raise ``TypeError`` for what a callback returned, where somebody would have to wait for it."""
    if is_awaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(f"it returned {result!r:.100}, which nobody awaits: make it a plain function")
