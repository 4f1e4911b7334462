"""Blocks that run one after another, on every event loop."""

from __future__ import annotations

import pytest
from loops import Run, runtimes, turns

from mcpio.app.runtime import Runtime, Turns


@runtimes
def test_blocks_run_in_the_order_in_which_they_began(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        order, seen = Turns(runtime), list[int]()

        async def work(number: int) -> None:
            async with order:
                await turns(runtime)
                seen.append(number)

        for number in range(3):
            runtime.spawn(work(number))
            await turns(runtime)
        for _ in range(8):
            await turns(runtime)
        assert seen == [0, 1, 2]
        assert not order.is_taken

    run(main)


@pytest.mark.parametrize("is_its_turn", [False, True])
@runtimes
def test_cancelled_wait_passes_its_turn_on(run: Run, is_its_turn: bool) -> None:
    async def main(runtime: Runtime) -> None:
        order, seen = Turns(runtime), list[int]()

        async def work(number: int) -> None:
            async with order:
                seen.append(number)

        await order.__aenter__()
        first = runtime.spawn(work(1))
        await turns(runtime)
        runtime.spawn(work(2))
        await turns(runtime)
        if is_its_turn:
            await order.__aexit__()  # and it is cancelled before it runs
            first.cancel()
        else:
            first.cancel()
            await turns(runtime)
            await order.__aexit__()
        await turns(runtime)
        assert seen[-1] == 2  # Trio lets the one run whose turn had come
        assert not order.is_taken

    run(main)
