"""The session actor on Trio."""

from __future__ import annotations

import trio

from mcpio._drivers.actor import Actor
from mcpio.trio._interrupts import uninterruptible

__all__ = ["TrioActor"]

uninterruptible(Actor)


@uninterruptible
class TrioActor(Actor):
    """Runs one session until its connection ends. One timekeeper serves any number of actors."""

    async def run(self) -> None:
        """Run the session until its connection ends; then close the transport."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read)
                nursery.start_soon(self._write)
                await self._take_turns()
                await self._finish_writing()
                nursery.cancel_scope.cancel()
        finally:
            await self._end()
