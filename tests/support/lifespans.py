"""A lifespan that notes what happens to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcpio.app.server import Server

__all__ = ["Scope"]


class Scope:
    """Gives ``"the state"``, and fails where it is told to."""

    def __init__(self, *, enter: BaseException | None = None, leave: BaseException | None = None) -> None:
        self.seen: list[str] = []
        self.failures = enter, leave

    @asynccontextmanager
    async def __call__(self, server: Server) -> AsyncIterator[str]:
        self.seen.append("entered")
        if self.failures[0] is not None:
            raise self.failures[0]
        try:
            yield "the state"
        finally:
            self.seen.append("left")
        if self.failures[1] is not None:
            raise self.failures[1]
