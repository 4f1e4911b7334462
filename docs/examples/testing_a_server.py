"""A server, and its tests in virtual time, for pytest or by themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import wraps

import trio
import trio.testing

from mcpio import Context, RequestTimeout, Server, TextContent
from mcpio.trio import memory_client

server = Server("kitchen", "1.0")


@server.tool
async def boil_egg(minutes: int, ctx: Context) -> str:
    """Boil an egg."""
    for passed in range(minutes):
        ctx.progress(passed, minutes)
        await trio.sleep(60)
    return "done"


def in_virtual_time(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test under Trio. The clock jumps ahead whenever nothing is left to do."""

    @wraps(test)
    def run() -> None:
        trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))

    return run


@in_virtual_time
async def test_an_egg_takes_its_time() -> None:
    reports: list[float] = []
    async with memory_client(server) as client:
        began = trio.current_time()
        result = await client.call_tool(
            "boil_egg",
            {"minutes": 4},
            timeout=None,
            on_progress=lambda progress, *_: reports.append(progress),
        )
        assert result.content == (TextContent("done"),)
        assert trio.current_time() == began + 240
    assert reports == [0, 1, 2, 3]


@in_virtual_time
async def test_a_caller_need_not_wait_for_it() -> None:
    async with memory_client(server) as client:
        began = trio.current_time()
        with suppress(RequestTimeout):
            await client.call_tool("boil_egg", {"minutes": 600}, timeout=3600)
        assert trio.current_time() == began + 3600


@in_virtual_time
async def test_bad_arguments_never_reach_the_pot() -> None:
    async with memory_client(server) as client:
        result = await client.call_tool("boil_egg", {"minutes": "four"})
        assert result.is_error


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name} passed")
