"""The runtime seam on Trio, beyond what tests/app/test_runtime.py asks of every runtime."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import trio
import trio.testing

from mcpio.errors import NoBackChannel
from mcpio.trio._runtime import TrioRuntime


async def fails_when_cancelled() -> None:
    """Fail in a nursery while it is cancelled: a group of the cancellation and the failure."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("on the way out")


async def exits_when_cancelled() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        try:
            await trio.sleep_forever()
        finally:
            raise SystemExit(3)


@pytest.mark.parametrize("cancel", ["task", "nursery"])
def test_a_task_that_fails_while_it_is_cancelled_is_logged_and_raises_nothing(
    cancel: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            task = TrioRuntime(nursery).spawn(fails_when_cancelled())
            await trio.testing.wait_all_tasks_blocked()
            if cancel == "task":
                task.cancel()
            else:
                nursery.cancel_scope.cancel()

    trio.run(main)
    assert [record.getMessage() for record in caplog.records] == ["the task of a handler failed"]


def test_system_exit_of_a_task_propagates() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            TrioRuntime(nursery).spawn(exits_when_cancelled()).cancel()

    with pytest.raises(BaseExceptionGroup) as caught:
        trio.run(main)
    assert caught.group_contains(SystemExit)
    assert not caught.group_contains(ValueError)


def test_thread_that_outlives_the_run_raises_no_back_channel() -> None:
    release, seen = threading.Event(), list[str]()
    threads: list[threading.Thread] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            runtime = TrioRuntime(nursery)

            def work() -> None:
                threads.append(threading.current_thread())
                release.wait()
                try:
                    runtime.from_thread(lambda: None)
                except NoBackChannel as error:
                    seen.append(str(error))

            nursery.start_soon(runtime.to_thread, work)
            while not threads:  # noqa: ASYNC110  # a thread sets no event of Trio
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()

    trio.run(main)
    release.set()
    _wait_until(lambda: bool(seen))
    assert seen == ["the event loop has ended"]


def _wait_until(condition: Callable[[], bool]) -> None:
    ticks = threading.Event()
    for _ in range(1000):
        if condition():
            return
        ticks.wait(0.005)
