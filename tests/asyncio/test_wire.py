"""Lines on the streams of asyncio: faults of a transport, and what a transport takes at once."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import closing
from typing import Any

import pytest
import trustme
from streams import Main, Raw, joined, run, run_in_real_time, served

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
            client = await connect(*near)
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


def test_a_line_of_many_pieces_arrives() -> None:
    async def main() -> None:
        near, far = await joined(narrow=True)
        async with served(server, far), open_streams(*near) as client:
            text = "ä€" * 100_000
            assert (await client.call_tool("large", {"text": text, "size": 2})).text == text * 2

    run(main)


def test_tls() -> None:
    authority = trustme.CA()
    here, there = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(here)
    authority.configure_trust(there)

    async def main() -> None:
        async with serving(server) as serve_one:
            with closing(await asyncio.start_server(serve_one, "localhost", 0, ssl=here)) as listening:
                port = listening.sockets[0].getsockname()[1]
                streams = await asyncio.open_connection("localhost", port, ssl=there)
                async with open_streams(*streams) as client:
                    assert len((await client.call_tool("large", {"text": "x", "size": 1_000_000})).text) == 1_000_000

    run_in_real_time(main)


def test_other_event_loops_for_asyncio() -> None:
    uvloop = pytest.importorskip("uvloop")

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
                    await client.ping()
            await client.ping()

    checked: Main = main
    uvloop.run(checked())
