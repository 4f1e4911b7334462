"""An event that any number of tasks wait for, each with its own timeout."""

from __future__ import annotations

from mcpio.app.runtime import OneShot, Runtime

__all__ = ["BroadcastEvent"]


class BroadcastEvent:
    """Wakes the tasks that wait at the moment. It has no state: tasks that wait later wait for the next time."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: list[OneShot] = []

    def notify_all(self) -> None:
        """Wake all tasks that wait now."""
        waiting, self._waiting = self._waiting, []
        for shot in waiting:
            shot.set(True)

    def notify_one(self) -> None:
        """Wake the task that has waited longest."""
        if self._waiting:
            self._waiting.pop(0).set(True)

    async def wait(self, seconds: float | None) -> bool:
        """Wait for the event, at most ``seconds``; return False if that time passed. ``None`` sets no limit."""
        shot = self._runtime.one_shot()
        self._waiting.append(shot)
        alarm = None if seconds is None else self._runtime.spawn(self._expire(shot, seconds))
        try:
            was_notified: bool = await shot.wait()
        finally:
            if alarm is not None:
                alarm.cancel()
            if shot in self._waiting:
                self._waiting.remove(shot)
        return was_notified

    async def _expire(self, shot: OneShot, seconds: float) -> None:
        await self._runtime.sleep(seconds)
        if shot in self._waiting:
            # Now, not when the waiter runs: until then ``notify_one`` would wake it in vain, and no other.
            self._waiting.remove(shot)
        shot.set(False)
