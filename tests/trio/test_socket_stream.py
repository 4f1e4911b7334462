"""The quick stream over a socket keeps to what Trio promises of streams."""

from __future__ import annotations

import socket

import pytest
import trio
import trio.testing
from runners import run_by

from mcpio.trio._descriptors import QuickSocketStream


async def pair() -> tuple[QuickSocketStream, QuickSocketStream]:
    left, right = trio.socket.socketpair()
    return QuickSocketStream(trio.SocketStream(left)), QuickSocketStream(trio.SocketStream(right))


async def clogged_pair() -> tuple[QuickSocketStream, QuickSocketStream]:
    left, right = await pair()
    for stream in (left, right):
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        while stream.send_nowait(b"x" * 65536):
            pass
    return left, right


def test_socket_stream_passes_trios_stream_checks() -> None:
    trio.run(trio.testing.check_half_closeable_stream, pair, clogged_pair)


@run_by(trio.run)
async def test_send_nowait_without_room_sends_nothing_and_raises_trio_errors() -> None:
    left, right = await clogged_pair()
    assert left.send_nowait(b"more") == 0
    await right.aclose()
    with pytest.raises(trio.BrokenResourceError):
        left.send_nowait(b"more")
    await left.aclose()
    with pytest.raises(trio.ClosedResourceError):
        left.send_nowait(b"more")
