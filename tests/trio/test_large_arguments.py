"""Many calls at once with large arguments: they wait for each other, and none is lost."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import trio
import trio.testing
from carriers import CARRIERS, added, over, run

from mcpio import Client, Limits, Options, Server
from mcpio.trio import memory_client

SIZE = 40_000
LIMITS = Limits(high_water=3 * SIZE, queued_bytes=8 * SIZE)


def make_server() -> Server:
    server = Server("large", "1.0")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def size(text: str) -> int:
        return len(text)

    return server


async def ask(client: Client, sizes: list[int]) -> None:
    result = await client.call_tool("size", {"text": "x" * SIZE})
    sizes.append(result.structured_content["result"])


@pytest.mark.parametrize("kind", [kind for kind in CARRIERS if kind != "stdio"])
def test_calls_wait_for_room_and_none_is_lost(kind: str, tmp_path: Path) -> None:
    sizes: list[int] = []

    async def main() -> None:
        async with over(kind, make_server(), tmp_path) as connect, trio.open_nursery() as home:
            client = await connect(nursery=home, options=Options(limits=LIMITS))
            async with trio.open_nursery() as nursery:
                for _ in range(30):
                    nursery.start_soon(ask, client, sizes)
            assert await added(client, 1, 2) == 3
            await client.aclose()

    run(main)
    assert sizes == [SIZE] * 30


def test_result_is_freed_with_its_last_reference() -> None:
    server = Server("large", "1.0")

    @server.tool
    def text() -> str:
        return "x"

    async def main() -> None:
        async with memory_client(server) as client:
            await client.call_tool("text")
            gc.collect()
            gc.disable()
            try:
                gone = weakref.ref(await client.call_tool("text"))
                await trio.lowlevel.checkpoint()
                assert gone() is None
            finally:
                gc.enable()

    run(main)
