"""A runtime for tests without an event loop: tasks run in turns, and only on request."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from mcpio.app.runtime import StallDetector

T = TypeVar("T")

_UNSET: Any = object()


class ManualCancelled(BaseException):
    """Raised at every await of a cancelled task."""


class ManualRuntime:
    """A ``mcpio.app.runtime.Runtime`` for tests: nothing runs until ``run`` or ``complete`` is called.

    Coroutines may await each other and this runtime's awaitables, but nothing of an event loop. There is only one
    thread: ``to_thread`` runs its function in a separate turn, and ``from_thread`` calls its function at once. Time
    moves only when ``advance_to`` is called, or when ``complete`` has nothing else to run.
    """

    now: float
    """The time, in seconds from 0."""
    stalls: StallDetector
    """The judge of long steps. Nothing but time that a test lets pass makes one."""

    def __init__(self) -> None:
        from mcpio.app.runtime import StallDetector  # tests of an engine alone load no application layer

        self.now = 0.0
        self.stalls = StallDetector(lambda: 0.0, lambda: self.now)
        self._drawn = 0
        self._turns: deque[Callable[[], None]] = deque()
        self._sleepers: list[tuple[float, ManualOneShot]] = []

    @property
    def cancellation(self) -> type[BaseException]:
        """The exception of a cancelled task."""
        return ManualCancelled

    def run(self) -> None:
        """Run until every task has ended or waits."""
        while self._turns:
            self._turns.popleft()()

    def next_deadline(self) -> float | None:
        """Return when the next sleeper wakes up, or ``None``."""
        return min((when for when, _ in self._sleepers), default=None)

    def advance_to(self, when: float) -> None:
        """Run, and advance the time to ``when``; sleepers wake up on the way, each at its time."""
        self.run()
        while (due := self.next_deadline()) is not None and due <= when:
            self.now = max(self.now, due)
            for _, over in [sleeper for sleeper in self._sleepers if sleeper[0] <= due]:
                over.set(None)
            self._sleepers = [sleeper for sleeper in self._sleepers if sleeper[0] > due]
            self.run()
        self.now = max(self.now, when)

    def complete(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, with all other tasks, and return its result.

        Time passes as sleepers need it. What it raises is raised here. ``RuntimeError`` when it waits for something
        that cannot come.
        """
        outcome: list[T] = []

        async def main() -> None:
            outcome.append(await coroutine)

        self.spawn(main())
        self.run()
        while not outcome and (due := self.next_deadline()) is not None:
            self.advance_to(due)
        if not outcome:
            raise RuntimeError("the coroutine still waits, and nothing is left to run")
        return outcome[0]

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> ManualTask:
        """Run a coroutine as a separate task, from the next turn on."""
        return ManualTask(coroutine, self._turns)

    def one_shot(self) -> ManualOneShot:
        """Return an unset value that a task can wait for."""
        return ManualOneShot()

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        over = self.one_shot()
        sleeper = (self.now + seconds, over)
        if seconds > 0:
            self._sleepers.append(sleeper)
        else:
            self._turns.append(lambda: over.set(None))
        try:
            await over
        finally:
            self._sleepers = [other for other in self._sleepers if other is not sleeper]

    def call_later(self, seconds: float, function: Callable[[], None]) -> ManualTask:
        """Call a function after ``seconds``."""

        async def wait() -> None:
            await self.sleep(seconds)
            function()

        return self.spawn(wait())

    def entropy(self, size: int) -> bytes:
        """Return the next number as ``size`` bytes: the same in every run."""
        self._drawn += 1
        return self._drawn.to_bytes(size, "big")

    def wall_clock(self) -> float:
        """Return the wall time, which starts at 1970-01-01."""
        return self.now

    async def to_thread(self, function: Callable[[], T]) -> T:
        """Run a function in a separate turn and return its result. Cancelling the wait does not stop it."""
        over = self.one_shot()
        call = _Call(function, over)
        self._turns.append(call.run)
        await over
        result: T = call.outcome()
        return result

    def from_thread(self, function: Callable[[], T]) -> T:
        """Call a function and return its result."""
        return function()

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run a function in a separate turn."""
        self._turns.append(function)


class ManualTask:
    """A coroutine that runs as a task."""

    is_over: bool
    """Whether it has ended."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], turns: deque[Callable[[], None]]) -> None:
        self._coroutine = coroutine
        self._turns = turns
        self._started = self._cancelled = self.is_over = False
        self._waits_for: ManualOneShot | None = None
        turns.append(self._step)

    def cancel(self) -> None:
        """Cancel the task where it waits."""
        if self._cancelled:
            return
        self._cancelled = True
        if self._waits_for is not None:
            self._waits_for.waiter = None
            self.wake()

    def wake(self) -> None:
        """Schedule the task's next step."""
        self._waits_for = None
        self._turns.append(self._step)

    def _step(self) -> None:
        """Run the task to its next wait. Exceptions propagate to the caller of ``run``."""
        try:
            if self._cancelled and self._started:
                waits_for = self._coroutine.throw(ManualCancelled())
            else:
                self._started = True
                waits_for = self._coroutine.send(None)
        except (StopIteration, ManualCancelled):
            self.is_over = True
            return
        except BaseException:
            self.is_over = True
            raise
        if not isinstance(waits_for, ManualOneShot):
            raise TypeError(f"a task under ManualRuntime awaits what an event loop must give: {waits_for!r}")
        if self._cancelled:
            self._turns.append(self._step)
        else:
            self._waits_for = waits_for
            waits_for.waiter = self


class ManualOneShot:
    """A value for one waiting task."""

    def __init__(self) -> None:
        self.waiter: ManualTask | None = None
        self._value: Any = _UNSET

    def set(self, value: Any) -> None:
        """Set the value and wake the waiter."""
        if self._value is not _UNSET:
            return
        self._value = value
        if self.waiter is not None:
            self.waiter.wake()
            self.waiter = None

    def wait(self) -> Awaitable[Any]:
        """Wait for the value."""
        return self

    def __await__(self) -> Generator[ManualOneShot, None, Any]:
        if self._value is _UNSET:
            yield self
        return self._value


class _Call:
    """A function that runs in a separate turn."""

    def __init__(self, function: Callable[[], Any], over: ManualOneShot) -> None:
        self._function = function
        self._over = over
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:
            self._error = error
        self._over.set(None)

    def outcome(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result
