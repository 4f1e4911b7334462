"""One exception instead of the groups that nurseries make (P10), and time to end in order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from math import inf

import trio

from mcpio import _driving

__all__ = ["first_failure", "last_moment", "reason_of", "ungrouped"]


def ungrouped() -> AbstractContextManager[None]:
    """Let what is in a nursery's group leave without it. See ``mcpio._driving.unwrapped``."""
    return _driving.unwrapped(trio.Cancelled)


def first_failure(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first exception in a group that is no cancellation; a cancellation where there is nothing else."""
    return _driving.first_failure(group, trio.Cancelled)


def reason_of(error: BaseException) -> str:
    """Say in one line why something broke: what lies deepest says it best."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(reason_of(each) for each in error.exceptions))
    return str(error) or type(error).__name__


@asynccontextmanager
async def last_moment(seconds: float | None) -> AsyncIterator[None]:
    """Give a shielded block of at most so many seconds, or of as many as it takes."""
    with trio.CancelScope(shield=True, deadline=inf if seconds is None else trio.current_time() + seconds):
        yield
