"""A flag for one waiting task, and the task that watches the deadlines of all sessions."""

from __future__ import annotations

from math import inf

import trio

from mcpio._drivers import contain, report
from mcpio._drivers.actor import Timed
from mcpio.engine.timers import Timers
from mcpio.trio._interrupts import uninterruptible

__all__ = ["Signal", "Timekeeper"]


@uninterruptible
class Signal:
    """A flag that one task waits for; waiting lowers it. Cheaper than a new ``trio.Event`` for each round."""

    __slots__ = ("_raised", "_task")

    def __init__(self) -> None:
        self._raised = False
        self._task: trio.lowlevel.Task | None = None

    def set(self) -> None:
        """Raise the flag."""
        if self._task is None:
            self._raised = True
        else:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    async def wait(self) -> None:
        """Wait until the flag is up, and lower it."""
        if self._raised:
            self._raised = False
            await trio.lowlevel.checkpoint()
            return
        self._task = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)


class Timekeeper:
    """Watches the deadlines of many sessions. Never touches a transport, so no peer can hold it up."""

    def __init__(self) -> None:
        self._timers = Timers()
        self._timed: dict[int, Timed] = {}
        self._sooner = Signal()
        self._sleeping_until = inf

    def arm(self, timed: Timed, deadline: float | None) -> None:
        """Set the deadline of ``timed``, in place of an earlier one; ``None`` for none."""
        key = id(timed)
        if deadline is None:
            if self._timed.pop(key, None) is not None:
                self._timers.clear(key)
        elif self._timers.get(key) != deadline:
            self._timers.set(key, deadline)
            self._timed[key] = timed
            # The sleeper wakes up at the earliest deadline that was ever set, even if that was cleared since, as it is
            # by an answer that comes in time. To wake it up for each change would cost more.
            if deadline < self._sleeping_until:
                self._sleeping_until = deadline
                self._sooner.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            with trio.move_on_at(self._sleeping_until):
                await self._sooner.wait()
            now = trio.current_time()
            if now < self._sleeping_until:
                continue
            # Collect all of them first: acting on one may set or clear the deadline of the next.
            for timed in [self._timed.pop(key) for key in self._timers.pop_expired(now)]:
                try:
                    timed.handle_timeout()
                except BaseException as error:
                    # The other sessions still need their deadlines.
                    contain(error, "a deadline could not be acted on", report)
            deadline = self._timers.next()
            self._sleeping_until = inf if deadline is None else deadline
