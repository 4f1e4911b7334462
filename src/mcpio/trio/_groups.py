"""One exception instead of the groups that nurseries make (P10)."""

from __future__ import annotations

from contextlib import AbstractContextManager

import trio

from mcpio import _driving

__all__ = ["first_failure", "ungrouped"]


def ungrouped() -> AbstractContextManager[None]:
    """Let what is in a nursery's group leave without it. See ``mcpio._driving.unwrapped``."""
    return _driving.unwrapped(trio.Cancelled)


def first_failure(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first exception in a group that is no cancellation; a cancellation where there is nothing else."""
    return _driving.first_failure(group, trio.Cancelled)
