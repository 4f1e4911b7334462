"""Handlers that do one thing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def returning(value: Any, *, later: bool) -> Callable[..., Any]:
    """Return a function that returns the value, or raises it."""

    def at_once(*_: Any) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    async def in_a_task(*_: Any) -> Any:
        return at_once()

    return in_a_task if later else at_once
