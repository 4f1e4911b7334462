"""One exception instead of the groups that nurseries make (P10), and time to end in order."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from math import inf
from socket import gaierror

import trio

from mcpio import _drivers

__all__ = ["first_failure", "last_moment", "reason_of", "ungrouped"]


def ungrouped() -> AbstractContextManager[None]:
    """Let what is in a nursery's group leave without it. See ``mcpio._drivers.unwrapped``."""
    return _drivers.unwrapped(trio.Cancelled)


def first_failure(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first exception in a group that is no cancellation; a cancellation where there is nothing else."""
    return _drivers.first_failure(group, trio.Cancelled)


def reason_of(error: BaseException) -> str:
    """Return why something broke, in one line. The deepest cause says it best."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(reason_of(each) for each in error.exceptions))
    # Trio's own text repeats the address, once for each that it tried. Other kinds have error numbers of their own.
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError | gaierror) and error.errno is not None:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


@asynccontextmanager
async def last_moment(seconds: float | None) -> AsyncIterator[None]:
    """Give a shielded block of at most so many seconds, or of as many as it takes."""
    with trio.CancelScope(shield=True, deadline=inf if seconds is None else trio.current_time() + seconds):
        yield
