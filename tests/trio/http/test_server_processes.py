"""``serve_http`` with sockets and processes: TLS, signals, addresses, and sessions by the thousand."""

from __future__ import annotations

import inspect
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from certificates import ADA, serving_as, trusting
from stateless import stateless
from triowire import RawHttp, each_parser

from mcpio import Context, Server
from mcpio.http.model import HttpOptions
from mcpio.trio import HttpListening, HttpTimeouts, SocketPeer, serve_http, serve_tcp, serve_websocket

PROGRAM = """
import sys
from functools import partial
import trio
from mcpio import Context, Server
from mcpio.trio import serve_http

server = Server("process", "1")

@server.tool
async def wait(ctx: Context) -> str:
    ctx.progress(1)
    await trio.sleep_forever()

async def main() -> None:
    async with trio.open_nursery() as nursery:
        serving = partial(serve_http, server, port=0, parser=sys.argv[1], handle_signals=True)
        print((await nursery.start(serving)).port, flush=True)

trio.run(main)
"""


def who() -> Server:
    server = Server("who", "1")

    @server.tool
    def whose(ctx: Context) -> str:
        return repr(ctx.peer.principal)

    return server


class Served:
    """A server that listens, and what was connected to it."""

    def __init__(self, listening: HttpListening, nursery: trio.Nursery) -> None:
        self.listening = listening
        self.end = nursery.cancel_scope.cancel
        self.port = listening.port or 0
        self.clients: list[RawHttp] = []

    async def dial(self, asking: ssl.SSLContext | None = None) -> RawHttp:
        """Connect."""
        stream: trio.abc.Stream
        if asking is None:
            stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        else:
            stream = await trio.open_ssl_over_tcp_stream("localhost", self.port, ssl_context=asking)
        self.clients.append(RawHttp(stream))
        return self.clients[-1]


@asynccontextmanager
async def served(**how: Any) -> AsyncIterator[Served]:
    async with trio.open_nursery() as nursery:
        site = Served(await nursery.start(partial(serve_http, who(), port=0, **how)), nursery)
        try:
            yield site
        finally:
            with trio.CancelScope(shield=True):
                for client in site.clients:
                    await trio.aclose_forcefully(client.stream)
            nursery.cancel_scope.cancel()


@each_parser
@pytest.mark.req("HTTP-04")
def test_listening_reports_the_url_and_serves_its_names(parser: str) -> None:
    async def main() -> None:
        async with served(parser=parser) as site:
            assert site.listening.url == f"http://127.0.0.1:{site.port}/mcp"
            client = await site.dial()
            assert (await client.initialize(host=f"localhost:{site.port}")).status == 200
            assert (await client.post({}, host="evil.example")).status == 403

    trio.run(main)


@pytest.mark.req("HTTP-04", "SEC-06")
@pytest.mark.parametrize("serve", [serve_http, serve_tcp, serve_websocket])
def test_default_host_is_loopback(serve: Callable[..., Any]) -> None:
    assert inspect.signature(serve).parameters["host"].default == "127.0.0.1"


def test_port_zero_is_one_port_for_all_addresses() -> None:
    async def main() -> None:
        async with served(host="localhost") as site:
            assert site.listening.url == f"http://localhost:{site.port}/mcp"

    trio.run(main)


def test_address_in_use_raises_os_error() -> None:
    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            with pytest.raises(OSError, match="in use"):
                await serve_http(who(), port=taken.getsockname()[1])

    trio.run(main)


def test_unix_socket_is_served(tmp_path: Path) -> None:
    async def main() -> None:
        bound = trio.socket.socket(trio.socket.AF_UNIX)
        await bound.bind(str(tmp_path / "socket"))
        bound.listen()
        async with served(listeners=[trio.SocketListener(bound)]) as site:
            assert (site.listening.url.partition("%2F")[0], site.listening.port) == ("http+unix://", None)
            client = RawHttp(await trio.open_unix_socket(str(tmp_path / "socket")))
            site.clients.append(client)
            assert (await client.initialize()).status == 200

    trio.run(main)


@each_parser
def test_client_certificate_is_the_principal(parser: str) -> None:
    serving, asking = serving_as("localhost", asks=ssl.CERT_OPTIONAL), trusting(shows=ADA)

    async def main() -> None:
        async with served(ssl_context=serving, parser=parser) as site:
            assert site.listening.url.startswith("https://")
            client = await site.dial(asking)
            await client.initialize()
            heard = await client.post(client.call("whose"))
            assert "(('commonName', 'ada'),)" in heard.json["result"]["content"][0]["text"]
            await client.say(client.head("GET"))
            await client.until(b"\n\n")
            site.end()
            with trio.CancelScope(shield=True):
                assert (await client.rest()).endswith(b"0\r\n\r\n")

    trio.run(main)


def test_principal_hook_sees_the_certificate() -> None:
    serving, asking = serving_as("localhost", asks=ssl.CERT_OPTIONAL), trusting(shows=ADA)
    peers: list[SocketPeer] = []

    def find(_: Any, peer: SocketPeer) -> str:
        peers.append(peer)
        return "somebody"

    async def main() -> None:
        async with served(ssl_context=serving, principal=find) as site:
            await (await site.dial(asking)).initialize()

    trio.run(main)
    assert peers[0].address[0] == "127.0.0.1"
    assert peers[0].certificate["subjectAltName"] == (("email", "ada@example.org"),)


def test_plain_http_on_a_tls_port_ends_only_its_connection() -> None:
    serving, asking = serving_as("localhost", asks=ssl.CERT_OPTIONAL), trusting(shows=ADA)

    async def main() -> None:
        async with served(ssl_context=serving, timeouts=HttpTimeouts(head=0.2)) as site:
            for said in (b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n", b"\x16", b""):
                plain = await site.dial()
                await plain.say(said)
                assert b"HTTP" not in await plain.rest()
            assert (await (await site.dial(asking)).initialize()).status == 200

    trio.run(main)


def test_connections_per_address_are_limited() -> None:
    async def main() -> None:
        async with served(max_per_address=2) as site:
            clients = [await site.dial() for _ in range(2)]
            for client in clients:
                assert (await client.initialize()).status == 200
            third = await site.dial()
            assert await third.rest() == b""
            await clients[0].stream.aclose()
            while True:
                again = await site.dial()
                try:
                    assert (await again.initialize()).status == 200
                except (EOFError, trio.BrokenResourceError):
                    continue  # The server has not heard of the end yet.
                break

    trio.run(main)


AFTER: dict[str, bytes] = {"nothing": b"", "line end": b"\r\n", "byte": b"x", "read": b"x" * 65_000}


@each_parser
@pytest.mark.parametrize("answers", ["auto", "json"])
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("after", AFTER)
def test_client_that_leaves_behind_further_input_gives_back_its_place(
    parser: str, answers: Any, scheme: str, after: str
) -> None:
    server = Server("stateless", "1")
    log: list[str] = []
    changed = trio.Event()

    def note(text: str) -> None:
        nonlocal changed
        log.append(text)
        changed.set()
        changed = trio.Event()

    @server.tool
    async def work(name: str) -> None:
        note(f"{name} begun")
        try:
            await trio.sleep_forever()
        finally:
            note(f"{name} ended")

    async def main() -> None:
        how: dict[str, Any] = {} if scheme == "http" else {"ssl_context": serving_as("localhost")}
        how |= {"parser": parser, "max_connections": 1, "options": HttpOptions(answers=answers)}
        named = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "work"}
        async with trio.open_nursery() as nursery:
            site = Served(await nursery.start(partial(serve_http, server, port=0, **how)), nursery)
            for name in ("first", "second"):
                client = await site.dial(None if scheme == "http" else trusting())
                call = stateless("tools/call", name="work", arguments={"name": name})
                await client.say(client.posted(call, **named) + AFTER[after])
                for state in ("begun", "ended"):
                    with trio.fail_after(10):
                        while f"{name} {state}" not in log:
                            await changed.wait()
                    await trio.aclose_forcefully(client.stream)
            site.end()

    trio.run(main)


@each_parser
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_sigterm_ends_a_hundred_streams_whole(parser: str, method: str) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, parser], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())

        async def main() -> None:
            clients = []
            for _ in range(100):
                client = RawHttp(await trio.open_tcp_stream("127.0.0.1", port))
                await client.initialize()
                call = {**client.call("wait")["params"], "_meta": {"progressToken": 1}}
                asked = client.posted({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
                await client.say(client.head("GET") if method == "GET" else asked)
                await client.until(b"\n\n")
                clients.append(client)
            process.terminate()
            for client in clients:
                assert (await client.rest()).endswith(b"0\r\n\r\n")
                await client.stream.aclose()

        trio.run(main)
        assert process.wait() == 143


@each_parser
@pytest.mark.req("SEC-10")
def test_abandoned_sessions_free_their_memory(parser: str) -> None:
    # However slow the machine is: time passes as it does, and then leaps.
    clock = trio.testing.MockClock(rate=1)

    async def main() -> None:
        async with served(parser=parser, options=HttpOptions(session_idle=600)) as site:
            for _ in range(200):
                client = await site.dial()
                await client.initialize()
                await client.stream.aclose()
            assert len(site.listening.host.machine.sessions) == 200
            clock.jump(600)
            with trio.fail_after(30):
                while site.listening.host.machine.sessions:  # noqa: ASYNC110 - nothing tells of that
                    await trio.sleep(0.01)

    trio.run(main, clock=clock)
