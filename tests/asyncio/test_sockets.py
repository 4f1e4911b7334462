"""Clients over TCP, Unix sockets and WebSocket on asyncio: real sockets, and servers on Trio in a thread."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from carriers import CARRIERS, make_server
from certificates import serving_as, trusting
from streams import each_loop, run_in_real_time
from threaded import on_trio

from mcpio import Client, ConnectFailed, ConnectionLost, NoBackChannel, RequestTimeout
from mcpio.asyncio import connect_tcp, connect_unix, connect_websocket, open_tcp, open_unix, open_websocket
from mcpio.backoff import Backoff
from mcpio.errors import UnexpectedResponse
from mcpio.trio import serve_tcp, serve_websocket
from mcpio.websocket import WebSocketOptions

Open = Callable[..., AbstractAsyncContextManager[Client]]

KINDS = ("tcp", "unix", "websocket", "ws+unix")

__all__ = ["each_loop"]

pytestmark = pytest.mark.usefixtures("each_loop")


def opening(kind: str, listening: Any, directory: Path) -> Open:
    """Return what opens a client of a server of ``CARRIERS``."""
    if kind == "tcp":
        return partial(open_tcp, listening.host, listening.port)
    if kind == "unix":
        return partial(open_unix, directory / "s")
    return partial(open_websocket, listening.url)


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    carrier: Any = CARRIERS[request.param]
    with on_trio(partial(carrier.serve, make_server(), **carrier.where(tmp_path))) as listening:
        yield opening(request.param, listening, tmp_path)


async def added(client: Client, a: int, b: int) -> int:
    found: int = (await client.call_tool("add", {"a": a, "b": b})).structured_content["result"]
    return found


@pytest.mark.req("XPORT-01", "XPORT-04")
def test_concurrent_clients_get_their_own_answers(opened: Open) -> None:
    async def ask(number: int) -> int:
        async with opened() as client:
            found = await asyncio.gather(*[added(client, number, each) for each in range(10)])
        assert found == [number + each for each in range(10)]
        return sum(found)

    async def main() -> None:
        assert len(await asyncio.gather(*map(ask, range(8)))) == 8

    run_in_real_time(main)


def test_a_request_times_out_and_the_next_one_is_answered(opened: Open) -> None:
    async def main() -> None:
        async with opened() as client:
            with pytest.raises(RequestTimeout):
                await client.call_tool("wait", timeout=0.05)
            assert await added(client, 1, 2) == 3
        with pytest.raises(NoBackChannel):
            await client.call_tool("wait")

    run_in_real_time(main)


def test_large_messages_arrive_whole(opened: Open) -> None:
    async def main() -> None:
        async with opened() as client:
            number = 10**4000
            text = str(number)
            result = await client.call_tool("add", {"a": 1, "b": 1}, meta={"x/padding": text * 100})
            assert result.structured_content == {"result": 2}

    run_in_real_time(main)


def test_client_can_be_closed_from_another_task(tmp_path: Path) -> None:
    async def main(at: Any) -> None:
        async def make() -> Client:
            return await connect_tcp(at.host, at.port)

        client = await asyncio.create_task(make())
        assert await added(client, 1, 1) == 2
        client.close()
        await asyncio.create_task(client.driver.wait_closed())

    carrier: Any = CARRIERS["tcp"]
    with on_trio(partial(carrier.serve, make_server())) as at:
        run_in_real_time(partial(main, at))


def test_lost_session_is_reopened(opened: Open) -> None:
    async def main() -> None:
        lost: list[int] = []
        policy = Backoff(base=0.01)
        async with opened(reconnect=policy, on_session_lost=lambda: lost.append(1)) as client:
            driver: Any = client.driver
            driver._adapter._inner.stream.cut()
            for _ in range(200):
                try:
                    assert await added(client, 2, 2) == 4
                    break
                except (ConnectionLost, NoBackChannel):
                    await asyncio.sleep(0.01)
            assert lost == [1]

    run_in_real_time(main)


@pytest.mark.parametrize("kind", ["tcp", "websocket"])
def test_tls(kind: str) -> None:
    here, there = serving_as("localhost"), trusting()
    serve: Any = serve_tcp if kind == "tcp" else serve_websocket

    async def main(at: Any) -> None:
        if kind == "tcp":
            client = await connect_tcp("127.0.0.1", at.port, ssl_context=there, server_hostname="localhost")
        else:
            client = await connect_websocket(f"wss://localhost:{at.port}/mcp", ssl_context=there)
        assert await added(client, 2, 2) == 4
        await client.aclose()
        with pytest.raises(ConnectFailed) as caught:
            await connect_tcp("127.0.0.1", at.port, ssl_context=there)
        assert isinstance(caught.value.__cause__, ssl.SSLError)

    with on_trio(partial(serve, make_server(), port=0, ssl_context=here)) as at:
        run_in_real_time(partial(main, at))


def test_a_group_ends_its_clients(tmp_path: Path) -> None:
    async def main(at: Any) -> None:
        made: list[Client] = []

        async def fail() -> None:
            async with asyncio.TaskGroup() as group:
                made.append(await connect_websocket(at.url, group=group))
                assert await added(made[0], 1, 1) == 2
                raise KeyError

        with pytest.raises(ExceptionGroup):
            await fail()
        assert made[0].ended is not None

    carrier: Any = CARRIERS["websocket"]
    with on_trio(partial(carrier.serve, make_server(), port=0)) as at:
        run_in_real_time(partial(main, at))


@pytest.mark.parametrize(
    ("connect", "where"),
    [
        (lambda path: connect_unix(path / "none"), "none: No such file"),
        (lambda _: connect_tcp("127.0.0.1", 1), "127.0.0.1:1: Connection refused"),
        (lambda _: connect_websocket("ws://127.0.0.1:1/"), "127.0.0.1:1: Connection refused"),
        (lambda _: connect_tcp("x" * 64, 1), "label"),
    ],
)
def test_no_server_is_connect_failed_with_the_address_and_the_reason(connect: Any, where: str, tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(ConnectFailed, match=where):
            await connect(tmp_path)

    run_in_real_time(main)


def test_a_server_that_does_not_answer_is_connect_failed_in_time() -> None:
    async def main() -> None:
        silent = socket.create_server(("127.0.0.1", 0))
        with silent, pytest.raises(ConnectFailed, match=r"within 0\.05 s"):
            await connect_websocket(f"ws://127.0.0.1:{silent.getsockname()[1]}/", connect_timeout=0.05)

    run_in_real_time(main)


def test_a_refused_handshake_names_the_status() -> None:
    async def main() -> None:
        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            with closing(writer):
                writer.write(b"HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nbusy")

        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            with pytest.raises(ConnectFailed) as caught:
                await connect_websocket(f"ws://127.0.0.1:{port}/")
        assert isinstance(caught.value.__cause__, UnexpectedResponse)

    run_in_real_time(main)


def test_an_unknown_option_and_a_wrong_url_are_named() -> None:
    async def main() -> None:
        wrong: Any = {"ssl": None}
        with pytest.raises(TypeError, match="ssl"):
            await connect_tcp("localhost", 1, **wrong)
        with pytest.raises(ValueError, match="ws://"):
            await connect_websocket("http://localhost/")
        with pytest.raises(ValueError, match="ping_interval"):
            await connect_websocket("ws://localhost/", websocket=WebSocketOptions(ping_interval=0))

    run_in_real_time(main)
