"""Streams over sockets: how they end."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from runners import run_by
from streams import each_loop, run_in_real_time

from mcpio.asyncio._event_loop import SocketStream

__all__ = ["each_loop"]


@pytest.mark.usefixtures("each_loop")
@run_by(run_in_real_time)
async def test_stream_that_is_closed_can_be_cut() -> None:
    near, far = socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    made: Any = await asyncio.get_running_loop().create_connection(SocketStream, sock=near)
    stream: SocketStream = made[1]
    other, writer = await asyncio.open_connection(sock=far, limit=1 << 20)
    # It closes with output that is still to be written: asyncio then forgets its loop.
    sending = asyncio.ensure_future(stream.send_all(b"x" * 300_000))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(stream.aclose())
    assert len(await other.read(-1)) > 0
    await closing
    stream.cut()
    await asyncio.gather(sending, return_exceptions=True)
    writer.close()
    await writer.wait_closed()
