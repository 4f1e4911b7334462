"""A lock for the tasks of one event loop."""

from __future__ import annotations

from collections import deque

from mcpio.app.runtime import OneShot, Runtime

__all__ = ["Turns"]


class Turns:
    """Async context manager whose blocks run one after another, in the order in which they were begun."""

    __slots__ = ("_runtime", "_waiting", "is_taken")

    is_taken: bool
    """Whether a block runs."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: deque[OneShot] = deque()
        self.is_taken = False

    async def __aenter__(self) -> None:
        if not self.is_taken:
            self.is_taken = True
            return
        turn = self._runtime.one_shot()
        self._waiting.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn in self._waiting:
                self._waiting.remove(turn)
            else:  # it was given the turn before it was cancelled
                self._pass_on()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        if self._waiting:
            self._waiting.popleft().set(None)
        else:
            self.is_taken = False
