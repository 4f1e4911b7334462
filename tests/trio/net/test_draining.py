"""Clients and requests that reach a server while it, or the connection, closes."""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from mcpio import Server
from mcpio._drivers import socket_server
from mcpio._drivers.http_server import HttpConnectionHandler
from mcpio.http import HttpOptions
from mcpio.trio import serve_http

REQUEST = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def serve_until(act: Callable[[int], None], **given: Any) -> None:
    """Serve, call ``act`` with the port, and end the server."""

    async def main() -> None:
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                serve: Any = serve_http
                options = HttpOptions(health="/health")
                listening = await nursery.start(
                    lambda **started: serve(Server("s"), 0, options=options, **given, **started)
                )
                await trio.to_thread.run_sync(act, listening.port)
                nursery.cancel_scope.cancel()

    trio.run(main)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no filters of sockets")
def test_client_that_connects_as_the_listener_closes_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    ports: list[int] = []
    outcomes: list[bool] = []
    close_all = socket_server.close_all

    async def connect_and_close(listeners: Any, loop: Any) -> None:
        if not outcomes:
            with socket.socket() as late:
                late.setblocking(False)
                late.connect_ex(("127.0.0.1", ports[0]))
                outcomes.append(bool(select.select([], [late], [], 0)[1]))
        await close_all(listeners, loop)

    monkeypatch.setattr(socket_server, "close_all", connect_and_close)
    serve_until(ports.append, drain=0.01)
    assert outcomes == [False]


def test_client_of_a_server_that_is_ended_before_it_accepts_is_served() -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound, socket.socket() as client:
        client.settimeout(20)
        scope = trio.CancelScope()

        @asynccontextmanager
        async def lifespan(_: Server) -> AsyncIterator[None]:
            client.connect(bound.getsockname())
            client.sendall(REQUEST)
            scope.cancel()
            yield

        async def main() -> None:
            bound.setblocking(False)
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(bound.dup()))
            options = HttpOptions(health="/health")
            with trio.fail_after(30), scope:
                await serve_http(Server("s", lifespan=lifespan), options=options, drain=0.1, listeners=[listener])

        trio.run(main)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_request_that_arrives_on_an_idle_connection_as_it_closes_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = socket.socket()
    close = HttpConnectionHandler.close

    def use(port: int) -> None:
        client.settimeout(20)
        client.connect(("127.0.0.1", port))
        client.sendall(REQUEST)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")

    def ask_and_close(self: HttpConnectionHandler, grace: float) -> None:
        client.sendall(REQUEST)
        close(self, grace)

    monkeypatch.setattr(HttpConnectionHandler, "close", ask_and_close)
    with client:
        serve_until(use, drain=0)
        answer = client.recv(65536)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"connection: close" in answer.lower()
    assert b"the server is closing" in answer


def test_request_that_arrives_as_room_is_made_for_another_client_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    make_room = HttpConnectionHandler.make_room
    first, second = socket.socket(), socket.socket()

    def ask_and_make_room(self: HttpConnectionHandler) -> None:
        first.sendall(REQUEST)
        make_room(self)

    def use(port: int) -> None:
        first.settimeout(20)
        second.settimeout(20)
        first.connect(("127.0.0.1", port))
        first.sendall(REQUEST)
        assert first.recv(65536).startswith(b"HTTP/1.1 200")
        second.connect(("127.0.0.1", port))
        second.sendall(REQUEST)
        assert first.recv(65536).startswith(b"HTTP/1.1 200")
        first.close()
        assert second.recv(65536).startswith(b"HTTP/1.1 200")

    monkeypatch.setattr(HttpConnectionHandler, "make_room", ask_and_make_room)
    with first, second:
        serve_until(use, max_connections=1)
