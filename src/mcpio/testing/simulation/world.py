"""A world: one clock, one source of chance, and the processes in it. Nothing here knows the protocol."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Final, TypeVar
from warnings import catch_warnings, simplefilter

from mcpio.testing.manual_runtime import ManualOneShot, ManualRuntime, ManualTask

T = TypeVar("T")

HURRY: Final = 0.005
"""Seconds. Timers that are due sooner may run before tasks that are ready, as on a busy machine."""


class Timer:
    """Something that happens at a time, in a process."""

    __slots__ = ("function", "number", "process", "when")

    def __init__(self, when: float, number: int, process: Process, function: Callable[[], object]) -> None:
        self.when = when
        self.number = number
        self.process = process
        self.function: Callable[[], object] | None = function

    def __lt__(self, other: Timer) -> bool:
        return (self.when, self.number) < (other.when, other.number)

    def cancel(self) -> None:
        """Let it not happen. Does nothing once it has."""
        if self.function is not None:
            self.function = None
            self.process.timers -= 1


class World:
    """Runs processes on one virtual clock. The same seed and the same calls give the same run.

    One *step* is one thing that happens: a task runs to its next wait, a piece arrives, a deadline expires, or the
    network does harm. After each step ``after_step`` is called.
    """

    now: float
    """The time, in seconds from 0."""
    steps: int
    """How much has happened."""
    after_step: Callable[[Process], None]
    """Asks the invariants, after a step of a process."""
    on_crash: Callable[[Process, BaseException], None]
    """Takes an exception that no code of the process caught."""

    def __init__(self, seed: object, *, shuffles: bool = False) -> None:
        """``shuffles`` runs tasks that are ready in any order, as Trio does, in place of the order of asyncio."""
        self.now = 0.0
        self.steps = 0
        self.chance: Final = Random(f"world {seed}")  # noqa: S311  not for secrets
        self.after_step = lambda process: None
        self.on_crash = _raise
        self._shuffles = shuffles
        self._turns: deque[tuple[Process, Callable[[], object]]] = deque()
        self._timers: list[Timer] = []
        self._next_number = 0
        self.processes: list[Process] = []
        """All processes that there were."""
        self.network: Final = Process(self, "network")
        """The process of the network and of its faults. It is never killed."""

    def at(self, when: float, process: Process, function: Callable[[], object]) -> Timer:
        """Call a function in a process at a time."""
        self._next_number += 1
        timer = Timer(max(when, self.now), self._next_number, process, function)
        process.timers += 1
        heapq.heappush(self._timers, timer)
        return timer

    def after(self, seconds: float, process: Process, function: Callable[[], object]) -> Timer:
        """Call a function in a process after some time."""
        return self.at(self.now + seconds, process, function)

    def soon(self, process: Process, function: Callable[[], object]) -> None:
        """Call a function in a process as soon as its turn comes."""
        self._turns.append((process, function))

    def step(self, until: float) -> bool:
        """Let one thing happen that is due up to a time; return whether there was any."""
        turns, timers = self._turns, self._timers
        while timers and timers[0].function is None:
            heapq.heappop(timers)
        due = timers[0].when if timers else None
        if turns and (due is None or due > self.now + HURRY or self.chance.random() < 0.8):
            if self._shuffles and len(turns) > 1:
                turns.rotate(-self.chance.randrange(len(turns)))
            process, function = turns.popleft()
        elif due is not None and due <= until:
            timer = heapq.heappop(timers)
            self.now = max(self.now, timer.when)
            process, function = timer.process, timer.function  # type: ignore[assignment]  # looked at above
            timer.function = None
            process.timers -= 1
        else:
            return False
        if process.do(function):
            self.steps += 1
            self.after_step(process)
        return True


def _raise(process: Process, error: BaseException) -> None:
    del process
    raise error


class Process(ManualRuntime):
    """A process: its tasks and timers, which end with it. It is the runtime of everything that runs in it."""

    name: str
    """Its name, for messages."""
    is_dead: bool
    """Whether it was killed."""
    timers: int
    """How many of its timers wait."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__()
        self.world: Final = world
        self.name = name
        self.is_dead = False
        self.timers = 0
        self.stood_still = 0.0
        """For how many seconds it was stopped."""
        self.clock_error = 0.0
        """By how many seconds its wall clock is wrong."""
        self._parked: list[Callable[[], object]] | None = None
        self._soon: deque[Callable[[], None]] = deque()
        self._tasks: list[ManualTask] = []
        self._running: list[Coroutine[Any, Any, None]] = []
        world.processes.append(self)
        self._turns = self  # type: ignore[assignment]  # its tasks append their steps

    def append(self, function: Callable[[], object]) -> None:
        """Take a step of a task."""
        self.world.soon(self, function)

    def do(self, function: Callable[[], object]) -> bool:
        """Call a function, unless the process is dead, or stopped for now; return whether it was called."""
        if self.is_dead:
            return False
        if self._parked is not None:
            self._parked.append(function)
            return False
        self.now = self.world.now
        try:
            function()
        except BaseException as error:
            self.world.on_crash(self, error)
        return True

    def kill(self) -> None:
        """End the process as ``kill -9`` does: none of its code runs any more."""
        self.is_dead = True

    def pause(self, seconds: float) -> None:
        """Stop the process for some time, as SIGSTOP does."""
        if self._parked is None:
            self._parked = []
            self.stood_still += seconds
            self.world.after(seconds, self.world.network, self.resume)

    def resume(self) -> None:
        """Let a stopped process go on."""
        parked, self._parked = self._parked, None
        for function in parked or ():
            self.append(function)

    def bury(self) -> None:
        """Close the coroutines of a killed process, so that Python does not run their ``finally`` blocks later."""
        self.is_dead = True
        with catch_warnings():
            simplefilter("ignore")  # of coroutines that were never awaited
            for coroutine in self._running:
                with suppress(BaseException):  # it belongs to a process that is no more
                    coroutine.close()

    @property
    def tasks(self) -> int:
        """How many tasks have not ended."""
        self._prune()
        return len(self._tasks)

    # The runtime

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> ManualTask:
        """Run a coroutine as a separate task."""
        task = ManualTask(coroutine, self._turns)
        self._tasks.append(task)
        self._running.append(coroutine)
        if len(self._tasks) > 64:
            self._prune()
        return task

    def _prune(self) -> None:
        unfinished = [(task, each) for task, each in zip(self._tasks, self._running, strict=True) if not task.is_over]
        self._tasks = [task for task, _ in unfinished]
        self._running = [each for _, each in unfinished]

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        over = ManualOneShot()
        if seconds <= 0:
            self.append(partial(over.set, None))
            await over
            return
        timer = self.world.after(seconds, self, partial(over.set, None))
        try:
            await over
        finally:
            timer.cancel()

    def call_later(self, seconds: float, function: Callable[[], None]) -> Timer:  # type: ignore[override]  # its own timer
        """Call a function after ``seconds``."""
        return self.world.after(seconds, self, function)

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call a function in a separate turn, in the order of the calls."""
        self._soon.append(function)
        self.append(self._call_next)

    def _call_next(self) -> None:
        self._soon.popleft()()

    async def to_thread(self, function: Callable[[], T]) -> T:
        """Run a function in a thread, which takes some time. Cancelling the wait does not stop it."""
        over = ManualOneShot()
        outcome: list[Any] = []

        def work() -> None:
            try:
                outcome.append(function())
            except BaseException as error:
                outcome.extend((None, error))
            over.set(None)

        self.world.after(self.world.chance.random() * 0.05, self, work)
        await over
        if len(outcome) > 1:
            raise outcome[1]
        result: T = outcome[0]
        return result

    def wall_clock(self) -> float:
        """Return the wall time, which may be set wrong."""
        return 1_000_000_000.0 + self.world.now + self.clock_error
