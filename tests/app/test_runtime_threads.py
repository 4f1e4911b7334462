"""The seam to an event loop, and threads: one suite over all loops."""

from __future__ import annotations

import contextvars
import threading

import pytest
from loops import Run, loops, runtimes, turns

from mcpio.app.runtime import Runtime


@runtimes
def test_to_thread_returns_the_functions_result(run: Run) -> None:
    variable = contextvars.ContextVar("variable", default="none")

    async def main(runtime: Runtime) -> None:
        variable.set("the caller's")
        assert await runtime.to_thread(lambda: 7) == 7
        assert await runtime.to_thread(variable.get) == "the caller's"

    run(main)


@runtimes
def test_exception_in_a_thread_is_raised(run: Run) -> None:
    def fail() -> None:
        raise KeyError("k")

    async def main(runtime: Runtime) -> None:
        with pytest.raises(KeyError):
            await runtime.to_thread(fail)

    run(main)


@runtimes
def test_stop_iteration_in_a_thread_raises_runtime_error(run: Run) -> None:
    nothing: list[int] = []

    async def main(runtime: Runtime) -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await runtime.to_thread(lambda: next(iter(nothing)))

    run(main)


@runtimes
def test_a_thread_calls_back(run: Run) -> None:
    def fail() -> None:
        raise KeyError("k")

    async def main(runtime: Runtime) -> None:
        home = threading.get_ident()
        seen: list[str] = []

        def work() -> int:
            assert runtime.from_thread(threading.get_ident) == home
            with pytest.raises(KeyError):
                runtime.from_thread(fail)
            runtime.from_thread(lambda: seen.append("called"))
            return runtime.from_thread(lambda: 7)

        assert await runtime.to_thread(work) == 7
        assert seen == ["called"]

    run(main)


@loops
def test_any_thread_may_call_back(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        shot = runtime.one_shot()
        thread = threading.Thread(target=lambda: runtime.from_thread(lambda: shot.set(threading.get_ident())))
        thread.start()
        assert await shot.wait() == threading.get_ident()
        await runtime.to_thread(thread.join)

    run(main)


@loops
def test_to_thread_runs_in_another_thread(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        assert await runtime.to_thread(threading.get_ident) != threading.get_ident()

    run(main)


@loops
def test_a_cancelled_wait_abandons_the_thread_which_may_still_call_back(run: Run) -> None:
    entered, release, done = threading.Event(), threading.Event(), threading.Event()
    seen: list[str] = []

    async def main(runtime: Runtime) -> None:
        def work() -> None:
            entered.set()
            release.wait(10)
            runtime.from_thread(lambda: seen.append("called back"))
            done.set()

        async def ask() -> None:
            try:
                await runtime.to_thread(work)
            finally:
                seen.append("given up")

        task = runtime.spawn(ask())
        await runtime.to_thread(lambda: entered.wait(10))
        task.cancel()
        await turns(runtime)
        assert seen == ["given up"]
        release.set()
        await runtime.to_thread(lambda: done.wait(10))
        assert seen == ["given up", "called back"]

    run(main)


@loops
def test_abandoned_thread_does_not_delay_the_end(run: Run) -> None:
    entered, release, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        entered.set()
        release.wait(10)
        done.set()

    async def main(runtime: Runtime) -> None:
        async def ask() -> None:
            await runtime.to_thread(work)

        task = runtime.spawn(ask())
        await runtime.to_thread(lambda: entered.wait(10))
        task.cancel()

    run(main)
    assert not done.is_set()
    release.set()
    assert done.wait(10)
