"""Streams of asyncio whose ends are both in the test, a clock that jumps, and a peer by hand."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import pytest
from asgiwire import OnAsyncio
from loops import collect_garbage
from peers import RawEnd

from mcpio.app.client import Client
from mcpio.app.server import Server
from mcpio.app.session import Session
from mcpio.asyncio import open_streams, serve

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Main: TypeAlias = Callable[[], Awaitable[None]]


new_event_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
"""What makes the event loop of ``run_in_real_time``; asyncio's own by default."""


@pytest.fixture(params=["asyncio", pytest.param("uvloop", marks=pytest.mark.needs("uvloop"))])
def each_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test on asyncio's own event loop, and on uvloop."""
    if request.param == "uvloop":
        monkeypatch.setattr("streams.new_event_loop", importlib.import_module("uvloop").new_event_loop)


def run(main: Main) -> None:
    """Run in virtual time. Nothing may be left: no task, and no fault that only the event loop heard of."""
    OnAsyncio().run(lambda: _checked(main))


def run_in_real_time(main: Main) -> None:
    """Run where threads, processes or the network take their time."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_checked(main))


async def _checked(main: Main) -> None:
    faults: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    await main()
    for _ in range(4):
        # Whoever waits for the end of a session hears of it just before its task is over.
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, left
    collect_garbage()
    assert not faults, faults


async def joined(*, narrow: bool = False) -> tuple[Streams, Streams]:
    """Return two ends, with little room between them if they are to be narrow."""
    ends = socket.socketpair()
    if narrow:
        for end in ends:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    near, far = [await asyncio.open_connection(sock=end) for end in ends]
    return near, far


@contextlib.asynccontextmanager
async def served(server: Server, streams: Streams, **options: Any) -> AsyncIterator[asyncio.Task[None]]:
    """Serve one client in a task, which is over, or is cancelled, when the block ends."""
    task = asyncio.ensure_future(serve(server, *streams, **options))
    try:
        yield task
    finally:
        if not task.done():
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def conversation(server: Server, **options: Any) -> AsyncIterator[Client]:
    """Give a client of a server."""
    near, far = await joined()
    async with served(server, far), open_streams(*near, **options) as client:
        yield client


class Raw(RawEnd):
    """One end of a stream of asyncio, by hand."""

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def reset(self) -> None:
        """Break the connection. TCP tells the other end by a reset, a socket pair by an error where data lay unread."""
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def raw_client(server: Server, *, narrow: bool = False) -> AsyncIterator[tuple[Raw, Session]]:
    """Serve a client by hand that has shaken hands."""
    near, far = await joined(narrow=narrow)
    raw = Raw(near)
    async with served(server, far):
        await raw.shake_hands()
        (session,) = server.sessions
        yield raw, session
    await raw.close()


@contextlib.asynccontextmanager
async def raw_server(*, narrow: bool = False, **options: Any) -> AsyncIterator[tuple[Raw, Client]]:
    """Give a client whose server is a test."""
    near, far = await joined(narrow=narrow)
    raw = Raw(far)
    greeting = asyncio.ensure_future(raw.greet())
    try:
        async with open_streams(*near, **{"era": "handshake", **options}) as client:
            await greeting
            yield raw, client
    finally:
        await raw.close()


async def settle() -> None:
    """Let everything happen that happens by itself; in virtual time only."""
    await asyncio.sleep(1e-9)
