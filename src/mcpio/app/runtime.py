"""The interface of the application layer to an event loop, and of a session to what carries it.

Trio's runtime is in ``mcpio.trio``, asyncio's in ``mcpio.asyncio``, and one without a loop in ``mcpio.testing``; all
pass the same tests. Everything but ``from_thread`` is called in the loop's thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from mcpio.engine.limits import seconds
from mcpio.errors import LocalProtocolError

__all__ = ["Driver", "OneShot", "Runtime", "Spawned", "checked_grace"]

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
        """Run a blocking function in a thread, without a bound: for bounds see ``mcpio.app.thread_pool``.

        Cancelling the wait abandons the thread, or prevents a function that has not started.
        """

    def from_thread(self, function: Callable[[], T]) -> T:
        """Run a function in the loop's thread, and return its result: from another thread, or at once in that one."""

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call a function at the loop's next turn. May be called from any thread and from signal handlers.

        Does nothing once the loop has ended.
        """


class Driver(Protocol):
    """The driver of a session: feeds the connection, calls ``session.driving.process``, and writes the output."""

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


def checked_grace(grace: float | None) -> float | None:
    """Return a grace in seconds, ``None`` for no limit. Raises LocalProtocolError if it is not a number >= 0."""
    try:
        return seconds(grace)
    except ValueError as error:
        raise LocalProtocolError(str(error)) from None
