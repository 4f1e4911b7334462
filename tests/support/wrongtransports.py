"""Transports for the kit to judge: most are wrong, in one way each, and ``Queue`` and ``Polling`` are right."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import trio
import trio.testing

from mcpio.testing.transport_kit import Ends, PairHarness

ROOM = 65536


class Queue(trio.abc.Channel[str]):
    """One end of a pair of queues that is right. Others are wrong in one way."""

    def __init__(self, out: trio.MemorySendChannel[str], back: trio.MemoryReceiveChannel[str]) -> None:
        self.out = out
        self.back = back
        self.sent = 0

    async def send(self, value: str) -> None:
        self.sent += 1
        await self.pass_on(value)

    async def pass_on(self, value: str) -> None:
        await self.out.send(value)

    async def receive(self) -> str:
        return await self.back.receive()

    async def aclose(self) -> None:
        self.out.close()
        self.back.close()
        await trio.lowlevel.checkpoint()


class Dropping(Queue):
    async def pass_on(self, value: str) -> None:
        if self.sent % 50:
            await self.out.send(value)


class Duplicating(Queue):
    async def pass_on(self, value: str) -> None:
        await self.out.send(value)
        if '"echo"' in value and self.sent % 50 == 0:
            await self.out.send(value)


class Reordering(Queue):
    """Holds back every fourth notification until the next message."""

    held: str | None = None

    async def pass_on(self, value: str) -> None:
        if self.held is None and self.sent % 4 == 0 and "notifications/" in value:
            self.held = value
            return
        await self.out.send(value)
        if self.held is not None:
            held, self.held = self.held, None
            await self.out.send(held)


class Deaf(Queue):
    async def pass_on(self, value: str) -> None:
        await trio.lowlevel.checkpoint()


class Truncating(Queue):
    async def pass_on(self, value: str) -> None:
        if len(value) > ROOM:
            value = value[:200] + value[-ROOM:]
        await self.out.send(value)


class Ascii(Queue):
    async def pass_on(self, value: str) -> None:
        await self.out.send(value.encode("ascii", "replace").decode())


class Lines(Queue):
    """Cuts messages at what str.splitlines takes for the end of a line."""

    async def pass_on(self, value: str) -> None:
        for line in value.splitlines():
            await self.out.send(line)


class Stripping(Queue):
    async def pass_on(self, value: str) -> None:
        await self.out.send(value.replace('"x-unknown"', '"x_unknown"'))


class OneAtATime(Queue):
    """Sends nothing while its last request has no answer."""

    def __init__(self, *channels: Any) -> None:
        super().__init__(*channels)
        self.answered = trio.Event()
        self.answered.set()

    async def pass_on(self, value: str) -> None:
        if '"method":' in value and '"id":' in value:
            await self.answered.wait()
            self.answered = trio.Event()
        await self.out.send(value)

    async def receive(self) -> str:
        message = await self.back.receive()
        if '"result"' in message:
            self.answered.set()
        return message


class NoCancelling(Queue):
    async def pass_on(self, value: str) -> None:
        if "notifications/cancelled" not in value:
            await self.out.send(value)


class NoNotes(Queue):
    async def pass_on(self, value: str) -> None:
        if "notifications/kit" not in value:
            await self.out.send(value)


class Unsampled(Queue):
    async def pass_on(self, value: str) -> None:
        if "sampling/createMessage" not in value:
            await self.out.send(value)


class Buffering(Queue):
    """Takes whatever it is given."""


class Lossy(Queue):
    """Drops what finds no room."""

    async def pass_on(self, value: str) -> None:
        await trio.lowlevel.checkpoint()
        with suppress(trio.WouldBlock):
            self.out.send_nowait(value)


class Broken(Queue):
    """Raises where the other end has closed, as if the connection had been lost."""

    async def receive(self) -> str:
        try:
            return await self.back.receive()
        except trio.EndOfChannel:
            raise trio.BrokenResourceError("the other end is closed") from None


class Lagging(Queue):
    """Holds back a notification until the next message, and drops it when it is closed."""

    held: str | None = None

    async def pass_on(self, value: str) -> None:
        held, self.held = self.held, value if "notifications/kit" in value else None
        for each in (held, None if self.held else value):
            if each is not None:
                await self.out.send(each)


class Binary(Queue):
    """Takes bytes, and nothing else."""

    async def pass_on(self, value: Any) -> None:
        await self.out.send(str(memoryview(value), "utf-8"))

    async def receive(self) -> Any:
        return (await self.back.receive()).encode()


class Mixed(Binary):
    """Takes bytes, and delivers text."""

    async def receive(self) -> Any:
        return await self.back.receive()


class Silent(Queue):
    """Closes itself, and tells the other end nothing."""

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class ShortOf(Queue):
    """Does not pass on what is long, and does not say so."""

    async def pass_on(self, value: str) -> None:
        if len(value) < ROOM:
            await self.out.send(value)


class Raising(Queue):
    """Raises errors of its own where the connection does not work."""

    async def receive(self) -> str:
        try:
            return await self.back.receive()
        except trio.ClosedResourceError:
            raise KeyError("no such queue") from None


class Stubborn(Queue):
    """Does not let itself be cancelled."""

    async def receive(self) -> str:
        while True:
            try:
                return await self.back.receive()
            except trio.Cancelled:
                continue


class Unmoved(Queue):
    """Takes a cancellation for an answer."""

    async def receive(self) -> str:
        try:
            return await self.back.receive()
        except trio.Cancelled:
            return ""


class Polling(Queue):
    """Looks again and again, with a timeout of its own."""

    async def receive(self) -> str:
        while True:
            with trio.move_on_after(0.001):
                return await self.back.receive()


class Threaded(Queue):
    """Starts a thread that nobody ends."""

    def __init__(self, *channels: Any) -> None:
        super().__init__(*channels)
        threading.Thread(target=STOP.wait, name="left over", daemon=True).start()


class Spilling(Queue):
    """Opens a descriptor that nobody closes."""

    def __init__(self, *channels: Any) -> None:
        super().__init__(*channels)
        LEFT.extend(os.pipe())


STOP = threading.Event()
LEFT: list[int] = []


def pairs(kind: type[Queue], room: float = 4) -> Callable[[], Ends]:
    """Return what makes pairs of that kind."""

    def make() -> Ends:
        to_there, there = trio.open_memory_channel[str](room)
        to_here, here = trio.open_memory_channel[str](room)
        return kind(to_there, here), kind(to_here, there)

    return make


def harness(kind: type[Queue] = Queue, room: float = 4, **abilities: Any) -> PairHarness:
    return PairHarness(pairs(kind, room), virtual_time=True, room=ROOM, **abilities)


def crossing() -> Callable[[], Ends]:
    """Return what makes pairs that all share one queue to the client."""
    to_here, here = trio.open_memory_channel[str](4)

    def make() -> Ends:
        to_there, there = trio.open_memory_channel[str](4)
        return Queue(to_there, here.clone()), Queue(to_here.clone(), there)

    return make


def haunted() -> PairHarness:
    """Return pairs whose second client is told what the first was told last."""
    said: list[str] = []

    class Haunted(Queue):
        async def pass_on(self, value: str) -> None:
            if said and '"result"' in value and self.sent > 1:
                await self.out.send(said[0])
            await self.out.send(value)

    async def lose(_: Any, far: Any) -> None:
        said.append('{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"old"}}')
        await trio.aclose_forcefully(far)

    return PairHarness(pairs(Haunted), lose=lose, virtual_time=True, room=ROOM)


def leaving_a_task() -> Ends:
    trio.lowlevel.spawn_system_task(trio.sleep_forever)
    return pairs(Queue)()


async def keep(_: object, __: object) -> None:
    """Break nothing, where the connection should have been broken."""
    await trio.lowlevel.checkpoint()


class Abrupt(trio.abc.HalfCloseableStream):
    """Hangs up where it should only end what it sends."""

    def __init__(self, inner: trio.abc.HalfCloseableStream) -> None:
        self.inner = inner

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return bytes(await self.inner.receive_some(max_bytes))

    async def send_eof(self) -> None:
        await self.inner.aclose()

    async def aclose(self) -> None:
        await self.inner.aclose()


def abrupt_pair() -> Ends:
    near, far = trio.testing.lockstep_stream_pair()
    return Abrupt(near), far


class Forgetful(PairHarness):
    """Says that its client connects again, which it does not."""

    reconnects = True
