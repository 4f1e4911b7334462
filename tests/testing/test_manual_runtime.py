"""What every runtime does is in ``tests/app/test_runtime.py``; here is what only the manual one does."""

from __future__ import annotations

import pytest

from mcpio.testing import ManualCancelled, ManualRuntime
from mcpio.testing.manual_runtime import ManualTask


async def _nothing() -> None:
    return


def test_nothing_runs_until_run_is_called() -> None:
    runtime, seen = ManualRuntime(), list[int]()

    async def note(number: int) -> None:
        seen.append(number)

    for number in (1, 2):
        runtime.spawn(note(number))
    assert not seen
    runtime.run()
    assert seen == [1, 2]


def test_complete_runs_a_coroutine_and_other_tasks() -> None:
    runtime = ManualRuntime()
    value = runtime.one_shot()

    async def give() -> None:
        value.set(7)

    async def take() -> int:
        runtime.spawn(give())
        got: int = await value.wait()
        return got

    assert runtime.complete(take()) == 7


def test_exception_of_a_task_propagates() -> None:
    runtime = ManualRuntime()

    async def fail() -> None:
        raise KeyError("k")

    with pytest.raises(KeyError):
        runtime.complete(fail())
    runtime.spawn(fail())
    with pytest.raises(KeyError):
        runtime.run()


def test_time_moves_only_when_advanced() -> None:
    runtime, seen = ManualRuntime(), list[tuple[float, str]]()

    async def work(name: str, *pauses: float) -> None:
        for pause in pauses:
            await runtime.sleep(pause)
            seen.append((runtime.now, name))

    runtime.spawn(work("a", 1, 2))
    runtime.spawn(work("b", 2, 2))
    runtime.run()
    assert (runtime.now, runtime.next_deadline(), seen) == (0.0, 1.0, [])
    runtime.advance_to(3)
    assert seen == [(1.0, "a"), (2.0, "b"), (3.0, "a")]
    runtime.advance_to(2)
    assert (runtime.now, runtime.next_deadline()) == (3.0, 4.0)
    runtime.complete(runtime.sleep(5))
    assert (runtime.now, runtime.next_deadline(), seen[3:]) == (8.0, None, [(4.0, "b")])


def test_cancelled_sleeper_ends_at_once() -> None:
    runtime = ManualRuntime()
    task = runtime.spawn(runtime.sleep(1))
    runtime.run()
    task.cancel()
    runtime.run()
    assert runtime.next_deadline() is None


def test_deadlock_raises() -> None:
    runtime = ManualRuntime()

    async def wait() -> None:
        await runtime.one_shot().wait()

    with pytest.raises(RuntimeError, match="still waits"):
        runtime.complete(wait())


def test_foreign_awaitable_is_named_in_the_error() -> None:
    class Future:
        def __await__(self) -> object:
            yield self

    async def wait() -> None:
        await Future()  # type: ignore[misc]  # as wrong as it looks

    with pytest.raises(TypeError, match="what an event loop must give"):
        ManualRuntime().complete(wait())


def test_cancelled_task_raises_at_every_await() -> None:
    runtime, seen = ManualRuntime(), list[str]()

    async def stubborn() -> None:
        for _ in range(2):
            try:
                await runtime.one_shot().wait()
            except ManualCancelled:
                seen.append("cancelled")
        seen.append("over")

    task = runtime.spawn(stubborn())
    runtime.run()
    task.cancel()
    runtime.run()
    assert seen == ["cancelled", "cancelled", "over"]


def test_available_value_returned_without_waiting() -> None:
    runtime = ManualRuntime()
    value = runtime.one_shot()
    value.set(1)
    value.set(2)

    async def take() -> int:
        got: int = await value
        return got

    assert runtime.complete(take()) == 1
    assert runtime.complete(_nothing()) is None


def test_thread_function_runs_in_a_separate_turn() -> None:
    runtime, seen = ManualRuntime(), list[str]()

    def work() -> int:
        seen.append("work")
        return runtime.from_thread(lambda: 7)

    def fail() -> None:
        raise KeyError("k")

    async def ask() -> None:
        pending = runtime.to_thread(work)
        seen.append("ask")
        assert await pending == 7
        with pytest.raises(KeyError):
            await runtime.to_thread(fail)

    runtime.complete(ask())
    assert seen == ["ask", "work"]


def test_cancelling_unstarted_finished_or_cancelled_task_accepted() -> None:
    runtime = ManualRuntime()
    early, late = runtime.spawn(_nothing()), runtime.spawn(_nothing())
    early.cancel()
    early.cancel()
    runtime.run()
    late.cancel()
    runtime.run()


def test_self_cancelled_task_stops_at_its_next_await() -> None:
    runtime, seen = ManualRuntime(), list[str]()
    tasks: list[ManualTask] = []

    async def main() -> None:
        tasks[0].cancel()
        seen.append("still here")
        await runtime.one_shot().wait()
        seen.append("never")

    tasks.append(runtime.spawn(main()))
    runtime.run()
    assert seen == ["still here"]


def test_cancellation_wins_over_a_delivered_value() -> None:
    runtime, seen = ManualRuntime(), list[str]()
    value = runtime.one_shot()

    async def wait() -> None:
        await value.wait()
        seen.append("never")

    task = runtime.spawn(wait())
    runtime.run()
    value.set(1)
    task.cancel()
    runtime.run()
    assert not seen
