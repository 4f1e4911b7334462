"""The session actor on Trio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from mcpio._drivers.actor import Actor
from mcpio.trio._runtime import uninterruptible

__all__ = ["TrioActor"]

uninterruptible(Actor)


@uninterruptible
class TrioActor(Actor):
    """Runs one session until its connection ends. One timekeeper serves any number of actors."""

    async def run(self) -> None:
        """Run the session until its connection ends; then close the transport."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pump, self._read)
                nursery.start_soon(self._pump, self._write)
                try:
                    await self._take_turns()
                    await self._finish_writing()
                finally:
                    nursery.cancel_scope.cancel()
                    await self._release_transport()
        finally:
            await self._end()

    async def _pump(self, run: Callable[[], Awaitable[None]]) -> None:
        try:
            await run()
        finally:
            self._note_pump_over()
