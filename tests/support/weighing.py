"""What an object weighs, alone."""

from __future__ import annotations

import enum
import sys
from typing import Any

from mcpio.codec import Codec
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.methods import Method
from mcpio.revisions import Revision
from mcpio.types._fields import Payload

IDLE = 2048
"""Bytes that an idle engine may take, beyond what it shares with others and what the peer declared."""
SHARED = (Options, Limits, Codec, Method, Revision, Payload, enum.Enum, type)


def weight(value: Any, seen: set[int] | None = None) -> int:
    """Return the bytes of all that only this object keeps alive."""
    seen = set() if seen is None else seen
    if id(value) in seen or value is None or isinstance(value, SHARED) or callable(value):
        return 0
    seen.add(id(value))
    inside: list[Any] = []
    if isinstance(value, dict):
        inside += [*value, *value.values()]
    elif isinstance(value, (list, tuple, set)) or type(value).__name__ == "deque":
        inside += value
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        inside += [getattr(value, name, None) for name in ((slots,) if isinstance(slots, str) else slots)]
    return sys.getsizeof(value) + sum(weight(each, seen) for each in inside)
