"""One exception instead of the groups that nurseries make (P10)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import trio

__all__ = ["first_failure", "ungrouped"]


@contextlib.contextmanager
def ungrouped() -> Iterator[None]:
    """Let what is in a nursery's group leave without it: around ``async with trio.open_nursery()``, and nothing else.

    For nurseries whose tasks do not raise, so that there is but one exception to speak of: ``trio.Cancelled``, or what
    a handler ended the program with.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        failure = first_failure(group)
        context = failure.__context__
        try:
            raise failure
        finally:
            # Not the group, which would show all of it once more.
            failure.__context__ = context
            del failure, context  # They refer to this frame, and this frame to them.


def first_failure(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first exception in a group that is no cancellation; a cancellation where there is nothing else."""
    _, failures = group.split(trio.Cancelled)
    found: BaseException = group if failures is None else failures
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
