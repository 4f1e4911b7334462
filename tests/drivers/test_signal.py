"""The flag of an event loop that one task waits for."""

from __future__ import annotations

from eachloop import Here, on_each_loop


@on_each_loop
async def test_flag_that_is_up_ends_one_wait(here: Here) -> None:
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


@on_each_loop
async def test_task_that_waits_after_a_cancelled_one_is_woken(here: Here) -> None:
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


async def turns(here: Here) -> None:
    """Let other tasks get on."""
    for _ in range(5):
        await here.checkpoint()
