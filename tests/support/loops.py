"""The event loops that there are, for one suite over all of them."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest
import trio
from eagertasks import make_eager

from mcpio.app.runtime import OneShot, Runtime
from mcpio.asyncio import AsyncioRuntime
from mcpio.testing import ManualRuntime
from mcpio.trio._runtime import TrioRuntime

Main: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]


def under_trio(main: Main) -> None:
    async def run() -> None:
        async with trio.open_nursery() as nursery:
            await main(TrioRuntime(nursery))

    with quiet():
        trio.run(run)


def under_asyncio(main: Main) -> None:
    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            await main(AsyncioRuntime(group))

    with quiet():
        asyncio.run(run())


def under_eager_asyncio(main: Main) -> None:
    async def run() -> None:
        make_eager(asyncio.get_running_loop())
        async with asyncio.TaskGroup() as group:
            await main(AsyncioRuntime(group))

    with quiet():
        asyncio.run(run())


def by_hand(main: Main) -> None:
    with quiet():
        runtime = ManualRuntime()
        runtime.complete(main(runtime))


def collect_garbage() -> None:
    """Free unreachable objects. Some warn when they are freed, such as coroutines that were never awaited.

    Objects that stay are frozen: each later pass would look through all of them again.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def quiet() -> Iterator[None]:
    """Whatever is left behind, such as a coroutine that nobody awaited, shows as a warning."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            collect_garbage()
            assert [str(warning.message) for warning in found] == []


LOOPS = [under_trio, under_asyncio, under_eager_asyncio]
loops = pytest.mark.parametrize("run", LOOPS, ids=["trio", "asyncio", "eager"])
runtimes = pytest.mark.parametrize("run", [*LOOPS, by_hand], ids=["trio", "asyncio", "eager", "manual"])


async def turns(runtime: Runtime) -> None:
    """Let every task that can run get on with it."""
    for _ in range(4):
        turn = runtime.one_shot()

        async def give(turn: OneShot = turn) -> None:
            turn.set(None)

        runtime.spawn(give())
        await turn.wait()
