"""A call that goes on while the test does other things, without an event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from mcpio.app.runtime import Spawned
from mcpio.testing import ManualCancelled, ManualRuntime

__all__ = ["Wait"]

T = TypeVar("T")


class Wait(Generic[T]):
    """A call that waits for something. ``settle`` lets happen whatever follows; by default the runtime's own turns."""

    def __init__(
        self, runtime: ManualRuntime, coroutine: Awaitable[T], settle: Callable[[], None] | None = None
    ) -> None:
        self.state = "waits"
        self.error: Exception | None = None
        self._result: list[T] = []
        self._coroutine = coroutine
        self._settle = settle or runtime.run
        self._task: Spawned = runtime.spawn(self._run())
        self._settle()

    @property
    def result(self) -> T:
        """What it returned; what it raised is raised."""
        if self.error is not None:
            raise self.error
        (result,) = self._result
        return result

    def cancel(self) -> None:
        """Have it give up, and let what follows from that happen."""
        self._task.cancel()
        self._settle()

    async def _run(self) -> None:
        try:
            self._result.append(await self._coroutine)
            self.state = "returned"
        except ManualCancelled:
            self.state = "cancelled"
            raise
        except Exception as error:
            self.error, self.state = error, "failed"
