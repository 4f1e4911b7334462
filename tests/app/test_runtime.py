"""The seam to an event loop: one suite over Trio's, asyncio's, and the one that needs no loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from loops import Run, loops, runtimes, turns, under_asyncio

from mcpio.app.runtime import OneShot, Runtime, Spawned, checked_grace, is_stopping
from mcpio.errors import LocalProtocolError

# Tasks


@runtimes
def test_a_task_starts_at_a_later_turn(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        seen: list[str] = []

        async def work() -> None:
            seen.append("work")

        runtime.spawn(work())
        assert not seen
        await turns(runtime)
        assert seen == ["work"]

    run(main)


@runtimes
def test_cancelled_task_stops_at_its_wait_and_others_continue(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        seen: list[str] = []
        values = [runtime.one_shot(), runtime.one_shot()]

        async def work(value: OneShot, name: str) -> None:
            try:
                await value.wait()
                seen.append(f"{name} has it")
            finally:
                seen.append(f"{name} is over")

        first, _ = runtime.spawn(work(values[0], "first")), runtime.spawn(work(values[1], "second"))
        await turns(runtime)
        first.cancel()
        await turns(runtime)
        assert seen == ["first is over"]
        values[1].set(1)
        await turns(runtime)
        assert seen == ["first is over", "second has it", "second is over"]

    run(main)


@runtimes
def test_task_cancelled_before_its_start_stops_at_its_first_wait(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        seen: list[str] = []

        async def work() -> None:
            try:
                seen.append("started")
                await runtime.one_shot().wait()
                seen.append("never")
            finally:
                seen.append("over")

        task = runtime.spawn(work())
        task.cancel()
        task.cancel()
        assert not seen
        await turns(runtime)
        assert seen == ["started", "over"]

    run(main)


@runtimes
def test_a_task_may_be_cancelled_twice_and_after_its_end(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        seen: list[str] = []

        async def work() -> None:
            try:
                await runtime.one_shot().wait()
            finally:
                seen.append("over")

        task = runtime.spawn(work())
        await turns(runtime)
        task.cancel()
        task.cancel()
        await turns(runtime)
        task.cancel()
        await turns(runtime)
        assert seen == ["over"]

    run(main)


@runtimes
def test_task_that_cancels_itself_runs_to_its_next_wait(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        seen: list[str] = []
        tasks: list[Spawned] = []

        async def work(*, waits: bool) -> None:
            tasks.pop().cancel()
            seen.append("still here")
            if waits:
                await runtime.one_shot().wait()
                seen.append("never")

        for waits in (True, False):
            tasks.append(runtime.spawn(work(waits=waits)))
            await turns(runtime)
        assert seen == ["still here", "still here"]

    run(main)


@runtimes
def test_a_task_may_be_cancelled_by_another_that_it_started(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        seen: list[str] = []

        async def outer() -> None:
            async def inner() -> None:
                outer_task.cancel()
                seen.append("inner")

            runtime.spawn(inner())
            try:
                await runtime.one_shot().wait()
            finally:
                seen.append("outer")

        outer_task = runtime.spawn(outer())
        await turns(runtime)
        assert seen == ["inner", "outer"]

    run(main)


# Values


@runtimes
@pytest.mark.parametrize("value", [0, None, ValueError("a value like any other"), "text"])
def test_one_shot_wakes_its_waiter_with_the_value(run: Run, value: object) -> None:
    async def main(runtime: Runtime) -> None:
        shot, seen = runtime.one_shot(), list[object]()

        async def work() -> None:
            seen.append(await shot.wait())

        runtime.spawn(work())
        await turns(runtime)
        assert not seen
        shot.set(value)
        assert not seen
        await turns(runtime)
        assert seen == [value]

    run(main)


@runtimes
def test_one_shot_keeps_the_first_value_even_before_the_wait(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        shot = runtime.one_shot()
        shot.set(1)
        shot.set(2)
        assert await shot.wait() == 1
        shot.set(3)

    run(main)


@runtimes
def test_a_cancelled_wait_leaves_nothing_behind(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        shot, seen = runtime.one_shot(), list[object]()

        async def work() -> None:
            seen.append(await shot.wait())

        task = runtime.spawn(work())
        await turns(runtime)
        task.cancel()
        await turns(runtime)
        shot.set(1)
        await turns(runtime)
        assert not seen

    run(main)


@runtimes
@pytest.mark.parametrize("cancel_first", [True, False])
def test_a_value_and_a_cancellation_may_come_in_the_same_turn(run: Run, cancel_first: bool) -> None:
    async def main(runtime: Runtime) -> None:
        shot, seen = runtime.one_shot(), list[object]()

        async def work() -> None:
            try:
                seen.append(await shot.wait())
            finally:
                seen.append("over")

        task = runtime.spawn(work())
        await turns(runtime)
        if cancel_first:
            task.cancel()
        shot.set("value")
        task.cancel()
        await turns(runtime)
        assert seen in (["over"], ["value", "over"])

    run(main)


# Chance


@runtimes
@pytest.mark.req("SESS-02")
def test_entropy_differs_every_time(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        drawn = [runtime.entropy(16) for _ in range(100)]
        assert len(set(drawn)) == 100
        assert {len(each) for each in drawn} == {16}

    run(main)


# Time


@runtimes
def test_a_function_is_called_later_unless_that_is_cancelled(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        seen: list[str] = []
        called = runtime.one_shot()
        runtime.call_later(0.001, lambda: seen.append("cancelled")).cancel()
        runtime.call_later(0.002, lambda: called.set("later"))
        assert await called.wait() == "later"
        assert seen == []

    run(main)


@loops
def test_cancellation_of_a_task_differs_from_that_of_its_awaitable(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        seen: list[bool] = []

        async def work(wait: Callable[[], Awaitable[Any]]) -> None:
            try:
                await wait()
            except BaseException:
                seen.append(await is_stopping(runtime))
                raise

        async def cancelled_from_inside() -> None:
            raise asyncio.CancelledError

        task = runtime.spawn(work(runtime.one_shot().wait))
        await turns(runtime)
        task.cancel()
        await turns(runtime)
        if run is under_asyncio:
            runtime.spawn(work(cancelled_from_inside))
            await turns(runtime)
            assert seen == [True, False]
        else:
            assert seen == [True]

    run(main)


@runtimes
def test_sleepers_wake_in_order_of_time(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        seen: list[str] = []

        async def work(seconds: float, name: str) -> None:
            await runtime.sleep(seconds)
            seen.append(name)

        for seconds, name in ((0.05, "third"), (0.02, "second"), (0, "first"), (-1, "first too")):
            runtime.spawn(work(seconds, name))
        await runtime.sleep(0.08)
        assert sorted(seen[:2]) == ["first", "first too"]
        assert seen[2:] == ["second", "third"]

    run(main)


@runtimes
def test_a_cancelled_sleep_ends_at_once(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        seen: list[str] = []

        async def work() -> None:
            try:
                await runtime.sleep(3600)
            finally:
                seen.append("over")

        task = runtime.spawn(work())
        await turns(runtime)
        task.cancel()
        await turns(runtime)
        assert seen == ["over"]

    run(main)


# The end of the loop's own block


@loops
def test_unstarted_tasks_are_closed_when_the_block_fails(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async def work() -> None:
            await runtime.one_shot().wait()

        async def work_around(inner: Coroutine[Any, Any, None]) -> None:
            await inner

        runtime.spawn(work_around(work()))
        raise KeyError("k")

    with pytest.raises(ExceptionGroup) as caught:
        run(main)
    assert [type(error) for error in caught.value.exceptions] == [KeyError]


@runtimes
def test_a_function_runs_soon_from_the_loop_and_from_any_thread(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        ran: list[str] = []
        runtime.call_soon(lambda: ran.append("from the loop"))
        assert ran == []
        await runtime.to_thread(lambda: runtime.call_soon(lambda: ran.append("from a thread")))
        await turns(runtime)
        assert ran == ["from the loop", "from a thread"]

    run(main)


@runtimes
def test_function_scheduled_after_the_end_of_the_loop_is_dropped(run: Run) -> None:
    held: list[Runtime] = []

    async def main(runtime: Runtime) -> None:
        held.append(runtime)

    run(main)
    held[0].call_soon(lambda: None)


# Drivers


def test_a_grace_is_a_number_of_seconds_or_has_no_limit() -> None:
    assert (checked_grace(None), checked_grace(0), checked_grace(2.5)) == (None, 0, 2.5)
    for wrong in (-1, float("nan"), "5"):
        with pytest.raises(LocalProtocolError):
            checked_grace(wrong)  # type: ignore[arg-type]  # that is the point
