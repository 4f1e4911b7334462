"""Waiting for something to happen, or for some time to pass, whichever comes first; any number of tasks may."""

from __future__ import annotations

from mcpio.app.runtime import OneShot, Runtime

__all__ = ["BroadcastEvent"]


class BroadcastEvent:
    """Wakes everybody who waits for it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: list[OneShot] = []

    def ring(self) -> None:
        """Wake those who wait now. Who comes later waits for the next time."""
        waiting, self._waiting = self._waiting, []
        for shot in waiting:
            shot.set(True)

    def ring_for_one(self) -> None:
        """Wake the one that has waited for longest."""
        if self._waiting:
            self._waiting.pop(0).set(True)

    async def wait(self, seconds: float | None) -> bool:
        """Wait until it rings, at most so many seconds, ``None`` for ever; return whether it rang."""
        shot = self._runtime.one_shot()
        self._waiting.append(shot)
        alarm = None if seconds is None else self._runtime.spawn(self._set_off(shot, seconds))
        try:
            rang: bool = await shot.wait()
        finally:
            if alarm is not None:
                alarm.cancel()
            if shot in self._waiting:
                self._waiting.remove(shot)
        return rang

    async def _set_off(self, shot: OneShot, seconds: float) -> None:
        await self._runtime.sleep(seconds)
        shot.set(False)
