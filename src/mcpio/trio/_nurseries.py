"""One exception in place of the groups that nurseries raise (P10), and shielded time to clean up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from math import inf

import trio

from mcpio import _drivers

__all__ = ["last_moment", "ungrouped"]


def ungrouped() -> AbstractContextManager[None]:
    """Raise one exception in place of a nursery's group. See ``mcpio._drivers.unwrapped``."""
    return _drivers.unwrapped(trio.Cancelled)


@asynccontextmanager
async def last_moment(seconds: float | None) -> AsyncIterator[None]:
    """Shielded block of at most that many seconds; ``None`` for no limit."""
    with trio.CancelScope(shield=True, deadline=inf if seconds is None else trio.current_time() + seconds):
        yield
