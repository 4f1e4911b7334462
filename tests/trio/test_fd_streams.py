from __future__ import annotations

import os
import socket
import time
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
from runners import run_by

from mcpio.trio._descriptors import PollReader, PollWriter, StdioStream, ThreadReader, ThreadWriter

pytestmark = pytest.mark.skipif(os.name != "posix", reason="descriptors of POSIX")

BIG = bytes(1 << 20)


def polled() -> tuple[PollReader, PollWriter]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    return PollReader(reading), PollWriter(writing)


def threaded() -> tuple[ThreadReader, ThreadWriter]:
    reading, writing = os.pipe()
    return ThreadReader(reading), ThreadWriter(writing)


Ends = Callable[[], tuple[PollReader, PollWriter] | tuple[ThreadReader, ThreadWriter]]
both = pytest.mark.parametrize("ends", [polled, threaded])


async def fails_with(kind: type[BaseException], call: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(kind):
        await call()


@both
@run_by(trio.run)
async def test_sent_bytes_are_received(ends: Ends) -> None:
    stream = StdioStream(*ends())
    await stream.send_all(b"one")
    await stream.send_all(bytearray(b"two"))
    await stream.send_all(memoryview(b"three"))
    await stream.send_all(b"")
    await stream.wait_send_all_might_not_block()
    received = b""
    while len(received) < 11:
        received += await stream.receive_some(4)
    assert received == b"onetwothree"
    await stream.aclose()


@both
@run_by(trio.run)
async def test_fd_stream_passes_trios_stream_checks(ends: Ends) -> None:
    """Every call is a checkpoint, errors are Trio's, and a closed stream stays closed."""
    stream = StdioStream(*ends())
    assert isinstance(stream, trio.abc.HalfCloseableStream)
    with trio.testing.assert_checkpoints():
        await stream.send_all(b"x")
    with trio.testing.assert_checkpoints():
        assert await stream.receive_some() == b"x"
    with trio.testing.assert_checkpoints():
        await stream.wait_send_all_might_not_block()
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="max_bytes"):
            await stream.receive_some(wrong)
    with trio.testing.assert_checkpoints():
        await stream.send_eof()
    await stream.send_eof()
    await fails_with(trio.ClosedResourceError, lambda: stream.send_all(b"x"))
    await fails_with(trio.ClosedResourceError, lambda: stream.send_all(b""))
    await fails_with(trio.ClosedResourceError, stream.wait_send_all_might_not_block)
    with pytest.raises(trio.ClosedResourceError):
        stream.send_nowait(b"x")
    assert await stream.receive_some() == b""
    with trio.testing.assert_checkpoints():
        await stream.aclose()
    await stream.aclose()
    stream.close()
    await fails_with(trio.ClosedResourceError, stream.receive_some)
    await fails_with(trio.ClosedResourceError, stream.send_eof)


@both
@run_by(trio.run)
async def test_concurrent_use_raises_busy_resource_error(ends: Ends) -> None:
    stream = StdioStream(*ends())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.receive_some)
        await trio.testing.wait_all_tasks_blocked()
        await fails_with(trio.BusyResourceError, stream.receive_some)
        await stream.send_all(b"x")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, BIG)
        await trio.testing.wait_all_tasks_blocked()
        await fails_with(trio.BusyResourceError, lambda: stream.send_all(b"x"))
        await fails_with(trio.BusyResourceError, stream.send_eof)
        await fails_with(trio.BusyResourceError, stream.wait_send_all_might_not_block)
        with pytest.raises(trio.BusyResourceError):
            stream.send_nowait(b"x")
        left = len(BIG)
        while left:
            left -= len(await stream.receive_some())
    stream.close()


@both
@run_by(trio.run)
async def test_closing_wakes_the_tasks_that_wait(ends: Ends) -> None:
    stream = StdioStream(*ends())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails_with, trio.ClosedResourceError, lambda: stream.send_all(BIG))
        await trio.testing.wait_all_tasks_blocked()
        stream.close()
    stream = StdioStream(*ends())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails_with, trio.ClosedResourceError, stream.receive_some)
        await trio.testing.wait_all_tasks_blocked()
        stream.close()


@both
@run_by(trio.run)
async def test_a_cancelled_receive_loses_nothing(ends: Ends) -> None:
    stream = StdioStream(*ends())
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.receive_some)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    await stream.send_all(b"abc")
    with trio.CancelScope() as scope:
        scope.cancel()
        await stream.receive_some()
    assert scope.cancelled_caught
    assert await stream.receive_some(2) == b"ab"
    assert await stream.receive_some(2) == b"c"
    stream.close()


@both
@run_by(trio.run)
async def test_a_send_in_a_cancelled_scope_sends_nothing(ends: Ends) -> None:
    stream = StdioStream(*ends())
    with trio.CancelScope() as scope:
        scope.cancel()
        await stream.send_all(b"never")
    assert scope.cancelled_caught
    await stream.send_eof()
    assert await stream.receive_some() == b""
    stream.close()


@both
@run_by(trio.run)
async def test_send_without_a_reader_raises_broken_resource_error(ends: Ends) -> None:
    source, sink = ends()
    source.close()
    await fails_with(trio.BrokenResourceError, lambda: sink.send_all(b"x"))
    sink.close()


@run_by(trio.run)
async def test_send_nowait_returns_how_much_was_sent() -> None:
    source, sink = polled()
    stream = StdioStream(source, sink)
    sent = 0
    while (wrote := stream.send_nowait(BIG)) > 0:
        sent += wrote
    assert 4096 <= sent < len(BIG)
    while sent:
        sent -= len(await stream.receive_some())
    source.close()
    with pytest.raises(trio.BrokenResourceError):
        stream.send_nowait(b"x")
    stream.close()

    threads = StdioStream(*threaded())
    assert threads.send_nowait(b"x") == 0
    threads.close()


def test_short_read_is_followed_by_a_wait() -> None:
    reads: list[int] = []

    def read(fd: int, size: int) -> bytes:
        reads.append(size)
        return os.read(fd, size)

    async def main() -> None:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        source = PollReader(reading, read)
        os.write(writing, b"12345")
        assert await source.receive_some(4) == b"1234"
        assert await source.receive_some(4) == b"5"
        with trio.move_on_after(0) as scope:
            await source.receive_some(4)
        assert scope.cancelled_caught
        assert reads == [4, 4]
        os.write(writing, b"6")
        with trio.testing.assert_checkpoints():
            assert await source.receive_some(4) == b"6"
        os.close(writing)
        assert await source.receive_some(4) == await source.receive_some(4) == b""
        source.close()
        await fails_with(trio.ClosedResourceError, source.receive_some)

    trio.run(main)


@run_by(trio.run)
async def test_the_end_of_the_output_is_reported_once_and_only_where_a_peer_sees_it() -> None:
    told: list[str] = []
    source, sink = polled()
    stream = StdioStream(source, sink, on_eof=lambda: told.append("pipe"))
    await stream.send_eof()
    await stream.send_eof()
    stream.close()
    source, sink = polled()
    sink.ends_for_peer = False
    stream = StdioStream(source, sink, on_eof=lambda: told.append("file"))
    await stream.send_eof()
    stream.close()
    assert told == ["pipe"]


@run_by(trio.run)
async def test_an_input_can_be_handed_over_under_its_reader() -> None:
    source, sink = polled()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails_with, trio.ClosedResourceError, source.receive_some)
        await trio.testing.wait_all_tasks_blocked()
        heir = source.hand_over()
    await sink.send_all(b"the rest")
    assert await heir.receive_some() == b"the rest"
    heir.close()
    sink.close()


@run_by(trio.run)
async def test_send_eof_after_the_peer_left_raises_nothing() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()

    def refuse(fd: int) -> None:
        raise OSError(107, "not connected")

    sink = PollWriter(ours.detach(), shut_down=refuse)
    sink.send_eof()
    sink.send_eof()


def test_closing_after_the_run_does_nothing() -> None:
    async def main() -> StdioStream:
        return StdioStream(*polled())

    stream = trio.run(main)
    stream.close()


@run_by(trio.run)
async def test_a_cancelled_send_by_a_thread_is_finished_before_the_next() -> None:
    source, sink = threaded()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sink.send_all, BIG)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sink.send_all, b"next")
        received = bytearray()
        while len(received) < len(BIG) + 4:
            received += await source.receive_some()
    assert received == BIG + b"next"
    source.close()
    sink.close()


@run_by(trio.run)
async def test_error_of_the_thread_is_raised_in_the_reading_task() -> None:
    def refuse(fd: int, size: int) -> bytes:
        raise MemoryError("no room")

    reading, writing = os.pipe()
    source = ThreadReader(reading, refuse)
    await fails_with(MemoryError, source.receive_some)
    source.close()
    os.close(writing)


@run_by(trio.run)
async def test_descriptor_is_closed_when_its_blocking_call_returns() -> None:
    reading, writing = os.pipe()
    source = ThreadReader(reading)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails_with, trio.ClosedResourceError, source.receive_some)
        await trio.testing.wait_all_tasks_blocked()
        source.close()
    os.fstat(reading)
    os.close(writing)
    await trio.to_thread.run_sync(wait_until_closed, reading)


def test_a_call_that_outlives_the_run_closes_its_descriptor() -> None:
    reading, writing = os.pipe()

    async def main() -> None:
        source = ThreadReader(reading)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails_with, trio.ClosedResourceError, source.receive_some)
            await trio.testing.wait_all_tasks_blocked()
            source.close()

    trio.run(main)
    os.close(writing)

    wait_until_closed(reading)


def wait_until_closed(fd: int) -> None:
    last_moment = time.monotonic() + 10
    while is_open(fd):
        assert time.monotonic() < last_moment
        time.sleep(0.001)


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_attempts_to_read_before_waiting_double_their_pause_while_they_find_nothing() -> None:
    attempts: list[bool] = []

    def read(fd: int, size: int) -> bytes:
        try:
            data = os.read(fd, size)
        except BlockingIOError:
            attempts.append(False)
            raise
        attempts.append(True)
        return data

    async def main() -> None:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        source = PollReader(reading, read)
        async with trio.open_nursery() as nursery:
            # The first write is there at once; each other comes when the reader waits for the descriptor.
            for number in range(7):
                if number:
                    nursery.start_soon(write_when_blocked, writing)
                else:
                    os.write(writing, b"x")
                assert await source.receive_some() == b"x"
        # A hit ends the pauses.
        for _ in range(4):
            os.write(writing, b"x")
            assert await source.receive_some() == b"x"
        source.close()
        os.close(writing)

    async def write_when_blocked(writing: int) -> None:
        await trio.testing.wait_all_tasks_blocked()
        os.write(writing, b"x")

    trio.run(main)
    waited = [False, True]
    assert attempts == [True, *waited, True, *waited, *[True] * 7]
