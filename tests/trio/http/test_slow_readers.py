"""A client that reads slowly but steadily gets its whole answer, however long that takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from certificates import serving_as, trusting
from runners import run_by
from triowire import RawHttp, in_virtual_time, memory_site

from mcpio import Server
from mcpio._drivers.http_parsers import ParserName
from mcpio.trio import HttpTimeouts, SocketPeer

SIZE = 4_000_000
"""Bytes of the answer."""

PIECE = 65536
"""Bytes that the client reads at once. Until then, the server's next write waits."""


def make_server() -> Server:
    server = Server("here", "1.0")

    @server.tool
    def much() -> str:
        return "*" * SIZE

    return server


async def whose(head: object, peer: SocketPeer) -> str:
    await trio.sleep(20)
    return "hers"


async def at_once(client: RawHttp) -> None:
    """Ask in one piece, as the first request of the connection."""
    await client.say(client.posted(client.call("much")))


async def in_pieces(client: RawHttp) -> None:
    """Let the body wait for a while."""
    request = client.posted(client.call("much"))
    await client.say(request[:-10])
    await trio.sleep(20)
    await client.say(request[-10:])


async def once_more(client: RawHttp) -> None:
    """Ask as the second request of the connection, after a while."""
    assert (await client.post({"jsonrpc": "2.0", "id": 0, "method": "ping"})).status == 200
    await trio.sleep(50)
    await client.say(client.posted(client.call("much")))


class Narrow(trio.abc.SendStream):
    """The end of a lockstep stream that takes a piece at a time."""

    def __init__(self, end: trio.abc.SendStream) -> None:
        self.end = end

    async def send_all(self, data: Any) -> None:
        for start in range(0, len(data), PIECE):
            await self.end.send_all(data[start : start + PIECE])

    async def wait_send_all_might_not_block(self) -> None:
        await self.end.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self.end.aclose()


def stalling() -> tuple[trio.abc.Stream, trio.abc.Stream]:
    """Return two ends of a connection on which the second one waits until the first has read what it says."""
    there, back = trio.testing.memory_stream_one_way_pair(), trio.testing.lockstep_stream_one_way_pair()
    return trio.StapledStream(there[0], back[1]), trio.StapledStream(Narrow(back[0]), there[1])


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("parser", ["h11", "httptools"])
@pytest.mark.parametrize("principal", [None, whose])
@pytest.mark.parametrize("ask", [at_once, in_pieces, once_more])
@run_by(in_virtual_time)
async def test_slow_reader_gets_its_whole_answer(
    ask: Callable[[RawHttp], Awaitable[None]], principal: Any, parser: ParserName, secured: bool
) -> None:
    context = serving_as("localhost") if secured else None
    site: Any = memory_site(make_server(), parser=parser, ssl_context=context, principal=principal)
    async with site as served:
        opening = RawHttp(served.listener.connect())
        if secured:
            opening = RawHttp(tls(opening.stream))
        await opening.initialize()
        stream = served.listener.connect(stalling)
        client = RawHttp(tls(stream) if secured else stream)
        client.session = opening.session
        await ask(client)
        began, heard = trio.current_time(), 0
        while heard < SIZE:
            await trio.sleep(2)
            data = await client.stream.receive_some(PIECE)
            assert data, f"the server closed the connection after {heard} bytes"
            heard += len(data)
        assert trio.current_time() - began > 120


def tls(stream: trio.abc.Stream) -> trio.SSLStream[Any]:
    return trio.SSLStream(stream, trusting(), server_hostname="localhost", https_compatible=True)


@pytest.mark.parametrize("parser", ["h11", "httptools"])
@pytest.mark.parametrize(("wait", "is_cut_off"), [(29.0, False), (31.0, True)])
@run_by(in_virtual_time)
async def test_reader_below_the_minimum_rate_is_disconnected(parser: ParserName, wait: float, is_cut_off: bool) -> None:
    """A piece has 30 s, and a second for each so many bytes."""
    timeouts = HttpTimeouts(rate=1e9)
    async with memory_site(make_server(), parser=parser, timeouts=timeouts) as site:
        opening = site.connect()
        await opening.initialize()
        client = site.connect(stalling)
        client.session = opening.session
        await at_once(client)
        await trio.sleep(wait)
        assert (len(await client.rest()) < SIZE) is is_cut_off
        site.scope.cancel()


@pytest.mark.parametrize("parser", ["h11", "httptools"])
@run_by(in_virtual_time)
async def test_timed_out_request_gets_one_answer(parser: ParserName) -> None:
    async with memory_site(make_server(), parser=parser) as site:
        client = site.connect()
        await client.say(b"GET /mcp HTTP/1.1\r\n")
        await trio.sleep(9.5)
        await client.say(b"\0\0\0: \0\r\n\r\n" * 9)
        assert (await client.rest()).count(b"HTTP/1.1 400 ") == 1
        site.scope.cancel()
