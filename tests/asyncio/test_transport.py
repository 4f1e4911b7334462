"""Lines on the streams of asyncio: faults of a transport, and what a transport takes at once."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

import pytest
from certificates import serving_as, trusting
from runners import run_by
from streams import joined, run, run_in_real_time, served

from mcpio import CloseReason, ConnectionLost, Server
from mcpio.asyncio import connect, open_streams, serving

server = Server("s")


@server.tool
def large(text: str, size: int) -> str:
    return text * size


@pytest.mark.parametrize("error", [ValueError("a fault"), ConnectionResetError("reset")])
def test_a_transport_that_raises_is_a_lost_connection_and_faults_are_logged(
    error: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        near, far = await joined()
        async with served(server, far):
            client = await connect(*near, era="handshake")
            transport: Any = near[1].transport
            monkeypatch.setattr(transport, "write", raising)
            with pytest.raises(ConnectionLost) as caught:
                await client.ping()
            assert caught.value.__cause__ is error
            assert client.ended is not None
            assert client.ended.reason is CloseReason.LOST
            await client.aclose()

    def raising(_: bytes) -> None:
        raise error

    run(main)
    expected = ["the transport failed"] if isinstance(error, ValueError) else []
    assert [record.getMessage() for record in caplog.records] == expected


@run_by(run)
async def test_a_line_of_many_pieces_arrives() -> None:
    near, far = await joined(narrow=True)
    async with served(server, far), open_streams(*near) as client:
        text = "ä€" * 100_000
        assert (await client.call_tool("large", {"text": text, "size": 2})).text == text * 2


def test_tls() -> None:
    here, there = serving_as("localhost"), trusting()

    async def main() -> None:
        async with serving(server) as serve_one:
            with closing(await asyncio.start_server(serve_one, "localhost", 0, ssl=here)) as listening:
                port = listening.sockets[0].getsockname()[1]
                streams = await asyncio.open_connection("localhost", port, ssl=there)
                async with open_streams(*streams) as client:
                    assert len((await client.call_tool("large", {"text": "x", "size": 1_000_000})).text) == 1_000_000

    run_in_real_time(main)
