"""P16: an unknown stream or channel carries a conversation, using only the public API."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from mcpio import Context, Server
from mcpio.testing.transport_kit import CHECKS, Ends, PairHarness, TransportFault, TransportTests, run_check
from mcpio.trio import open_transport, serve

pytestmark = pytest.mark.timeout(30)  # what waits in virtual time never does, but a loop may not end


class Pigeons(trio.abc.Channel[bytes]):
    """One of two pigeon lofts: a message is a pigeon, and a limited number fly at once."""

    AIR = 3

    def __init__(self) -> None:
        self.other: Pigeons = self
        self.landed: deque[bytes] = deque()
        self.moved = trio.Event()
        self.is_closed = self.has_told_end = False

    async def send(self, value: bytes) -> None:
        await trio.lowlevel.checkpoint()
        while len(self.other.landed) == self.AIR and not self.is_over:
            await self.other.moved.wait()
        self._check()
        if self.is_over:
            raise trio.BrokenResourceError("nobody is there")
        self.other.landed.append(value)
        self.other.move()

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        while not self.landed and not self.is_over:
            await self.moved.wait()
        self._check()
        if not self.landed:
            assert not self.has_told_end, "a channel that has ended is read again"
            self.has_told_end = True
            raise trio.EndOfChannel
        value = self.landed.popleft()
        self.move()
        return value

    async def aclose(self) -> None:
        self.is_closed = True
        for end in (self, self.other):
            end.move()
        await trio.lowlevel.checkpoint()

    @property
    def is_over(self) -> bool:
        return self.is_closed or self.other.is_closed

    def move(self) -> None:
        """Wake the tasks that wait for a pigeon to arrive or depart."""
        self.moved.set()
        self.moved = trio.Event()

    def _check(self) -> None:
        if self.is_closed:
            raise trio.ClosedResourceError("the loft is closed")


class PigeonStream(trio.abc.Stream):
    """The same as a byte stream: each pigeon carries a few bytes."""

    def __init__(self, pigeons: Pigeons) -> None:
        self.pigeons = pigeons
        self.rest = b""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        for start in range(0, len(view), 1000):
            await self.pigeons.send(bytes(view[start : start + 1000]))

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if not self.rest:
            try:
                self.rest = await self.pigeons.receive()
            except trio.EndOfChannel:
                return b""
        size = len(self.rest) if max_bytes is None else max_bytes
        data, self.rest = self.rest[:size], self.rest[size:]
        return data

    async def aclose(self) -> None:
        await self.pigeons.aclose()


def pigeon_pair(kind: type[Pigeons] = Pigeons) -> tuple[Pigeons, Pigeons]:
    near, far = kind(), kind()
    near.other, far.other = far, near
    return near, far


def stream_pair() -> tuple[PigeonStream, PigeonStream]:
    near, far = pigeon_pair()
    return PigeonStream(near), PigeonStream(far)


@pytest.mark.req("XPORT-01")
@pytest.mark.parametrize("pair", [pigeon_pair, stream_pair])
def test_unknown_transport_carries_a_conversation(pair: Callable[[], Ends]) -> None:
    server = Server("loft")

    @server.tool
    async def coo(ctx: Context, times: int) -> str:
        for _ in range(times):
            ctx.info("coo")
        return f"{times} roots: {[root.uri for root in await ctx.roots()]}"

    async def main() -> None:
        heard: list[object] = []
        near, far = pair()
        with trio.fail_after(60):
            await converse(near, far, heard)
        assert len(heard) == 3

    async def converse(near: Any, far: Any, heard: list[object]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, server, far)
            async with open_transport(near, roots=[], on_log=heard.append, era="handshake") as client:
                assert (await client.call_tool("coo", {"times": 3})).text == "3 roots: []"

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


class Letters(Pigeons):
    """Carries bytes, and no text."""

    async def send(self, value: bytes) -> None:
        assert isinstance(value, bytes)
        await super().send(value)


class Shielded(Pigeons):
    """Cannot be cancelled for long while it waits for a pigeon; closing ends that wait at once."""

    async def receive(self) -> bytes:
        if self.is_over:
            await trio.lowlevel.checkpoint()
        with trio.CancelScope(deadline=trio.current_time() + 100, shield=True):
            return await super().receive()
        raise trio.EndOfChannel


def test_kit_names_what_waits_until_it_is_closed() -> None:
    [check] = [each for each in CHECKS if each.name == "a_cancelled_block"]
    with pytest.raises(TransportFault, match="the transport ignores a cancellation, and is closed"):
        run_check(check, PairHarness(partial(pigeon_pair, Shielded), virtual_time=True, room=65536))


class TestPigeons(TransportTests):
    harness = PairHarness(pigeon_pair, virtual_time=True, room=65536)


class TestLetters(TransportTests):
    harness = PairHarness(partial(pigeon_pair, Letters), binary=True, virtual_time=True, room=65536)


class TestPigeonStream(TransportTests):
    harness = PairHarness(stream_pair, virtual_time=True, room=65536)
