"""A client that listens for changes and does not read them: what is held for it stays bounded, and others are served.

Over real sockets, with small buffers of the system, so that little output is out of the server's account.
"""

from __future__ import annotations

import json
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from eachloop import EachLoop, Here
from stateless import stateless

from mcpio import Server
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options

URIS = [f"notes://{number:02}{'x' * 4000}" for number in range(40)]
"""The resources that the client listens for."""
ONE_ROUND = sum(2 * len(uri) for uri in URIS)
"""More bytes than one notification for each of them takes."""
ROUNDS = 20
LAST = URIS[-1].encode()


def make_server(limits: Limits | None = None) -> Server:
    server = Server("s", options=Options(limits=limits or Limits()))

    @server.resource("notes://{name}")
    def note(name: str) -> str:
        return name

    @server.tool
    def echo(text: str) -> str:
        return text

    return server


class Site:
    """A server at a socket. ``port`` is its own."""

    def __init__(self, here: Here, kind: str, server: Server, port: int) -> None:
        self.here = here
        self.kind = kind
        self.server = server
        self.port = port

    def open(self) -> Any:
        """Return a block with a client that reads what it is sent."""
        if self.kind == "tcp":
            return self.here.drivers.open_tcp("127.0.0.1", self.port)
        return self.here.open_http(f"http://127.0.0.1:{self.port}/mcp", trust_env=False)

    def listener(self, uris: list[str]) -> socket.socket:
        """Return the socket of a client that asks to listen for some resources."""
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.connect(("127.0.0.1", self.port))
        link.setblocking(False)
        asked = json.dumps(stateless("subscriptions/listen", notifications={"resourceSubscriptions": uris})).encode()
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
            "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
            f"Mcp-Method: subscriptions/listen\r\nContent-Length: {len(asked)}\r\n\r\n"
        )
        self._rest = asked + b"\n" if self.kind == "tcp" else head.encode() + asked
        return link

    async def ask(self, link: socket.socket) -> None:
        """Send the request of ``listener``, which is longer than the buffers, and wait until it is honoured."""
        while self._rest:
            self._rest = self._rest[_sent(link, self._rest) :]
            await self.here.sleep(0)
        await self.until(lambda: len(self.server.audience._stateless) == 1)

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self.here.sleep(0.001)

    async def read(self, link: socket.socket, is_all: Callable[[bytes], bool]) -> bytes:
        """Return what the client reads until that is all, or the connection ends."""
        said = b""
        while not is_all(said):
            try:
                data = link.recv(1 << 20)
            except BlockingIOError:
                await self.here.sleep(0.001)
                continue
            except ConnectionResetError:
                break
            if not data:
                break
            said += data
        return said


def _sent(link: socket.socket, data: bytes) -> int:
    try:
        return link.send(data)
    except BlockingIOError:
        return 0


@asynccontextmanager
async def site(here: Here, kind: str, server: Server) -> AsyncIterator[Site]:
    """Serve for a block."""
    listening = socket.create_server(("127.0.0.1", 0))
    # Connections inherit it.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    listening.setblocking(False)
    port = listening.getsockname()[1]
    serve = here.drivers.serve_tcp if kind == "tcp" else here.drivers.serve_http
    listeners: list[Any] = [listening]
    if here.is_trio:
        listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(listening))]
    async with here.tasks() as tasks:
        serving = tasks.spawn(serve(server, listeners=listeners, grace=0))
        yield Site(here, kind, server, port)
        serving.cancel()


kinds = pytest.mark.parametrize("kind", ["tcp", "http"])


def is_served(each_loop: EachLoop, kind: str) -> bool:
    """Whether the loop serves it: HTTP is served on Trio only."""
    return kind == "tcp" or each_loop.name == "trio"


@pytest.mark.req("SUB-06", "SEC-10")
@kinds
@pytest.mark.parametrize("reads", [True, False])
def test_unread_changes_are_held_once(kind: str, reads: bool, each_loop: EachLoop) -> None:
    if not is_served(each_loop, kind):
        return
    server = make_server()

    async def main(here: Here) -> None:
        async with site(here, kind, server) as at, at.open() as other:
            await other.call_tool("echo", {"text": "hi"})
            before = server.ledger.total
            with at.listener(URIS) as link:
                await at.ask(link)
                subscribed, most = server.ledger.total, 0
                for number in range(ROUNDS):
                    assert sum(map(server.notify_resource_updated, URIS)) == len(URIS)
                    assert (await other.call_tool("echo", {"text": str(number)})).text == str(number)
                    most = max(most, server.ledger.total - subscribed)
                assert most < ONE_ROUND
                if reads:
                    said = await at.read(link, lambda said: said.count(LAST) > 1 and server.ledger.total <= subscribed)
                    told = Counter(re.findall(rb'"uri":"notes://(..)x', said))
                    # Some may have been on their way to the client when the resource changed again.
                    assert (len(told), max(told.values()) < 4) == (len(URIS), True)
            await at.until(lambda: server.ledger.total <= before)
        assert (server.ledger.total, server.audience._stateless, server.sessions) == (0, {}, ())

    each_loop.run(main)


@kinds
def test_listener_with_more_unread_changes_than_may_wait_is_disconnected(kind: str, each_loop: EachLoop) -> None:
    if not is_served(each_loop, kind):
        return
    server = make_server(Limits(queued_bytes=ONE_ROUND // 2, high_water=ONE_ROUND // 4))

    async def main(here: Here) -> None:
        async with site(here, kind, server) as at, at.open() as other:
            with at.listener(["notes://all"]) as link:
                await at.ask(link)
                # The resources within one are not known beforehand, so there may be any number of notifications.
                for number in range(ROUNDS):
                    for uri in URIS:
                        server.notify_resource_updated(f"{uri}/{number}", within="notes://all")
                    assert (await other.call_tool("echo", {"text": "hi"})).text == "hi"
                await at.until(lambda: not server.audience._stateless)
                # Over HTTP it is the stream that ends.
                said = await at.read(link, lambda said: said.endswith(b"\r\n0\r\n\r\n"))
                assert b"notifications/subscriptions/acknowledged" in said
                assert said.count(b"notifications/resources/updated") < 2 * len(URIS)
        assert (server.ledger.total, server.sessions) == (0, ())

    each_loop.run(main)
