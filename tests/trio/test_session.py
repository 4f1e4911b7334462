"""Whole messages, wherever a caller on Trio is cancelled."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from peers import run
from rawstream import RawEnd

from mcpio.trio import open_transport


class ByThrees(trio.abc.ReceiveStream):
    """The reading end of a stream, which takes three bytes at a time."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self.stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return bytes(await self.stream.receive_some(3))

    async def aclose(self) -> None:
        await self.stream.aclose()


@pytest.mark.req("CANC-01", "STDIO-02")
@pytest.mark.parametrize("turns", range(0, 120, 8))
def test_cancelled_call_truncates_no_message(turns: int) -> None:
    """Wherever in the writing of its request a caller is cancelled, the server reads whole lines."""
    received: list[dict[str, Any]] = []

    async def main() -> None:
        near, far = trio.testing.lockstep_stream_pair()
        # A writer waits until every byte is read.
        raw = RawEnd((trio.StapledStream(far.send_stream, ByThrees(far.receive_stream)),))
        async with trio.open_nursery() as nursery:
            greeted = trio.Event()
            nursery.start_soon(greet, raw, greeted)
            async with open_transport(near, era="handshake") as client, trio.open_nursery() as calls:
                await greeted.wait()
                nursery.start_soon(read_all, raw)
                calls.start_soon(client.call_tool, "slow", {"text": "x" * 100})
                for _ in range(turns):
                    await trio.lowlevel.checkpoint()
                calls.cancel_scope.cancel()

    async def greet(raw: RawEnd, greeted: trio.Event) -> None:
        await raw.greet()
        greeted.set()

    async def read_all(raw: RawEnd) -> None:
        while not received or received[-1]["method"] != "notifications/cancelled":
            received.append(await raw.receive())
        assert await raw.at_end()

    run(main)
    assert [message["method"] for message in received] == ["tools/call", "notifications/cancelled"]
    assert received[1]["params"]["requestId"] == received[0]["id"]
