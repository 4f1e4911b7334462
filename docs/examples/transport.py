"""A transport of one's own, a pair of queues, with a client and a server on it."""

from __future__ import annotations

import trio
from trio import MemoryReceiveChannel, MemorySendChannel

from mcpio import Server
from mcpio.trio import open_transport, serve


class QueueChannel(trio.abc.Channel[str]):
    """One end of two queues: messages sent on one end are received on the other."""

    def __init__(self, out: MemorySendChannel[str], back: MemoryReceiveChannel[str]) -> None:
        self._out = out
        self._back = back

    async def send(self, value: str) -> None:
        """Send one whole message, or raise ``trio.BrokenResourceError``."""
        await self._out.send(value)

    async def receive(self) -> str:
        """Wait for one whole message, or raise ``trio.EndOfChannel``."""
        return await self._back.receive()

    async def aclose(self) -> None:
        """Close both directions."""
        self._out.close()
        self._back.close()
        await trio.lowlevel.checkpoint()


def queue_pair(room: float = 16) -> tuple[QueueChannel, QueueChannel]:
    """Return two ends with room for so many messages each way."""
    to_there, there = trio.open_memory_channel[str](room)
    to_here, here = trio.open_memory_channel[str](room)
    return QueueChannel(to_there, here), QueueChannel(to_here, there)


server = Server("adder", "1.0")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    near, far = queue_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, server, far)
        async with open_transport(near) as client:
            result = await client.call_tool("add", {"a": 2, "b": 3})
            print(f"2 + 3 = {result.structured_content['result']}")


if __name__ == "__main__":
    trio.run(main)
