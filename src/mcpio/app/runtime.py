"""The interface to an event loop, and what stands on it: threads, events and values that may have to be awaited."""

from __future__ import annotations

import inspect
import math
import sys
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable
from functools import partial
from types import GeneratorType, coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from mcpio._checks import called
from mcpio.engine.limits import seconds
from mcpio.errors import LocalProtocolError

if TYPE_CHECKING:
    from mcpio.engine.limits import Limits


# -------------------------------------------------------------------------------------------------------------- runtime
# The interface of the application layer to an event loop, and of a session to what carries it.
# Trio's runtime is in ``mcpio.trio``, asyncio's in ``mcpio.asyncio``, and one without a loop in ``mcpio.testing``; all
# pass the same tests. Everything but ``from_thread`` is called in the loop's thread.

T = TypeVar("T")


class Spawned(Protocol):
    """A running task."""

    def cancel(self) -> None:
        """Cancel it at its next wait. May be called at any time, any number of times, and by the task itself."""


class OneShot(Protocol):
    """A value that one task waits for and another sets, once."""

    def set(self, value: Any) -> None:
        """Set the value and wake the waiter. Further calls do nothing."""

    def wait(self) -> Awaitable[Any]:
        """Wait for the value. Only one task may wait, once; cancelling the wait has no side effects."""


class Runtime(Protocol):
    """An event loop, as the application layer uses it."""

    @property
    def cancellation(self) -> type[BaseException]:
        """The exception that stops a task at its wait."""

    @property
    def stalls(self) -> StallDetector:
        """The judge of steps that held the loop's thread for long."""

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> Spawned:
        """Run a coroutine as a task. It must not raise anything but the loop's cancellation.

        It starts at a later turn of the loop, even if it was cancelled by then: it stops at its first wait, so its
        ``finally`` blocks always run.
        """

    def one_shot(self) -> OneShot:
        """Return a new one-shot."""

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Sleep. With 0 or less, only let other tasks run."""

    def call_later(self, seconds: float, function: Callable[[], None]) -> Spawned:
        """Call a function after some seconds, unless the returned handle is cancelled before."""

    def entropy(self, size: int) -> bytes:
        """Return random bytes for secrets. May be called from any thread."""

    def wall_clock(self) -> float:
        """Return the wall-clock time in seconds since 1970. It may be set back and forth."""

    def to_thread(self, function: Callable[[], T]) -> Awaitable[T]:
        """Run a blocking function in a thread, without a bound: for bounds see ``mcpio.app.runtime``.

        Cancelling the wait abandons the thread, or prevents a function that has not started.
        """

    def from_thread(self, function: Callable[[], T]) -> T:
        """Run a function in the loop's thread, and return its result: from another thread, or at once in that one."""

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call a function at the loop's next turn. May be called from any thread and from signal handlers.

        Does nothing once the loop has ended.
        """


class Driver(Protocol):
    """The driver of a session: feeds the connection, calls ``session._process``, and writes the output."""

    @property
    def runtime(self) -> Runtime:
        """The event loop."""

    def now(self) -> float:
        """Return the time in seconds, on the clock of the connection."""

    def wake(self) -> None:
        """Record that output, a deadline, or the end may be due. Does not wait."""

    def close(self, grace: float) -> None:
        """Close the connection gracefully. May be called at any time and place, signal handlers included (P9)."""

    async def wait_closed(self) -> None:
        """Wait until the connection has ended and its transport is closed."""

    def report(self, message: str, error: BaseException | None) -> None:
        """Report a failure to the operator, with its exception."""


OPENERS: Final[dict[str, Callable[..., Any]]] = {}
"""Functions of the drivers that open files and folders for this layer, which does no I/O itself, by resource.
Any driver that is imported enters them."""


def checked_grace(grace: float | None) -> float | None:
    """Return a grace in seconds, ``None`` for no limit. Raises LocalProtocolError if it is not a number >= 0."""
    try:
        return seconds("grace", grace)
    except ValueError as error:
        raise LocalProtocolError(str(error)) from None


# --------------------------------------------------------------------------------------------------------------- stalls
# Which steps of the loop's thread held everything else up.

SLOW: Final = 0.05
"""Seconds that a function, or an async one between two waits, may hold the event loop before it is reported."""


class StallDetector:
    """Tells steps that held the loop's thread from steps that were held up themselves, or that imported modules.

    A thread that the system did not run, because others had the processors, looks by the clock like one that blocks.
    To ask the system costs more than most steps take, so it is asked once a second at most, and all that it tells of
    the time since then counts for a step that took long. On a busy machine a slow step may thus pass for once; a
    quick one is never reported.
    """

    __slots__ = ("_modules", "_queued", "_queued_before", "clock", "look_after")

    clock: Callable[[], float]
    """Returns the time of its own clock, in seconds."""
    look_after: float
    """The time of the next look: a step that begins later is preceded by one."""

    def __init__(self, queued: Callable[[], float], clock: Callable[[], float]) -> None:
        """``queued`` returns the seconds in which the current thread was ready to run and had no processor."""
        self.clock = clock
        self._queued = queued
        self._queued_before = 0.0
        self._modules = 0
        self.look_after = -math.inf

    def look(self, now: float) -> None:
        """Ask the system, at the begin of a step."""
        self.look_after = now + 1
        self._queued_before, self._modules = self._queued(), len(sys.modules)

    def held(self, took: float) -> float:
        """Return how long a step of ``took`` seconds held the thread: 0 if modules were imported."""
        # A module is imported once, so such a step is not what the handler does each time.
        return took - (self._queued() - self._queued_before) if len(sys.modules) == self._modules else 0.0


# ------------------------------------------------------------------------------------------------------------ broadcast
# An event that any number of tasks wait for, each with its own timeout.


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


# ---------------------------------------------------------------------------------------------------------------- turns
# A lock for the tasks of one event loop.


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


# ----------------------------------------------------------------------------------------------------------- awaitables
# Results of functions that may be plain or async, and callbacks that must be plain.


def is_awaitable(value: Any) -> bool:
    """Return whether a value is awaitable: ``inspect.isawaitable``, but faster, since every result is checked."""
    kind = value.__class__
    is_known = AWAITABLE.get(kind)
    if is_known is None:
        # Of a generator it depends on its function.
        is_known = hasattr(kind, "__await__") or kind is GeneratorType
        if len(AWAITABLE) >= _MOST_CLASSES:
            # Classes made at run time must not be kept alive by this table.
            AWAITABLE.clear()
        AWAITABLE[kind] = is_known
    return is_known and (kind is not GeneratorType or inspect.isawaitable(value))


AWAITABLE: Final[dict[type, bool]] = {}
"""Whether the values of a class may be awaitable, for the classes that ``is_awaitable`` was asked of.

A lookup in the class itself costs over half a microsecond.
"""
_MOST_CLASSES: Final = 500


def is_of_kind(kind: Callable[[Any], bool], function: Any) -> bool:
    """Whether a function, or the ``__call__`` of an object, is of a kind that ``inspect`` tells."""
    function = without_partial(function)
    return kind(function) or (callable(function) and kind(type(function).__call__))


def without_partial(function: Any) -> Any:
    """Return the function inside of partial applications."""
    while isinstance(function, partial):
        function = function.func
    return function


def parted(
    error: BaseException, *cancellation: type[BaseException]
) -> tuple[BaseException | None, BaseException | None]:
    """Return the part of an exception that must propagate, and the part that is a failure of the code that raised it.

    What must propagate ends the program, or by ``cancellation`` the task. Everything else is a failure, also if it is
    no Exception: libraries in other languages raise such exceptions. For a plain function give no ``cancellation``:
    one that it raises is its own failure, such as asking a cancelled future for its result.
    """
    kinds: tuple[type[BaseException], ...] = (SystemExit, KeyboardInterrupt, *cancellation)
    if isinstance(error, BaseExceptionGroup):
        return error.split(kinds)
    return (error, None) if isinstance(error, kinds) else (None, error)


def failure_of(error: BaseException) -> BaseException:
    """Return the exception of a plain function, or raise it again if it must propagate: see ``parted``."""
    if parted(error)[0] is not None:
        raise error
    return error


def is_fault(error: BaseException, runtime: Runtime) -> bool:
    """Whether an exception is a failure of the awaited handler, which fails one request only."""
    if isinstance(error, GeneratorExit):
        # Python closes a coroutine by raising this in each of its frames, the innermost first: one that comes from
        # deeper down was raised there.
        return error.__traceback__ is not None and error.__traceback__.tb_next is not None
    return parted(error, runtime.cancellation)[0] is None


async def is_stopping(runtime: Runtime) -> bool:
    """Whether the current task itself was cancelled, rather than only an object that it awaited."""
    turn = runtime.one_shot()
    turn.set(None)
    try:
        await turn.wait()
    except BaseException:
        return True
    return False


@coroutine
def in_steps(awaitable: Any, stalls: StallDetector, report: Callable[[float], object]) -> Generator[Any, Any, Any]:
    """Await a value, and report each step, from one wait to the next, that held the event loop for over ``SLOW``."""
    steps: Any = awaitable if awaitable.__class__ is GeneratorType else awaitable.__await__()
    if not hasattr(steps, "send"):
        return (yield from steps)
    resume, argument, now = steps.send, None, stalls.clock
    while True:
        began = now()
        if began > stalls.look_after:
            stalls.look(began)
        try:
            waits_for = resume(argument)
        except StopIteration as end:
            return end.value
        finally:
            # An exception that stayed here would be in a circle with this frame, which its traceback holds.
            argument = None
            took = now() - began
            if took > SLOW and (blocked := stalls.held(took)) > SLOW:
                report(blocked)
        try:
            argument = yield waits_for
            resume = steps.send
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as error:
            resume, argument = steps.throw, error


def when_ready(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Return ``convert(value)``, or a coroutine for it where ``value`` is awaitable."""
    return _converted(value, convert) if is_awaitable(value) else convert(value)


async def _converted(value: Any, convert: Callable[[Any], Any]) -> Any:
    return convert(await value)


async def settled(value: T | Awaitable[T]) -> T:
    """Return the result of a function that may be async: the value, or what awaiting it gives."""
    result: Any = await value if is_awaitable(value) else value  # type: ignore[misc]  # is_awaitable narrows nothing
    outcome: T = result
    return outcome


def checked_callback(name: str, callback: Any, parameters: str) -> Any:
    """Return a callback, or ``None``. Raises TypeError if it is async, or does not take the parameters."""
    if callback is None:
        return None
    if not callable(callback) or inspect.iscoroutinefunction(callback):
        raise TypeError(f"{name} must be a plain function, called without waiting, not {callback!r:.100}")
    return called(name, callback, parameters)


def check_nothing_waits(result: Any) -> None:
    """Raise TypeError if a callback returned an awaitable, since no caller would await it."""
    if is_awaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(f"it returned {result!r:.100}, which is never awaited: make it a plain function")


# ---------------------------------------------------------------------------------------------------------- thread pool
# Threads for blocking calls: bounded for each account and in total, the same on every event loop.

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
