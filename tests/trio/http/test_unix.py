"""HTTP over Unix sockets: URLs, policies and principals."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from carriers import run
from certificates import serving_as, trusting
from runners import run_by
from triowire import RawHttp

from mcpio import ConnectFailed, Context, Server
from mcpio.http import HostPolicy, HttpOptions, RequestHead
from mcpio.trio import HttpListening, SocketPeer, open_http, serve_http

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there are no Unix sockets")

INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"c","version":"1"}}}'
)


def make_server() -> Server:
    server = Server("here", "1.0")

    @server.tool
    def who(ctx: Context) -> str:
        return repr(ctx.peer.principal)

    return server


@asynccontextmanager
async def serving(path: Path, **options: Any) -> AsyncIterator[HttpListening]:
    async with trio.open_nursery() as nursery:
        listening: HttpListening = await nursery.start(partial(serve_http, make_server(), unix=path / "a s", **options))
        yield listening
        nursery.cancel_scope.cancel()


def test_unix_socket_has_a_url_and_the_given_mode(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, unix_mode=0o660) as listening:
            assert listening.port is None
            assert listening.url.startswith("http+unix://%2F")
            assert listening.url.endswith("%2Fa%20s/mcp")
            assert stat.S_IMODE((tmp_path / "a s").stat().st_mode) == 0o660
            async with open_http(listening.url) as client:
                assert (await client.call_tool("who")).text == "None"

    run(main)
    assert os.listdir(tmp_path) == []


def test_principal_may_be_the_user_id_of_the_peer(tmp_path: Path) -> None:
    def find(_: RequestHead, peer: SocketPeer) -> str:
        return f"user {peer.user_id}"

    async def main() -> None:
        async with serving(tmp_path, principal=find) as listening, open_http(listening.url) as client:
            assert (await client.call_tool("who")).text in (f"'user {os.getuid()}'", "'user None'")

    run(main)


@pytest.mark.req("HTTP-02", "HTTP-03")
@pytest.mark.parametrize(
    ("field", "policy", "status"),
    [
        ("Host: anything.example", None, 200),
        ("Host: localhost\r\nOrigin: http://localhost", None, 403),
        ("Host: app.example\r\nOrigin: https://app.example", None, 403),
        ("Host: x\r\nOrigin: https://app.example", HostPolicy.for_unix_socket(origins=["https://app.example"]), 200),
    ],
)
def test_unix_socket_serves_any_host_but_no_origin(
    field: str, policy: HostPolicy | None, status: int, tmp_path: Path
) -> None:
    options = None if policy is None else HttpOptions(policy=policy)

    async def main() -> None:
        async with serving(tmp_path, options=options):
            raw = RawHttp(await trio.open_unix_socket(tmp_path / "a s"))
            head = (
                f"POST /mcp HTTP/1.1\r\n{field}\r\ncontent-type: application/json\r\n"
                f"accept: application/json, text/event-stream\r\ncontent-length: {len(INITIALIZE)}\r\n\r\n"
            )
            await raw.say(head.encode() + INITIALIZE)
            assert (await raw.hear()).status == status
            await raw.stream.aclose()

    run(main)


@run_by(run)
async def test_unix_clients_are_not_limited_per_address(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, max_per_address=1) as listening,
        open_http(listening.url, era="handshake") as first,
        open_http(listening.url, era="handshake") as second,
    ):
        await first.ping()
        await second.ping()


@run_by(run)
async def test_tls_over_a_unix_socket_uses_the_name_localhost(tmp_path: Path) -> None:
    async with serving(tmp_path, ssl_context=serving_as("localhost")) as listening:
        assert listening.url.startswith("https+unix://")
        async with open_http(listening.url, ssl_context=trusting(), era="handshake") as client:
            await client.ping()


@run_by(run)
async def test_unix_listeners_are_recognised(tmp_path: Path) -> None:
    made = trio.socket.socket(trio.socket.AF_UNIX)
    await made.bind(str(tmp_path / "own"))
    made.listen()
    async with trio.open_nursery() as nursery:
        listeners = [trio.SocketListener(made)]
        listening = await nursery.start(partial(serve_http, make_server(), listeners=listeners))
        async with open_http(listening.url, era="handshake") as client:
            await client.ping()
        nursery.cancel_scope.cancel()


@run_by(run)
async def test_missing_unix_socket_names_the_path_and_conflicting_options_are_rejected() -> None:
    with pytest.raises(ConnectFailed, match="cannot connect to /nowhere/s: "):
        async with open_http("http+unix://%2Fnowhere%2Fs/mcp"):
            pass
    with pytest.raises(TypeError, match="either unix= or listeners="):
        await serve_http(make_server(), unix="/nowhere/s", listeners=[])
    with pytest.raises(ValueError, match="must name its socket"):
        async with open_http("http+unix:///mcp"):
            pass
