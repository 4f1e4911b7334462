"""Transports that ignore a cancellation, as one does that reads in a thread: they are closed, which wakes them."""

from __future__ import annotations

import asyncio
import queue
from functools import partial
from typing import Any

import pytest
import trio
from eachloop import Here, on_each_loop

from mcpio import Server
from mcpio.asyncio import open_channel, serve_channel
from mcpio.trio import open_transport, serve

END = object()


class Stubborn(trio.abc.Channel[str]):
    """One end of a pair of queues. Its ``receive`` waits in a thread, and does not end when it is cancelled."""

    def __init__(self, take: queue.Queue[Any], give: queue.Queue[Any]) -> None:
        self._take, self._give = take, give
        self.closed = 0

    async def receive(self) -> str:
        taken = await trio.to_thread.run_sync(self._take.get)
        if taken is END:
            raise trio.EndOfChannel
        return str(taken)

    async def send(self, value: str) -> None:
        self._give.put(value)
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        self.closed += 1
        self._take.put(END)
        self._give.put(END)
        await trio.lowlevel.checkpoint()

    # The same on asyncio

    async def receive_on_asyncio(self) -> str | None:
        waiting = asyncio.ensure_future(asyncio.to_thread(self._take.get))
        while not waiting.done():
            try:
                await asyncio.shield(waiting)
            except asyncio.CancelledError:
                continue
        taken = waiting.result()
        return None if taken is END else str(taken)

    async def send_on_asyncio(self, value: str) -> None:
        self._give.put(value)

    async def close_on_asyncio(self) -> None:
        self.closed += 1
        self._take.put(END)
        self._give.put(END)

    @property
    def on_asyncio(self) -> dict[str, Any]:
        return {"receive": self.receive_on_asyncio, "send": self.send_on_asyncio, "close": self.close_on_asyncio}


def joined() -> tuple[Stubborn, Stubborn]:
    there, back = queue.Queue[Any](), queue.Queue[Any]()
    return Stubborn(back, there), Stubborn(there, back)


@pytest.mark.long
@pytest.mark.parametrize("era", ["handshake", "stateless"])
@pytest.mark.parametrize("ending", ["client", "server"])
@on_each_loop
async def test_transport_that_ignores_a_cancellation_is_closed_once(here: Here, ending: str, era: Any) -> None:
    server = Server("s")
    server.tool(lambda: "works", name="works")
    near, far = joined()
    if here.is_trio:
        serving: Any = partial(serve, server, far)
        opened: Any = open_transport(near, era=era)
    else:
        serving = partial(serve_channel, server, **far.on_asyncio)
        opened = open_channel(**near.on_asyncio, era=era)
    async with here.tasks() as tasks:
        task = tasks.spawn(serving())
        async with opened as client:
            assert (await client.call_tool("works")).text == "works"
            if ending == "server":
                task.cancel()
                await client.driver.wait_closed()
    assert (near.closed, far.closed) == (1, 1)
