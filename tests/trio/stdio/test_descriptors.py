"""Streams over descriptors of every kind, and what they must never do: change a flag of a file that others share."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import socket
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
import trio.testing
from disks import filling_disk

from mcpio._drivers import stdio as files
from mcpio.trio._descriptors import (
    FdReader,
    PollReader,
    PollWriter,
    StdioStream,
    ThreadReader,
    ThreadWriter,
    open_input,
    open_output,
)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="descriptors of POSIX")

BIG = bytes(range(256)) * 4096


@contextmanager
def fds(*numbers: int) -> Iterator[None]:
    """Close the descriptors that are still open at the end."""
    try:
        yield
    finally:
        for fd in numbers:
            with suppress(OSError):
                os.close(fd)


def flags(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_GETFL)


def pipe_pair() -> tuple[int, int]:
    return os.pipe()


def socket_pair() -> tuple[int, int]:
    left, right = socket.socketpair()
    return left.detach(), right.detach()


def terminal_pair() -> tuple[int, int]:
    """Give a terminal to read from, and what writes to it."""
    control, terminal = pty.openpty()
    tty.setraw(terminal)
    return terminal, control


PAIRS = {"pipe": pipe_pair, "socket": socket_pair, "terminal": terminal_pair}
each_pair = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())


async def receive_exactly(source: FdReader, size: int) -> bytes:
    received = b""
    while len(received) < size:
        received += await source.receive_some()
    return received


@each_pair
def test_input_waits_without_touching_the_shared_flags(pair: Callable[[], tuple[int, int]]) -> None:
    async def main() -> None:
        reading, writing = pair()
        with fds(reading, writing):
            before = flags(reading)
            source = open_input(reading)
            assert isinstance(source, PollReader)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(expect, source, b"hello")
                await trio.testing.wait_all_tasks_blocked()
                assert flags(reading) == before
                os.write(writing, b"hello")
            os.write(writing, b"again")
            assert await source.receive_some(3) == b"aga"
            assert await source.receive_some(3) == b"in"
            source.close()
            assert flags(reading) == before
            os.write(writing, b"still open")
            assert os.read(reading, 100) == b"still open"

    async def expect(source: FdReader, data: bytes) -> None:
        assert await source.receive_some() == data

    trio.run(main)


@each_pair
def test_output_waits_without_touching_the_shared_flags(pair: Callable[[], tuple[int, int]]) -> None:
    async def main() -> None:
        first, second = pair()
        writing, reading = (second, first) if pair is pipe_pair else (first, second)
        with fds(reading, writing):
            before = flags(writing)
            sink = open_output(writing)
            assert isinstance(sink, PollWriter)
            received = bytearray()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(sink.send_all, BIG)
                await trio.testing.wait_all_tasks_blocked()
                assert flags(writing) == before
                while len(received) < len(BIG):
                    received += await trio.to_thread.run_sync(os.read, reading, 65536)
            assert received == BIG
            await sink.wait_send_all_might_not_block()
            assert sink.send_nowait(b"tail") == 4
            assert os.read(reading, 100) == b"tail"
            assert flags(writing) == before
            sink.close()
            os.write(writing, b"still open")
            assert os.read(reading, 100) == b"still open"

    trio.run(main)


def test_end_of_a_pipe_is_seen_by_both_sides() -> None:
    async def main() -> None:
        reading, writing = os.pipe()
        source, sink = open_input(reading), open_output(writing)
        os.close(reading)
        os.close(writing)
        await sink.send_all(b"last")
        sink.send_eof()
        assert await receive_exactly(source, 4) == b"last"
        assert await source.receive_some() == b""
        assert await source.receive_some() == b""
        source.close()

    trio.run(main)


def test_end_of_a_socket_is_seen_though_the_descriptor_stays_open() -> None:
    async def main() -> None:
        ours, theirs = socket_pair()
        with fds(ours, theirs):
            sink, source = open_output(ours), open_input(theirs)
            await sink.send_all(b"last")
            sink.send_eof()
            assert await receive_exactly(source, 4) == b"last"
            assert await source.receive_some() == b""
            source.close()

    trio.run(main)


def test_hung_up_terminal_is_the_end_of_input() -> None:
    async def main() -> None:
        terminal, control = terminal_pair()
        with fds(terminal):
            source = open_input(terminal)
            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def expect_the_end() -> None:
                    assert await source.receive_some() == b""

                await trio.testing.wait_all_tasks_blocked()
                os.close(control)
            source.close()

    trio.run(main)


def test_terminal_read_error_is_the_end_of_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(number: int) -> Callable[[int, int], bytes]:
        def read(fd: int, size: int) -> bytes:
            raise OSError(number, "refused")

        return read

    with monkeypatch.context() as patch:
        patch.setattr(os, "read", refuse(errno.EIO))
        assert files._read_terminal(0, 10) == b""
        patch.setattr(os, "read", refuse(errno.EACCES))
        with pytest.raises(OSError, match="refused"):
            files._read_terminal(0, 10)


def test_a_file_is_read_and_written_at_the_shared_position(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "in").write_bytes(b"skipped:" + BIG)
        reading = os.open(tmp_path / "in", os.O_RDONLY)
        writing = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
        with fds(reading, writing):
            os.read(reading, 8)
            os.write(writing, b"before,")
            source, sink = open_input(reading), open_output(writing)
            assert await receive_exactly(source, len(BIG)) == BIG
            assert await source.receive_some() == b""
            await sink.send_all(BIG)
            await sink.wait_send_all_might_not_block()
            sink.send_eof()
            os.write(writing, b",after")
            source.close()
        assert (tmp_path / "out").read_bytes() == b"before," + BIG + b",after"
        assert not sink.ends_for_peer

    trio.run(main)


def test_a_file_opened_for_appending_is_appended_to(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "log"
        path.write_bytes(b"old,")
        writing = os.open(path, os.O_WRONLY | os.O_APPEND)
        with fds(writing):
            sink = open_output(writing)
            await sink.send_all(b"new")
            sink.close()
        assert path.read_bytes() == b"old,new"

    trio.run(main)


def test_null_device_reads_as_empty_and_accepts_all_output() -> None:
    async def main() -> None:
        null = os.open(os.devnull, os.O_RDWR)
        with fds(null):
            source, sink = open_input(null), open_output(null)
            assert isinstance(source, PollReader)
            assert await source.receive_some() == b""
            await sink.send_all(BIG)
            source.close()
            sink.close()

    trio.run(main)


@pytest.mark.parametrize("kind", ["no /proc", "another user's"])
def test_descriptor_that_cannot_be_reopened_uses_a_thread(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> int:
        raise PermissionError(13, "Permission denied")

    if kind == "no /proc":
        monkeypatch.setattr(files, "sys", SimpleNamespace(platform="darwin"))
    else:
        monkeypatch.setattr(os, "open", refuse)

    async def main() -> None:
        reading, writing = os.pipe()
        with fds(reading, writing):
            before = flags(reading), flags(writing)
            source, sink = open_input(reading), open_output(writing)
            assert isinstance(source, ThreadReader)
            assert isinstance(sink, ThreadWriter)
            await converse(StdioStream(source, sink))
            assert (flags(reading), flags(writing)) == before

    async def converse(stream: StdioStream) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, BIG)
            received = b""
            while len(received) < len(BIG):
                received += await stream.receive_some()
        assert received == BIG
        stream.close()

    trio.run(main)


def test_terminal_without_proc_is_opened_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        terminal, control = terminal_pair()
        with fds(terminal, control):
            monkeypatch.setattr(files, "sys", SimpleNamespace(platform="darwin"))
            before = flags(terminal)
            source = open_input(terminal)
            assert isinstance(source, PollReader)
            os.write(control, b"typed")
            assert await receive_exactly(source, 5) == b"typed"
            assert flags(terminal) == before
            source.close()

    trio.run(main)


def test_other_kinds_of_files_are_read_in_a_thread() -> None:
    async def main() -> None:
        zero = os.open("/dev/zero", os.O_RDONLY)
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with fds(zero), left, right:
            source = open_input(zero)
            assert isinstance(source, ThreadReader)
            assert await source.receive_some(5) == bytes(5)
            source.close()
            packets = open_input(left.fileno())
            assert isinstance(packets, ThreadReader)
            right.send(b"packet")
            assert await packets.receive_some() == b"packet"
            packets.close()

    trio.run(main)


def test_a_default_timeout_for_sockets_changes_nothing() -> None:
    async def main() -> None:
        ours, theirs = socket_pair()
        with fds(ours, theirs):
            before = flags(ours)
            socket.setdefaulttimeout(5)
            try:
                source = open_input(ours)
            finally:
                socket.setdefaulttimeout(None)
            assert flags(ours) == before
            with trio.move_on_after(0.01) as scope:
                await source.receive_some()
            assert scope.cancelled_caught
            os.write(theirs, b"x")
            assert await source.receive_some() == b"x"
            source.close()

    trio.run(main)


def test_a_closed_descriptor_is_refused() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    os.close(writing)
    with pytest.raises(OSError, match="Bad file descriptor"):
        open_input(reading)


def test_file_that_takes_a_part_of_a_write_is_written_again_without_a_wait(tmp_path: Path) -> None:
    async def main() -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT)
        with fds(fd):
            sink = PollWriter(fd, filling_disk(5), pollable=False)
            await sink.send_all(b"abcd")
            with pytest.raises(trio.BrokenResourceError, match="No space left on device"):
                await sink.send_all(b"efgh")
            sink.close()

    path = tmp_path / "output"
    trio.run(main)
    assert path.read_bytes() == b"abcde"
