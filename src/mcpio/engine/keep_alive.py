"""When to ask a silent peer whether it is there, and when to take it for gone: a policy, without a clock."""

from __future__ import annotations

import math
from typing import Any

import attrs

from mcpio._checks import is_count

__all__ = ["KEEP_ALIVE", "KeepAlive", "as_keep_alive"]

KEEP_ALIVE = "keep-alive"
"""The cookie of the pings that a connection sends by itself."""


def _time(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{field.name} is a number of seconds above 0, not {value!r:.100}")


def _count(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    if not is_count(value, 1):
        raise ValueError(f"{field.name} is an integer of 1 or more, not {value!r:.100}")


@attrs.frozen
class KeepAlive:
    """Pings for a peer from which nothing comes (PING-03, PING-05). Times are in seconds.

    Whatever comes from the peer shows that it is there, so a busy connection sends no pings. ``ValueError`` for what
    makes no sense.
    """

    interval: float = attrs.field(validator=_time)
    """How long a silence lasts before a ping is sent."""
    timeout: float = attrs.field(default=10.0, validator=_time)
    """How long the peer has for the answer: more for a slow network (PING-05)."""
    failures: int = attrs.field(default=3, validator=_count)
    """After how many pings in a row that nothing followed the connection ends, as ``CloseReason.UNRESPONSIVE``."""


def as_keep_alive(value: Any) -> KeepAlive | None:
    """Return what an option says: a ``KeepAlive``, the seconds of its interval, or ``None``. ``ValueError`` if none."""
    return value if value is None or isinstance(value, KeepAlive) else KeepAlive(value)
