"""Clients over sockets on asyncio: tasks and groups, several event loops, and servers on Trio in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from carriers import CARRIERS, added, make_server
from runners import run_by
from streams import each_loop, run_in_real_time
from threaded import on_trio

from mcpio import Client, ConnectFailed, ConnectionLost, NoBackChannel
from mcpio.asyncio import connect_http, connect_tcp, connect_websocket, open_http, open_tcp, open_unix, open_websocket
from mcpio.backoff import Backoff
from mcpio.errors import UnexpectedResponse

__all__ = ["each_loop"]

pytestmark = pytest.mark.usefixtures("each_loop")


class Reached:
    """A server on Trio in a thread, and what connects to it and opens a client of it."""

    def __init__(self, kind: str, at: Any, directory: Path) -> None:
        self.connect: Callable[..., Any]
        self.open: Callable[..., AbstractAsyncContextManager[Client]]
        if kind == "tcp":
            self.connect, self.open = partial(connect_tcp, at.host, at.port), partial(open_tcp, at.host, at.port)
        elif kind == "unix":
            self.open = partial(open_unix, directory / "s")
        elif kind == "http":
            self.connect, self.open = partial(connect_http, at.url), partial(open_http, at.url)
        else:
            self.connect, self.open = partial(connect_websocket, at.url), partial(open_websocket, at.url)


@pytest.fixture
def reached(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reached]:
    kind = request.param
    carrier: Any = CARRIERS[kind]
    with on_trio(partial(carrier.serve, make_server(), **carrier.where(tmp_path))) as at:
        yield Reached(kind, at, tmp_path)


def over(*kinds: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("reached", kinds, indirect=True)


@over("tcp", "http", "websocket")
@run_by(run_in_real_time)
async def test_client_can_be_closed_from_another_task(reached: Reached) -> None:
    client = await asyncio.create_task(reached.connect())
    assert await added(client, 1, 1) == 2
    client.close()
    await asyncio.create_task(client.driver.wait_closed())
    with pytest.raises(NoBackChannel):
        await client.call_tool("wait")


@over("tcp", "http", "websocket")
@run_by(run_in_real_time)
async def test_group_that_fails_ends_its_clients(reached: Reached) -> None:
    made: list[Client] = []

    async def fail() -> None:
        async with asyncio.TaskGroup() as group:
            made.append(await reached.connect(group=group))
            assert await added(made[0], 1, 1) == 2
            raise KeyError

    with pytest.raises(ExceptionGroup):
        await fail()
    assert made[0].ended is not None


@over("tcp", "unix", "websocket", "ws+unix")
@run_by(run_in_real_time)
async def test_lost_session_is_reopened(reached: Reached) -> None:
    lost: list[int] = []
    policy = Backoff(base=0.01)
    async with reached.open(reconnect=policy, on_session_lost=lambda: lost.append(1)) as client:
        driver: Any = client.driver
        driver._adapter._inner.stream.cut()
        for _ in range(200):
            try:
                assert await added(client, 2, 2) == 4
                break
            except (ConnectionLost, NoBackChannel):
                await asyncio.sleep(0.01)
        assert lost == [1]


@over("http")
def test_two_loops_in_one_process_have_their_own_clients(reached: Reached) -> None:
    async def main() -> None:
        async with reached.open() as client:
            for number in range(20):
                assert await added(client, number, number) == 2 * number

    other = threading.Thread(target=run_in_real_time, args=(main,))
    other.start()
    run_in_real_time(main)
    other.join()


@run_by(run_in_real_time)
async def test_refused_handshake_names_the_status() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with closing(writer):
            writer.write(b"HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nbusy")

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(ConnectFailed) as caught:
            await connect_websocket(f"ws://127.0.0.1:{port}/")
    assert isinstance(caught.value.__cause__, UnexpectedResponse)
