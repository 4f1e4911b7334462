"""The log of a relay: written beside the traffic, which never waits for it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from mcpio.cli.output import opened
from mcpio.trio._stdio import open_output

MOST_LINES: Final = 2000
"""The lines that wait for a slow reader of the log; further ones are left out, and counted."""

LAST_LINES: Final = 1.0
"""Seconds that the reader of the log has for the last lines."""


@asynccontextmanager
async def open_log(path: str | None) -> AsyncIterator[Callable[[str], None]]:
    """Async context manager that yields what writes a line to a file, or to standard error without a path.

    A host may capture standard error and not read it, so a full pipe delays nothing. Raises Failure if the file cannot
    be written.
    """
    send, receive = trio.open_memory_channel[str](MOST_LINES)
    left_out = 0

    def show(line: str) -> None:
        nonlocal left_out
        try:
            if left_out:
                send.send_nowait(f"--- {left_out} lines left out: the log is read too slowly")
                left_out = 0
            send.send_nowait(line)
        except trio.WouldBlock:
            left_out += 1
        except trio.BrokenResourceError:
            pass  # the log failed

    async def write(fd: int) -> None:
        with contextlib.suppress(trio.BrokenResourceError), receive:
            writer = open_output(fd)
            async for line in receive:
                lines = [line]
                with contextlib.suppress(trio.WouldBlock, trio.EndOfChannel):
                    while True:
                        lines.append(receive.receive_nowait())
                await writer.send_all("".join(f"{each}\n" for each in lines).encode(errors="backslashreplace"))
        finished.set()

    finished = trio.Event()
    with contextlib.ExitStack() as stack:
        try:
            fd = os.dup(2) if path is None else stack.enter_context(opened(path, "a")).fileno()
        except OSError:
            fd = os.open(os.devnull, os.O_WRONLY)  # there is no standard error
        if path is None:
            stack.callback(os.close, fd)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, fd)
            try:
                yield show
            finally:
                send.close()
                with trio.move_on_after(LAST_LINES, shield=True):
                    await finished.wait()
                nursery.cancel_scope.cancel()
