"""The flag of an event loop that one task waits for."""

from __future__ import annotations

from eachloop import EachLoop, Here


def test_flag_that_is_up_ends_one_wait(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        signal = here.loop.signal()
        signal.set()
        signal.set()
        await signal.wait()
        with here.scope() as scope:
            async with here.tasks() as tasks:
                tasks.spawn(signal.wait())
                await turns(here)
                scope.cancel()
        assert scope.cancelled_caught

    each_loop.run(main)


def test_task_that_waits_after_a_cancelled_one_is_woken(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        signal = here.loop.signal()

        async def set_later() -> None:
            await turns(here)
            signal.set()

        async with here.tasks() as tasks:
            first = tasks.spawn(signal.wait())
            await turns(here)
            tasks.spawn(set_later())
            first.cancel()
            await signal.wait()  # on asyncio the first has not left yet

    each_loop.run(main)


async def turns(here: Here) -> None:
    """Let other tasks get on."""
    for _ in range(5):
        await here.checkpoint()
