"""The decorator of async tests that one function runs, such as ``trio.run``."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["run_by"]

AsyncTest = Callable[..., Awaitable[None]]


def run_by(run: Callable[..., object]) -> Callable[[AsyncTest], Callable[..., None]]:
    """Return a decorator that has ``run`` run an async test, with its fixtures and parameters."""

    def decorate(test: AsyncTest) -> Callable[..., None]:
        @functools.wraps(test)
        def plain(**arguments: Any) -> None:
            run(functools.partial(test, **arguments))

        return plain

    return decorate
