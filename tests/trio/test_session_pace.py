"""Peers that do not read, or ask too much: what that costs them, and that it costs nobody else anything (P14)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from peers import HELLO, WithRoom, a_server, call, lines, read_to_end, run
from runners import run_by

from mcpio._drivers.actor import EVENTS_PER_TURN
from mcpio.app.server import Server
from mcpio.app.session import Session
from mcpio.errors import NoBackChannel
from mcpio.events import CloseReason
from mcpio.trio import open_transport, serve

# How much waits for a peer


class Stalled(trio.abc.SendStream):
    """The writing end of a stream that takes what it is given until it is full."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.closed = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        self.room -= len(data)
        if self.room < 0:
            await trio.sleep_forever()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self.closed = True


@asynccontextmanager
async def stalled_client(server: Server, *messages: dict[str, Any]) -> AsyncIterator[tuple[Session, Stalled]]:
    """Serve a client that says something and reads nothing but the answer to its greeting."""
    receive, send = trio.testing.MemoryReceiveStream(), Stalled(300)
    receive.put_data(lines(HELLO, {"method": "notifications/initialized"}, *messages))
    async with trio.open_nursery() as nursery:
        session: Session = await nursery.start(serve, server, trio.StapledStream(send, receive))
        await trio.testing.wait_all_tasks_blocked()
        yield session, send
        nursery.cancel_scope.cancel()


@run_by(run)
async def test_client_that_reads_nothing_is_disconnected_beyond_queued_bytes() -> None:
    server = a_server(queued_bytes=10_000)
    async with stalled_client(server, call(1, "never_ends")) as (session, stream):
        for _ in range(20):
            session.log("error", "x" * 1000)  # type: ignore[attr-defined]  # a server's session has it
        with trio.fail_after(10):
            await session.driver.wait_closed()
        assert session.ended is not None
        assert session.ended.reason is CloseReason.SLOW_CONSUMER
        assert stream.closed
        assert server.instructions == "cancelled"
        with pytest.raises(NoBackChannel):
            session.notify(object())


@run_by(run)
async def test_client_that_reads_nothing_affects_no_other() -> None:
    server = a_server()
    flood = [call(number, "large", size=100_000) for number in range(1, 60)]
    async with stalled_client(server, *flood) as (stalled, _), trio.open_nursery() as nursery:
        near, far = trio.testing.memory_stream_pair()
        nursery.start_soon(serve, server, far)
        began = trio.current_time()
        async with open_transport(near) as client:
            for _ in range(100):
                await client.call_tool("large", {"size": 10})
        assert trio.current_time() == began
        assert stalled.ended is None


def test_client_with_many_requests_lets_others_take_turns() -> None:
    server, served, most = Server("s"), list[int](), 0

    @server.tool
    def count() -> None:
        served.append(1)

    async def watch() -> None:
        nonlocal most
        before = 0
        while True:
            await trio.lowlevel.checkpoint()
            most = max(most, len(served) - before)
            before = len(served)

    async def main() -> None:
        near, far = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            async with trio.open_nursery() as serving:
                serving.start_soon(serve, server, far)
                await near.send_all(lines(HELLO, *(call(number, "count") for number in range(1, 2001))))
                await near.send_eof()
                assert (await read_to_end(near)).count(b"\n") == 2001
            nursery.cancel_scope.cancel()

    run(main)
    assert len(served) == 2000
    # Two turns of the loop may lie between two of ours, for the order within a turn is random.
    # In each, the reader and the marked session may take a turn.
    assert most <= 4 * EVENTS_PER_TURN == 128


class Recording(WithRoom):
    """A stream that notes how many lines each write has."""

    def __init__(self, stream: Any, peer: Any) -> None:
        super().__init__(stream, peer)
        self.writes: list[int] = []

    def send_nowait(self, data: bytes) -> int:
        self.writes.append(data.count(b"\n"))
        return super().send_nowait(data)


@run_by(run)
async def test_after_each_read_one_message_goes_out_at_once_and_those_behind_it_together() -> None:
    near, far = trio.testing.memory_stream_pair()
    stream = Recording(near, far.receive_stream)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, a_server(), far)
        async with open_transport(stream, era="handshake") as client, trio.open_nursery() as callers:
            await trio.testing.wait_all_tasks_blocked()
            stream.writes.clear()
            for _ in range(4):
                callers.start_soon(client.call_tool, "takes", {"seconds": 1})
            await trio.testing.wait_all_tasks_blocked()
            assert stream.writes == [1, 3]
            await client.call_tool("takes", {"seconds": 2})
            assert stream.writes == [1, 3, 1]
            await client.ping()
            assert stream.writes == [1, 3, 1, 1]


@run_by(run)
async def test_a_client_that_does_not_read_its_answers_is_asked_for_no_more_questions() -> None:
    server = a_server(high_water=100_000)
    near, far = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, server, far)
        await near.send_all(lines(HELLO))
        await near.receive_some()
        sent = list[int]()

        async def ask() -> None:
            for number in range(1, 31):
                await near.send_all(lines(call(number, "large", size=10_000)))
                sent.append(number)
            await near.send_eof()

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        # Unread are the limit, the bytes that the writer holds, and those of one read.
        assert len(sent) < 20
        received = await read_to_end(near)
        assert received.count(b"\n") == 30


@run_by(run)
async def test_client_that_reads_many_large_answers_stays_connected() -> None:
    """Questions that arrived together are not answered faster than the answers are read."""
    near, far = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, a_server(queued_bytes=1_000_000, high_water=100_000), far)
        await near.send_all(lines(HELLO))
        await near.receive_some()
        nursery.start_soon(near.send_all, lines(*(call(number, "large", size=10_000) for number in range(1, 301))))
        received = b""
        while received.count(b"\n") < 300:
            received += await near.receive_some()
        await near.send_eof()


@pytest.mark.parametrize("kind", [trio.StapledStream, WithRoom])
@run_by(run)
async def test_last_answer_is_delivered_to_a_slow_reader(kind: type[trio.abc.Stream]) -> None:
    near, far = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, a_server(), WithRoom(far) if kind is WithRoom else far)
        await near.send_all(lines(HELLO, call(1, "takes", seconds=1, size=2_000_000)))
        await near.send_eof()
        received = await read_to_end(near, pause=1, at_once=100_000)
    assert trio.current_time() > 20
    assert json.loads(received.splitlines()[1])["result"]["content"][0]["text"] == "x" * 2_000_000


@pytest.mark.parametrize("grace", [5, 0])
@pytest.mark.parametrize("pulled", [True, False])
@run_by(run)
async def test_last_answer_waits_at_most_for_the_grace(grace: float, pulled: bool) -> None:
    server = a_server()
    near, far = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        session: Session = await nursery.start(serve, server, far)
        await near.send_all(lines(HELLO))
        if pulled:
            # The last answer is with the transport, which waits for the peer; else it waits behind the first.
            await near.receive_some()
        await near.send_all(lines(call(1, "large", size=10)))
        await near.send_eof()
        await trio.sleep(100)
        session.close(2 * grace)
        session.close(grace)
        await session.driver.wait_closed()
        assert trio.current_time() == 100 + grace
