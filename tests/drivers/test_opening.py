"""How clients open, over real processes and sockets: servers of each era, and such as end or stay silent when asked."""

from __future__ import annotations

import asyncio
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from eachloop import Here, on_each_loop
from runners import run_by

import mcpio.asyncio
from mcpio import Client, Options, Server
from mcpio.backoff import Backoff
from mcpio.errors import ConnectFailed
from mcpio.revisions import HANDSHAKE_REVISIONS, REVISIONS, STATELESS_REVISIONS, Era
from mcpio.trio import memory_client, open_http, open_stdio, open_tcp, open_unix, open_websocket, serve_http, serve_tcp
from mcpio.websocket import WebSocketOptions

# A server of the handshake era by hand. It does what the test says about the first message, if that is a question.
BY_HAND = """
import json, sys

def say(id, **members):
    print(json.dumps({"jsonrpc": "2.0", "id": id, **members}), flush=True)

first = None
for line in sys.stdin:
    message = json.loads(line)
    first = first or message["method"]
    if message["method"] == "server/discover":
        %s
    elif message["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        result["serverInfo"] = {"name": "old", "version": "1"}
        say(message["id"], result=result)
    elif message["method"] == "tools/call":
        say(message["id"], result={"content": [{"type": "text", "text": first}]})
        sys.exit()
"""
LEAVES = "sys.exit('I do not know server/discover')"
REFUSES = 'say(message["id"], error={"code": -32601, "message": "Method not found"})'
IS_SILENT = "pass"


def child(source: str) -> list[str]:
    return [sys.executable, "-S", "-c", BY_HAND % source]


@pytest.mark.req("ERA-03")
@pytest.mark.parametrize("source", [LEAVES, REFUSES, IS_SILENT], ids=["leaves", "refuses", "is silent"])
@pytest.mark.parametrize("restart", [None, Backoff()], ids=["once", "restarting"])
@run_by(trio.run)
async def test_child_that_does_not_answer_server_discover_is_opened_with_a_handshake(source: str, restart: Any) -> None:
    options = Options(probe_timeout=0.3)
    async with open_stdio(child(source), stderr="discard", restart=restart, options=options) as client:
        assert (client.era, client.server.info.name) == (Era.HANDSHAKE, "old")


@pytest.mark.req("ERA-03")
@run_by(trio.run)
async def test_child_is_restarted_as_its_era_was_found() -> None:
    lost = trio.Event()
    async with open_stdio(child(REFUSES), restart=Backoff(0.01), on_session_lost=lost.set) as client:
        assert (await client.call_tool("any")).text == "server/discover"
        await lost.wait()
        assert (await client.call_tool("any")).text == "initialize"


def test_child_is_started_again_on_asyncio() -> None:
    async def main() -> None:
        async with mcpio.asyncio.open_stdio(child(LEAVES), stderr="discard") as client:
            assert client.era is Era.HANDSHAKE

    asyncio.run(main())


@run_by(trio.run)
async def test_child_that_ends_in_any_case_is_explained() -> None:
    with pytest.raises(ConnectFailed, match=r"handshake failed: initialize: .* exited with status 3"):
        async with open_stdio([sys.executable, "-c", "raise SystemExit(3)"]):
            pass
    # A client of the stateless era has no other way to open.
    with pytest.raises(ConnectFailed, match="asked for its era") as caught:
        async with open_stdio(child(LEAVES), stderr="discard", era="stateless"):
            pass
    assert not caught.value.era_probe


@pytest.mark.req("ERA-03")
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_socket_that_is_closed_at_the_question_is_opened_again(kind: str, tmp_path: Path) -> None:
    firsts: list[bytes] = []

    async def answer(stream: trio.SocketStream) -> None:
        async with stream:
            firsts.append(await stream.receive_some())
            if b"initialize" in firsts[-1]:
                result = b'{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}'
                await stream.send_all(b'{"jsonrpc":"2.0","id":1,"result":%s}\n' % result)
                await stream.receive_some()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            if kind == "tcp":
                (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
                opened = open_tcp("127.0.0.1", listener.socket.getsockname()[1])
            else:
                bound = trio.socket.socket(trio.socket.AF_UNIX)
                await bound.bind(str(tmp_path / "s"))
                bound.listen()
                listener = trio.SocketListener(bound)
                opened = open_unix(tmp_path / "s")
            nursery.start_soon(trio.serve_listeners, answer, [listener])
            async with opened as client:
                assert client.era is Era.HANDSHAKE
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert [b"discover" in first for first in firsts] == [True, False]


ERAS = {
    "sessions": (HANDSHAKE_REVISIONS, Era.HANDSHAKE),
    "stateless": (STATELESS_REVISIONS, Era.STATELESS),
    "both": (REVISIONS, Era.STATELESS),
}


@pytest.mark.req("ERA-07")
@pytest.mark.parametrize(("revisions", "era"), ERAS.values(), ids=ERAS)
def test_client_finds_out_the_era_over_any_transport(revisions: Any, era: Era) -> None:
    server = Server("s", options=Options(revisions=revisions))

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    async def check(client: Client) -> None:
        assert client.era is era
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == '{"result":3}'

    async def main() -> None:
        async with memory_client(server) as client:
            await check(client)
        async with trio.open_nursery() as nursery:
            at = await nursery.start(partial(serve_http, server, port=0, websocket=WebSocketOptions()))
            tcp = await nursery.start(partial(serve_tcp, server, port=0))
            async with open_http(at.url, trust_env=False) as client:
                await check(client)
            async with open_websocket(at.url.replace("http", "ws", 1)) as client:
                await check(client)
            async with open_tcp(tcp.host, tcp.port) as client:
                await check(client)
            nursery.cancel_scope.cancel()

    trio.run(main)


@pytest.mark.parametrize(
    ("opener", "target", "fault"),
    [
        ("open_http", (3,), "url must be str, not 3"),
        ("open_http", (b"http://a/",), "url must be str, not b'http://a/'"),
        ("open_websocket", (None,), "url must be str, not None"),
        ("open_tcp", (3, 80), "host must be str, not 3"),
        ("open_tcp", ("localhost", "80"), "port must be int, not '80'"),
        ("open_stdio", (3,), "argv must be a list of strings, the program first, not 3"),
    ],
)
@on_each_loop
async def test_target_of_another_type_raises_with_the_name_of_the_argument(
    here: Here, opener: str, target: tuple[Any, ...], fault: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(fault)):
        async with getattr(here.drivers, opener)(*target):
            pytest.fail("opened")
