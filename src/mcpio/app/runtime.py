"""The whole seam between the application layer and an event loop, and between a session and what carries it.

Trio's is in ``mcpio.trio``, asyncio's in ``mcpio.asyncio``, and one that needs no loop in ``mcpio.testing``. All pass
the same tests. Everything but ``from_thread`` is called from the loop's own thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from mcpio.engine.limits import seconds
from mcpio.errors import LocalProtocolError

__all__ = ["Driver", "OneShot", "Runtime", "Spawned", "checked_grace"]

T = TypeVar("T")


class Spawned(Protocol):
    """A coroutine that runs by itself."""

    def cancel(self) -> None:
        """Ask it to stop at its next wait. Legal at any time, any number of times, from the task itself too."""


class OneShot(Protocol):
    """A value that one task waits for and another gives, once."""

    def set(self, value: Any) -> None:
        """Give the value and wake the waiter. Later calls do nothing."""

    def wait(self) -> Awaitable[Any]:
        """Wait for the value. One task may wait, once; a cancelled wait leaves nothing behind."""


class Runtime(Protocol):
    """What the application layer needs of an event loop."""

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> Spawned:
        """Run a coroutine as a task of its own. It must not raise anything but the loop's own cancellation.

        It starts at a later turn of the loop, also when it was cancelled by then: it stops at its first wait, so its
        ``finally`` blocks run in any case.
        """

    def one_shot(self) -> OneShot:
        """Return a value to wait for."""

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Wait for so long. With 0 or less others get a turn, and that is all."""

    def call_later(self, seconds: float, function: Callable[[], None]) -> Spawned:
        """Run a function after so many seconds, unless what is returned is cancelled before. Nothing waits for it."""

    def entropy(self, size: int) -> bytes:
        """Return that many bytes that nobody can guess. Threads may call it too."""

    def wall_clock(self) -> float:
        """Return the time of day, in seconds since 1970, which people may set back and forth."""

    def to_thread(self, function: Callable[[], T]) -> Awaitable[T]:
        """Run a blocking function in a thread, without a bound: see ``mcpio.app.thread_pool`` for one.

        A cancelled wait abandons the thread, or leaves the function out where it has not begun.
        """

    def from_thread(self, function: Callable[[], T]) -> T:
        """Run a function in the loop's thread, from any other, and return what it returns."""

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run a function at the loop's next turn: from any thread, and from a signal handler.

        Once the loop has ended, nothing happens.
        """


class Driver(Protocol):
    """What carries one session: it feeds the connection, calls ``Session.process``, and writes what there is."""

    @property
    def runtime(self) -> Runtime:
        """The event loop."""

    def now(self) -> float:
        """Return the time, in seconds on the clock that the connection goes by."""

    def wake(self) -> None:
        """Take note: there may be something to write, another deadline, or the end. Does not wait."""

    def close(self, grace: float) -> None:
        """Close the connection in order. Legal from any task, thread or signal handler, any number of times (P9)."""

    async def wait_closed(self) -> None:
        """Wait until the connection has ended and its transport is closed."""

    def report(self, message: str, error: BaseException | None) -> None:
        """Tell the operator something, with the exception behind it."""


def checked_grace(grace: float | None) -> float | None:
    """Return a grace in seconds, ``None`` for no limit. ``LocalProtocolError`` for what is no number of 0 or more."""
    try:
        return seconds(grace)
    except ValueError as error:
        raise LocalProtocolError(str(error)) from None
