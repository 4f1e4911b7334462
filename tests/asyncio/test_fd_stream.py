"""Descriptors whose calls block: they are closed once no thread uses them, since their numbers may be reused then."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest
from disks import filling_disk

from mcpio._drivers.stdio import Access, InputFile, OutputFile
from mcpio.asyncio._stdio import FdStream

SOURCE, SINK = 1001, 1002


def test_descriptor_in_use_by_a_thread_is_closed_when_that_has_ended() -> None:
    release, closed = threading.Event(), list[int]()
    is_reading, is_writing, are_closed = threading.Event(), threading.Event(), threading.Event()

    def close(fd: int) -> None:
        closed.append(fd)
        if len(closed) == 2:
            are_closed.set()

    def read(fd: int, size: int) -> bytes:
        is_reading.set()
        assert release.wait(10)
        return b""

    def write(fd: int, data: bytes) -> int:
        is_writing.set()
        assert release.wait(10)
        assert SINK not in closed
        return 1  # so that it is called again

    async def main() -> None:
        source = InputFile(SOURCE, Access.THREAD, read, close)
        sink = OutputFile(SINK, Access.THREAD, write, close=close)
        stream = FdStream(source, sink, on_eof=lambda: None)
        tasks = [asyncio.create_task(stream.receive_some()), asyncio.create_task(stream.send_all(b"text"))]
        for begun in (is_reading, is_writing):
            assert await asyncio.to_thread(begun.wait, 10)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await stream.aclose()
        assert closed == []
        release.set()
        assert await asyncio.to_thread(are_closed.wait, 10)
        assert sorted(closed) == [SOURCE, SINK]

    asyncio.run(main())


def test_descriptor_that_no_thread_uses_is_closed_at_once() -> None:
    closed: list[int] = []

    async def main() -> None:
        source = InputFile(SOURCE, Access.THREAD, lambda fd, size: b"", closed.append)
        sink = OutputFile(SINK, Access.THREAD, lambda fd, data: len(data), close=closed.append)
        stream = FdStream(source, sink, on_eof=lambda: None)
        assert await stream.receive_some() == b""
        await stream.send_all(b"text")
        await stream.aclose()
        await stream.aclose()
        assert sorted(closed) == [SOURCE, SINK]

    asyncio.run(main())


def test_file_that_takes_a_part_of_a_write_is_written_again_without_a_wait(tmp_path: Path) -> None:
    async def main() -> None:
        reading = os.open(path, os.O_RDONLY | os.O_CREAT)
        file = OutputFile(os.open(path, os.O_WRONLY), Access.READY, filling_disk(5))
        stream = FdStream(InputFile(reading, Access.READY), file, on_eof=lambda: None)
        await stream.send_all(b"abcd")
        with pytest.raises(OSError, match="No space left on device"):
            await stream.send_all(b"efgh")
        await stream.aclose()

    path = tmp_path / "output"
    asyncio.run(main())
    assert path.read_bytes() == b"abcde"
