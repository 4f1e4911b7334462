"""Values that may have to be waited for, from functions that may be plain or async."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["settle"]


def settle(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Return ``convert(value)``, or a coroutine for it where ``value`` is awaitable."""
    return _settled(value, convert) if inspect.isawaitable(value) else convert(value)


async def _settled(value: Any, convert: Callable[[Any], Any]) -> Any:
    return convert(await value)
