"""Clients and servers of ``mcpio.asyncio`` on uvloop, another event loop behind asyncio's names."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest
import uvloop
from streams import Raw

from mcpio import Server
from mcpio.asyncio import open_streams, serving

server = Server("s")


@server.tool
def large(text: str, size: int) -> str:
    return text * size


def test_conversation_timeout_and_vanished_client() -> None:
    async def main() -> None:
        async with serving(server) as serve_one:
            with closing(await asyncio.start_server(serve_one, "127.0.0.1", 0)) as listening:
                place = listening.sockets[0].getsockname()
                await talk(*await asyncio.open_connection(*place))
                raw = Raw(await asyncio.open_connection(*place))
                await raw.shake_hands()
                raw.reset()
        assert server.sessions == ()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with open_streams(reader, writer) as client:
            for size in (1, 1_000_000):
                texts = [client.call_tool("large", {"text": "x", "size": size}) for _ in range(10)]
                assert {len(each.text) for each in await asyncio.gather(*texts)} == {size}
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await client.call_tool("large", {"text": "x", "size": 1})
            await client.discover()

    uvloop.run(main())
