"""Threads for blocking calls: bounded for each account and in total, the same on every event loop."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final, TypeVar

from mcpio.app.runtime import OneShot, Runtime

if TYPE_CHECKING:
    from mcpio.engine.limits import Limits

__all__ = ["STRANGERS", "ThreadPool"]

T = TypeVar("T")

STRANGERS: Final = "strangers"
"""The account of all requests that have neither a principal nor a session: nothing tells one client from another."""


class ThreadPool:
    """Runs blocking functions in threads; those beyond the bounds wait.

    A thread counts until its function returns, even after its caller was cancelled: accounts that abandon calls have
    fewer threads left. Accounts that wait take turns.
    """

    def __init__(self, limits: Limits) -> None:
        """``Limits.peer_threads`` bounds one account, ``Limits.total_threads`` all of them.

        ``STRANGERS`` may have half of the total, so that no client without a name can take every thread.
        """
        self._limits = limits
        self._total = 0
        self._running: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, deque[OneShot]] = {}
        # Accounts that wait and are below their own bound, in the order of their turns.
        self._ready: dict[Hashable, None] = {}
        # Accounts of threads that have ended but still count. The only thing here that threads touch: they append to
        # it.
        self._ended: deque[Hashable] = deque()

    async def run(self, runtime: Runtime, account: Hashable, function: Callable[[], T]) -> T:
        """Run a function in a thread as soon as one is free, and return its result.

        Cancelling the wait abandons a running function, and prevents one that has not started.
        """
        await self._enter(runtime, account)
        # Popping the permit is atomic: either the thread takes it and runs, or the cancelled caller does.
        permit = [account]

        def work() -> T:
            if not _took(permit):
                raise RuntimeError("no task waits for this any more")
            try:
                return function()
            finally:
                self._ended.append(account)
                runtime.call_soon(self._settle)

        try:
            return await runtime.to_thread(work)
        except BaseException:
            if _took(permit):
                self._ended.append(account)
                self._settle()
            raise

    async def _enter(self, runtime: Runtime, account: Hashable) -> None:
        """Wait for a thread, and count it."""
        self._settle()  # threads may have ended when no loop ran to notice
        is_below = self._running[account] < self._most(account)
        if is_below and self._total < self._limits.total_threads:
            self._count(account)
            return
        turn = runtime.one_shot()
        self._waiting.setdefault(account, deque()).append(turn)
        if is_below:
            self._ready[account] = None
        try:
            await turn.wait()
        except BaseException:
            self._withdraw(account, turn)
            raise

    def _most(self, account: Hashable) -> int:
        return max(1, self._limits.total_threads // 2) if account == STRANGERS else self._limits.peer_threads

    def _count(self, account: Hashable) -> None:
        self._running[account] += 1
        self._total += 1

    def _withdraw(self, account: Hashable, turn: OneShot) -> None:
        """Stop waiting, and return a thread that was granted in the meantime."""
        turns = self._waiting.get(account)
        if turns is not None and turn in turns:
            turns.remove(turn)
            self._forget_if_idle(account)
        else:
            self._ended.append(account)
            self._settle()

    def _settle(self) -> None:
        """Stop counting threads that have ended, and grant them to waiting accounts."""
        while self._ended:
            account = self._ended.popleft()
            self._running[account] -= 1
            self._total -= 1
            if not self._running[account]:
                del self._running[account]
            if account in self._waiting:
                self._ready[account] = None
        while self._ready and self._total < self._limits.total_threads:
            account = next(iter(self._ready))
            del self._ready[account]
            self._count(account)
            self._waiting[account].popleft().set(None)
            if self._running[account] < self._most(account):
                self._ready[account] = None
            self._forget_if_idle(account)

    def _forget_if_idle(self, account: Hashable) -> None:
        if not self._waiting[account]:
            del self._waiting[account]
            self._ready.pop(account, None)


def _took(permit: list[Hashable]) -> bool:
    try:
        permit.pop()
    except IndexError:
        return False
    return True
