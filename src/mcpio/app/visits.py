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

    def begin(self, id: str) -> None:
        """Note that the user was asked. What is known already stays as it is."""
        if id in self._visits:
            return
        if len(self._visits) >= MOST_VISITS:
            self._forget_one()
        self._visits[id] = _Visit()

    def finish(self, id: str) -> bool:
        """Note that it is done, and wake who waits; return whether that is news: it was under way (ELIC-16)."""
        visit = self._visits.get(id)
        if visit is None or visit.is_done:
            return False
        visit.is_done = True
        for waiter in visit.waiters:
            waiter.set(None)
        visit.waiters.clear()
        return True

    def wait_for(self, id: str, waiter: OneShot) -> bool:
        """Have a waiter set when it is done; return whether it was done before. ``KeyError`` for what is not known."""
        visit = self._visits[id]
        if not visit.is_done:
            visit.waiters.append(waiter)
        return visit.is_done

    def leave(self, id: str, waiter: OneShot) -> None:
        """Take note that nobody waits there any more."""
        visit = self._visits.get(id)
        if visit is not None and waiter in visit.waiters:
            visit.waiters.remove(waiter)

    def give_up(self, error: Exception) -> None:
        """Wake all who wait with an error: no word can come any more."""
        for visit in self._visits.values():
            for waiter in visit.waiters:
                waiter.set(error)
            visit.waiters.clear()

    def _forget_one(self) -> None:
        for id, visit in self._visits.items():
            if not visit.waiters:
                del self._visits[id]
                return


class _Visit:
    __slots__ = ("is_done", "waiters")

    def __init__(self) -> None:
        self.is_done = False
        self.waiters: list[OneShot] = []
