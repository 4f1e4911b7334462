"""One task's flag, and the one task that watches the deadlines of all sessions of a block."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import trio
import trio.testing
from peers import run
from runners import run_by

from mcpio.trio._runtime import Signal, Timekeeper

# Signal


@run_by(run)
async def test_waiting_for_a_set_flag_returns_at_once_and_clears_it() -> None:
    signal = Signal()
    signal.set()
    signal.set()
    with trio.fail_after(1):
        await signal.wait()
    with trio.move_on_after(1) as scope:
        await signal.wait()
    assert scope.cancelled_caught


@run_by(run)
async def test_a_flag_wakes_the_task_that_waits() -> None:
    signal, seen = Signal(), list[str]()

    async def wait() -> None:
        for _ in range(2):
            await signal.wait()
            seen.append("woken")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        signal.set()
        signal.set()
        await trio.testing.wait_all_tasks_blocked()
        assert seen == ["woken", "woken"]


@run_by(run)
async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    signal = Signal()
    with trio.move_on_after(1):
        await signal.wait()
    signal.set()
    with trio.fail_after(1):
        await signal.wait()


# Timekeeper


class Timed:
    """Notes when its deadline came, and does something then."""

    def __init__(self, name: str, seen: list[tuple[str, float]], then: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self.seen = seen
        self.then = then

    def handle_timeout(self) -> None:
        self.seen.append((self.name, trio.current_time() - self.start))
        self.then()

    start = 0.0


async def watched(arm: Callable[[Timekeeper, Callable[[float], float]], None], seconds: float = 100) -> None:
    """Run a timekeeper for a while. ``arm`` gets it, and a function from seconds to the time they lead to."""
    Timed.start = trio.current_time()
    keeper = Timekeeper()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        await trio.testing.wait_all_tasks_blocked()
        arm(keeper, lambda after: trio.current_time() + after)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()


def test_deadlines_expire_in_order_and_on_time() -> None:
    seen: list[tuple[str, float]] = []

    def arm(keeper: Timekeeper, at: Callable[[float], float]) -> None:
        for after in (5, 1, 3):
            keeper.arm(Timed(f"in {after}", seen), at(after))

    run(lambda: watched(arm))
    assert seen == [("in 1", 1), ("in 3", 3), ("in 5", 5)]


def test_a_deadline_can_be_moved_and_cleared() -> None:
    seen: list[tuple[str, float]] = []
    sooner, later, never, same = (Timed(name, seen) for name in ("sooner", "later", "never", "same"))

    def arm(keeper: Timekeeper, at: Callable[[float], float]) -> None:
        keeper.arm(sooner, at(9))
        keeper.arm(sooner, at(2))
        keeper.arm(later, at(1))
        keeper.arm(later, at(7))
        keeper.arm(never, at(3))
        keeper.arm(never, None)
        keeper.arm(never, None)
        keeper.arm(same, at(4))
        keeper.arm(same, at(4))

    run(lambda: watched(arm))
    assert seen == [("sooner", 2), ("same", 4), ("later", 7)]


def test_infinite_deadline_never_expires() -> None:
    seen: list[tuple[str, float]] = []
    run(lambda: watched(lambda keeper, at: keeper.arm(Timed("never", seen), math.inf)))
    assert seen == []


def test_expired_deadline_may_clear_or_move_a_simultaneous_one() -> None:
    seen: list[tuple[str, float]] = []

    def arm(keeper: Timekeeper, at: Callable[[float], float]) -> None:
        def meddle() -> None:
            if len(seen) == 1:  # Whichever of them is the first.
                keeper.arm(cleared, None)
                keeper.arm(moved, at(2))

        cleared, moved = Timed("cleared", seen, meddle), Timed("moved", seen, meddle)
        keeper.arm(cleared, at(1))
        keeper.arm(moved, at(1))

    run(lambda: watched(arm))
    # Both are told at the time that they had in common: a call that is no longer due does nothing.
    assert sorted(seen) == [("cleared", 1), ("moved", 1), ("moved", 3)]


def test_a_deadline_may_set_the_next() -> None:
    seen: list[tuple[str, float]] = []

    def arm(keeper: Timekeeper, at: Callable[[float], float]) -> None:
        def again() -> None:
            if len(seen) < 3:
                keeper.arm(timed, at(1))

        timed = Timed("again", seen, again)
        keeper.arm(timed, at(1))

    run(lambda: watched(arm))
    assert seen == [("again", 1), ("again", 2), ("again", 3)]


def test_failing_deadline_delays_no_other(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[tuple[str, float]] = []

    def fail() -> None:
        raise ValueError("it cannot be")

    def arm(keeper: Timekeeper, at: Callable[[float], float]) -> None:
        keeper.arm(Timed("failing", seen, fail), at(1))
        keeper.arm(Timed("at once", seen), at(1))
        keeper.arm(Timed("later", seen), at(2))

    run(lambda: watched(arm))
    assert sorted(seen) == [("at once", 1), ("failing", 1), ("later", 2)]
    assert caplog.messages == ["a deadline could not be acted on"]
