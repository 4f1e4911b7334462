"""The threads that blocking calls may take: bounded for each account and over all, the same on every event loop."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, TypeVar

from mcpio.app.runtime import OneShot, Runtime

if TYPE_CHECKING:
    from mcpio.engine.limits import Limits

__all__ = ["ThreadPool"]

T = TypeVar("T")


class ThreadPool:
    """Runs blocking functions in threads, and lets those beyond the bounds wait.

    A thread counts until its function returns, also when nobody waits for it any more: whoever abandons calls has fewer
    threads left. Accounts that wait take turns.
    """

    def __init__(self, limits: Limits) -> None:
        """``Limits.peer_threads`` is the bound for one account, ``Limits.total_threads`` that for all."""
        self._limits = limits
        self._total = 0
        self._running: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, deque[OneShot]] = {}
        # The accounts that wait and are below their own bound, in the order of their turns.
        self._ready: dict[Hashable, None] = {}
        # The accounts of threads that ended and still count. Threads append to it; nothing else here is theirs.
        self._ended: deque[Hashable] = deque()

    async def run(self, runtime: Runtime, account: Hashable, function: Callable[[], T]) -> T:
        """Run a function in a thread, as soon as there is one, and return what it returns.

        Cancelling the wait abandons the function where it runs, and leaves it out where it has not begun.
        """
        await self._enter(runtime, account)
        # Taking the permit is atomic: the thread takes it to begin, or the cancelled wait takes it away.
        permit = [account]

        def work() -> T:
            if not _took(permit):
                raise RuntimeError("nobody waits for this any more")
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
        self._settle()  # what ended when no loop was there to hear of it
        is_below = self._running[account] < self._limits.peer_threads
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

    def _count(self, account: Hashable) -> None:
        self._running[account] += 1
        self._total += 1

    def _withdraw(self, account: Hashable, turn: OneShot) -> None:
        """Stop waiting; give back a thread that was granted meanwhile."""
        turns = self._waiting.get(account)
        if turns is not None and turn in turns:
            turns.remove(turn)
            self._forget_if_idle(account)
        else:
            self._ended.append(account)
            self._settle()

    def _settle(self) -> None:
        """Stop counting threads that ended, and grant them to those that wait."""
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
            if self._running[account] < self._limits.peer_threads:
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
