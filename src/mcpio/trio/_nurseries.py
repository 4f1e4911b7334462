"""One exception in place of the groups that nurseries raise (P10), and shielded time to clean up."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from math import inf
from socket import gaierror

import trio

from mcpio import _drivers

__all__ = ["last_moment", "reason_of", "ungrouped"]


def ungrouped() -> AbstractContextManager[None]:
    """Raise one exception in place of a nursery's group. See ``mcpio._drivers.unwrapped``."""
    return _drivers.unwrapped(trio.Cancelled)


def reason_of(error: BaseException) -> str:
    """Return the reason of an error in one line: that of its deepest cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(reason_of(each) for each in error.exceptions))
    # Trio's own text repeats the address, once for each that it tried. TLS and name look-ups have their own numbers.
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError | gaierror) and error.errno is not None:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


@asynccontextmanager
async def last_moment(seconds: float | None) -> AsyncIterator[None]:
    """Shielded block of at most that many seconds; ``None`` for no limit."""
    with trio.CancelScope(shield=True, deadline=inf if seconds is None else trio.current_time() + seconds):
        yield
