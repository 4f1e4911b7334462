"""Functions that somebody gave to be told of something: plain ones, since nobody waits for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from mcpio.app.settling import is_awaitable

__all__ = ["ProgressCallback", "check_nothing_waits", "checked_callback"]

ProgressCallback: TypeAlias = Callable[[float, float | None, str | None], None]
"""Takes progress, total and message. A plain function: nobody waits for it."""


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
