"""The session actor on Trio."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import trio

from mcpio._drivers.actor import Actor, TransportAdapter
from mcpio.engine.connection import Connection
from mcpio.trio._interrupts import uninterruptible
from mcpio.trio._nurseries import last_moment
from mcpio.trio._runtime import TrioRuntime
from mcpio.trio._timekeeper import Signal, Timekeeper

__all__ = ["TrioActor"]

uninterruptible(Actor)


@uninterruptible
class TrioActor(Actor):
    """Runs one session until its connection ends. One timekeeper serves any number of actors."""

    _EXPECTED = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)

    def __init__(
        self,
        connection: Connection,
        adapter: TransportAdapter,
        timekeeper: Timekeeper,
        runtime: TrioRuntime,
        *,
        end_timeout: float | None = None,
    ) -> None:
        super().__init__(
            connection, adapter, timekeeper, runtime, signal=Signal, event=trio.Event, end_timeout=end_timeout
        )
        self._last_write = trio.CancelScope()

    def now(self) -> float:
        """Return Trio's time."""
        return trio.current_time()

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

    async def _finish_writing(self) -> None:
        """Wait until the last output is written: without limit, or until the grace of ``close`` expires."""
        if self._adapter.ending:
            with self._last_write:
                await self._written.wait()

    async def _wait_ended(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self._ended.wait()

    def _end_writing_by(self, deadline: float) -> None:
        self._last_write.deadline = min(self._last_write.deadline, deadline)

    def _last_moment(self, seconds: float | None) -> AbstractAsyncContextManager[None]:
        return last_moment(seconds)
