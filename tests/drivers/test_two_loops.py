"""Two event loops in one process: Trio in a thread, asyncio in another, each with a server and a client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import trio
from streams import run_in_real_time

from mcpio import Context, Server
from mcpio import asyncio as on_asyncio
from mcpio import trio as on_trio


def make_server() -> Server:
    server = Server("both", "1.0")

    @server.tool
    async def rest(ctx: Context) -> str:
        await ctx.sleep(0.001)
        return threading.current_thread().name

    @server.tool
    async def nap() -> None:
        await asyncio.sleep(1)

    return server


class InThread:
    """Runs Trio in a thread for a block, which gets the result of the first step."""

    def __init__(self, main: Callable[..., Any]) -> None:
        self._main = main
        self._token: Any = None
        self._scope = trio.CancelScope()
        self._started = threading.Event()
        self.value: Any = None
        self._thread = threading.Thread(target=trio.run, args=(self._run,), name="trio")

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._scope:
            async with trio.open_nursery() as nursery:
                self.value = await nursery.start(self._main)
                self._started.set()

    async def __aenter__(self) -> Any:
        self._thread.start()
        assert await asyncio.to_thread(self._started.wait, 20)
        return self.value

    async def __aexit__(self, *_: object) -> None:
        self._token.run_sync_soon(self._scope.cancel)
        await asyncio.to_thread(self._thread.join, 20)
        assert not self._thread.is_alive()


def test_one_server_is_served_by_both_loops_at_once_and_each_runs_its_own_handlers() -> None:
    server = make_server()

    async def ask_from_trio(port: int) -> list[str]:
        async with on_trio.open_tcp("127.0.0.1", port) as client:
            return [(await client.call_tool("rest")).text for _ in range(3)]

    async def main() -> None:
        started = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(on_asyncio.serve_tcp(server, started=started))
        here = (await started).port
        async with (
            InThread(partial(on_trio.serve_tcp, server)) as there,
            on_asyncio.open_tcp("127.0.0.1", there.port) as client,
        ):
            own, foreign = await asyncio.gather(
                asyncio.gather(*[client.call_tool("rest") for _ in range(3)]),
                asyncio.to_thread(trio.run, ask_from_trio, here),
            )
            assert [result.text for result in own] == ["trio"] * 3
            assert foreign == ["MainThread"] * 3
            assert "there is no asyncio loop here" in (await client.call_tool("nap")).text
        serving.cancel()
        await asyncio.wait([serving])

    run_in_real_time(main)
    assert server.sessions == ()
