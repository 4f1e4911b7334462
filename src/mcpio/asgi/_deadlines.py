"""Deadlines: one of the calls that are open watches those of all; without any, the next call that comes looks."""

from __future__ import annotations

from collections.abc import Callable

from mcpio.app.runtime import Runtime, Spawned
from mcpio.asgi._requests import AsgiRequest
from mcpio.engine.timers import Timers

__all__ = ["DeadlineWatch", "ScheduledCall"]


class DeadlineWatch:
    """The deadline of the host, and functions that are to be called later."""

    def __init__(self, now: Callable[[], float], expire: Callable[[], None]) -> None:
        """``now`` gives the time; ``expire`` lets the deadlines of the host expire."""
        self._now = now
        self._expire = expire
        self._watching: dict[AsgiRequest, None] = {}
        self._deadline: float | None = None
        self._timers: Timers[int] = Timers()
        self._alarms: dict[int, Callable[[], None]] = {}
        self._last = 0
        self._sleeper: tuple[AsgiRequest, float, Spawned] | None = None

    @property
    def somebody(self) -> AsgiRequest | None:
        """A call that watches, or would."""
        return next(iter(self._watching), None)

    def begin(self, call: AsgiRequest) -> None:
        """Have a call watch, which is open, if none does."""
        self._watching[call] = None
        self._arm()

    def end(self, call: AsgiRequest) -> None:
        """Have another watch from here on."""
        del self._watching[call]
        if self._sleeper is not None and self._sleeper[0] is call:
            self._sleeper[2].cancel()
            self._sleeper = None
            self._arm()

    def look(self) -> None:
        """Act on the deadlines that have come."""
        self._deadline = None  # the host says when the next one is, if there is one
        self._expire()
        for number in self._timers.pop_expired(self._now()):
            alarm = self._alarms.pop(number, None)
            if alarm is not None:
                alarm()
        self._arm()

    def take_deadline(self, deadline: float | None) -> None:
        """Take the deadline of the host in place of its earlier one."""
        self._deadline = deadline
        self._arm()

    def set(self, when: float, function: Callable[[], None]) -> ScheduledCall:
        """Call a function at a time, unless what is returned is cancelled before."""
        self._last += 1
        self._timers.set(self._last, when)
        self._alarms[self._last] = function
        self._arm()
        return ScheduledCall(self, self._last)

    def clear(self, number: int) -> None:
        """Do not call a function."""
        self._timers.clear(number)
        self._alarms.pop(number, None)

    def _arm(self) -> None:
        deadline = min((when for when in (self._deadline, self._timers.next()) if when is not None), default=None)
        # Whoever sleeps until an earlier time finds nothing to do then, and that costs less than to wake up.
        if deadline is None or (self._sleeper is not None and self._sleeper[1] <= deadline):
            return
        if self._sleeper is not None:
            self._sleeper[2].cancel()
            self._sleeper = None
        call = self.somebody
        if call is not None and call.runtime is not None:
            sleeper = call.runtime.spawn(self._sleep(call.runtime, deadline))
            self._sleeper = (call, deadline, sleeper)

    async def _sleep(self, runtime: Runtime, until: float) -> None:
        # A hair more: what rounding leaves of it would be slept for again.
        await runtime.sleep(until - self._now() + 1e-6)
        self._sleeper = None
        self.look()


class ScheduledCall:
    """A function that is to be called later."""

    __slots__ = ("_number", "_watch")

    def __init__(self, watch: DeadlineWatch, number: int) -> None:
        self._watch = watch
        self._number = number

    def cancel(self) -> None:
        """Do not call it."""
        self._watch.clear(self._number)
