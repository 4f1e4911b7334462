"""Values that may have to be waited for, from functions that may be plain or async."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import GeneratorType
from typing import Any

__all__ = ["is_awaitable", "settle"]


def is_awaitable(value: Any) -> bool:
    """Do what ``inspect.isawaitable`` does, without asking abstract classes: every result comes by here."""
    kind = value.__class__
    return hasattr(kind, "__await__") or (kind is GeneratorType and inspect.isawaitable(value))


def settle(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Return ``convert(value)``, or a coroutine for it where ``value`` is awaitable."""
    return _settled(value, convert) if is_awaitable(value) else convert(value)


async def _settled(value: Any, convert: Callable[[Any], Any]) -> Any:
    return convert(await value)
