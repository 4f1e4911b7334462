"""What this layer has the drivers do with files, which it does not touch itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

__all__ = ["OPENERS"]

OPENERS: Final[dict[str, Callable[..., Any]]] = {}
"""Functions that open something, by what that is. Any driver that is imported enters them."""
