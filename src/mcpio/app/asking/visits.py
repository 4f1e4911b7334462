"""The web addresses that one side sent, or was sent, to: which elicitations are under way, by their ids (ELIC-16)."""

from __future__ import annotations

from typing import Final

from mcpio.app.runtime import OneShot

__all__ = ["MOST_VISITS", "Visits"]

MOST_VISITS: Final = 1024
"""How many elicitations by web address one session remembers. Beyond, the oldest that nobody waits for goes (P6)."""


class Visits:
    """Elicitations by id, each under way or done."""

    __slots__ = ("_visits",)

    def __init__(self) -> None:
        self._visits: dict[str, _Visit] = {}

    def __contains__(self, id: str) -> bool:
        return id in self._visits

    def is_done(self, id: str) -> bool:
        """Whether it is done. ``KeyError`` for what is not known."""
        return self._visits[id].is_done

    def begin(self, id: str) -> bool:
        """Record that the user was asked; return whether that is news. A known elicitation stays as it is."""
        if id in self._visits:
            return False
        if len(self._visits) >= MOST_VISITS:
            self._forget_one()
        self._visits[id] = _Visit()
        return True

    def withdraw(self, id: str) -> None:
        """Forget an elicitation that could not be sent."""
        self._visits.pop(id, None)

    def finish(self, id: str) -> bool:
        """Note that it is done, and wake who waits; return whether that is news: it was under way (ELIC-16)."""
        visit = self._visits.get(id)
        if visit is None or visit.is_done:
            return False
        visit.is_done = True
        for waiter in visit.waiters:
            waiter.set(None)
        return True

    async def wait_for(self, id: str, waiter: OneShot) -> None:
        """Return when it is done, or raise what ``give_up`` says. ``KeyError`` for what is not known."""
        waiters = self._visits[id].waiters
        waiters[waiter] = None
        try:
            error = await waiter.wait()
        finally:
            waiters.pop(waiter, None)
        if error is not None:
            raise error

    def save(self) -> dict[str, bool]:
        """Return which ids are known, oldest first, and whether each is done."""
        return {id: visit.is_done for id, visit in self._visits.items()}

    def give_up(self, error: Exception) -> None:
        """Wake all who wait with an error: no word can come any more."""
        for visit in self._visits.values():
            for waiter in visit.waiters:
                waiter.set(error)

    def _forget_one(self) -> None:
        for id, visit in self._visits.items():
            if not visit.waiters:
                del self._visits[id]
                return


class _Visit:
    __slots__ = ("is_done", "waiters")

    def __init__(self) -> None:
        self.is_done = False
        self.waiters: dict[OneShot, None] = {}
