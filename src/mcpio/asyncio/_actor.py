"""The session actor on asyncio."""

from __future__ import annotations

import asyncio
import math

from mcpio._drivers.actor import Actor, Timed, TransportAdapter
from mcpio.asyncio._event_loop import AsyncioEventLoop
from mcpio.asyncio._runtime import AsyncioRuntime
from mcpio.engine.connection import Connection

__all__ = ["Alarm", "Alarms", "AsyncioActor"]


class AsyncioActor(Actor):
    """Runs one session until its connection ends."""

    def __init__(
        self,
        connection: Connection,
        adapter: TransportAdapter,
        runtime: AsyncioRuntime,
        *,
        end_timeout: float | None = None,
    ) -> None:
        self._alarm = Alarm(asyncio.get_running_loop())
        super().__init__(connection, adapter, self._alarm, runtime, AsyncioEventLoop(), end_timeout=end_timeout)

    async def run(self) -> None:
        """Run the session until its connection ends; then close the transport."""
        try:
            # With an eager task factory, ``create_task`` has not returned yet: nothing must be read before the session
            # is with its owner.
            await asyncio.sleep(0)
            async with asyncio.TaskGroup() as group:
                pumps = [group.create_task(self._read()), group.create_task(self._write())]
                for pump in pumps:
                    pump.add_done_callback(lambda _: self._note_pump_over())
                try:
                    await self._take_turns()
                    await self._finish_writing()
                finally:
                    for pump in pumps:
                        pump.cancel()
                    await self._release_transport()
        finally:
            try:
                await self._end()
            finally:
                self._alarm.stop()


class Alarm:
    """The timer of a session's deadlines. It may go off too early, which does no harm."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Not a TimerHandle: uvloop returns another kind of handle for a time that has passed.
        self._handle: asyncio.Handle | None = None
        self._deadline = math.inf

    def arm(self, timed: Timed, deadline: float | None) -> None:
        """Fire at a deadline or earlier. Rearming the timer for each request costs more than a false alarm."""
        if deadline is not None and deadline < self._deadline:
            self.stop()
            self._deadline = deadline
            self._handle = self._loop.call_at(deadline, self._go_off, timed)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._handle is not None:
            self._handle.cancel()

    def _go_off(self, timed: Timed) -> None:
        self._deadline = math.inf
        timed.handle_timeout()


class Alarms:
    """The timers of the deadlines of several sessions."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._alarms: dict[int, Alarm] = {}

    def arm(self, timed: Timed, deadline: float | None) -> None:
        """Fire at a deadline of ``timed`` or earlier."""
        alarm = self._alarms.get(id(timed))
        if alarm is None:
            alarm = self._alarms[id(timed)] = Alarm(self._loop)
        alarm.arm(timed, deadline)

    def stop(self) -> None:
        """Cancel the timers."""
        for alarm in self._alarms.values():
            alarm.stop()
