"""Conversations on asyncio over two functions that carry messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from runners import run_by
from streams import run

from mcpio import Client, ConnectFailed, ConnectionLost, Server
from mcpio.asyncio import connect_channel, open_channel, serve_channel

server = Server("s")


@server.tool
def echo(text: str) -> str:
    return text


@server.tool
async def never_ends() -> None:
    await asyncio.sleep(1e6)


class End:
    """One end of a channel, over queues."""

    def __init__(self, received: asyncio.Queue[str | None], sent: asyncio.Queue[str | None]) -> None:
        self.receive = received.get
        self.send = sent.put
        self.closed = 0
        self._sent = sent

    async def close(self) -> None:
        self.closed += 1
        await self._sent.put(None)


def ends() -> tuple[End, End]:
    there: asyncio.Queue[str | None] = asyncio.Queue()
    back: asyncio.Queue[str | None] = asyncio.Queue()
    return End(back, there), End(there, back)


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[tuple[End, End]]:
    near, far = ends()
    task = asyncio.create_task(serve_channel(server, far.receive, far.send, close=far.close))
    yield near, far
    await task


@run_by(run)
async def test_client_over_a_channel_calls_tools() -> None:
    async with served() as (near, far), open_channel(near.receive, near.send, close=near.close) as client:
        calls = [client.call_tool("echo", {"text": str(number)}) for number in range(40)]
        assert [result.text for result in await asyncio.gather(*calls)] == [str(number) for number in range(40)]
    assert (near.closed, far.closed) == (1, 1)


@run_by(run)
async def test_connected_client_works_outside_a_block() -> None:
    async with served() as (near, _):
        client: Client = await asyncio.create_task(
            connect_channel(near.receive, near.send, close=near.close, era="handshake")
        )
        await client.ping()
        await asyncio.create_task(client.aclose())


@run_by(run)
async def test_the_end_of_the_channel_is_the_end_of_the_conversation() -> None:
    async with served() as (near, far):
        client = await connect_channel(near.receive, near.send, close=near.close)
        call = asyncio.create_task(client.call_tool("never_ends"))
        await asyncio.sleep(1)
        await far.close()
        with pytest.raises(ConnectionLost):
            await call
        await client.aclose()


def test_a_channel_that_breaks_is_reported() -> None:
    async def receive() -> str | None:
        raise OSError("no such port")

    async def send(_: str) -> None:
        pass

    async def main() -> None:
        with pytest.raises(ConnectFailed, match="the channel broke"):
            await connect_channel(receive, send)

    run(main)


@pytest.mark.parametrize(("receive", "send"), [(None, print), (print, 3)])
@run_by(run)
async def test_argument_that_is_not_a_function_raises(receive: Any, send: Any) -> None:
    with pytest.raises(TypeError, match=r" must be a function of \(.*\), not"):
        await serve_channel(server, receive, send)
    with pytest.raises(TypeError, match=r" must be a function of \(.*\), not"):
        async with open_channel(receive, send):
            pass


def test_a_message_of_another_kind_ends_the_conversation(caplog: pytest.LogCaptureFixture) -> None:
    async def receive() -> Any:
        return 3

    async def send(_: str) -> None:
        pass

    async def main() -> None:
        with pytest.raises(ConnectFailed):
            await connect_channel(receive, send)

    run(main)
    assert "a channel's messages must be str or bytes, not int" in caplog.text


@pytest.mark.parametrize("answer", [OSError("closed"), None])
@run_by(run)
async def test_cancellation_that_a_channel_answers_otherwise_ends_the_session(answer: OSError | None) -> None:
    async with served() as (near, far):

        async def receive() -> str | None:
            try:
                return await near.receive()
            except asyncio.CancelledError:
                if answer is not None:
                    raise answer from None
                return '{"jsonrpc": "2.0", "method": "notifications/late"}'

        async with asyncio.timeout(10), open_channel(receive, near.send, close=near.close) as client:
            assert (await client.call_tool("echo", {"text": "x"})).text == "x"
        await far.close()
