"""A server that has scopes is served only where something grants them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from mcpio import Server, asgi
from mcpio.asyncio import serve as serve_on_asyncio
from mcpio.auth import Grant
from mcpio.errors import RequestError
from mcpio.trio import memory_client, open_transport, serve, serve_http, serve_tcp, serve_websocket

GRANT = Grant(None, "me", scopes=frozenset({"notes:write"}))


def scoped_server() -> Server:
    server = Server("s")
    server.tool(lambda: "erased", name="erase", scopes="notes:write")
    return server


async def over_stream(server: Server) -> None:
    await serve(server, trio.testing.memory_stream_pair()[0])


SERVES: list[Callable[[Server], Awaitable[Any]]] = [
    over_stream,
    lambda server: serve_tcp(server, 0),
    lambda server: serve_http(server, 0),
    lambda server: serve_websocket(server, 0),
]


@pytest.mark.req("AUTH-34")
@pytest.mark.parametrize("serve_", SERVES)
def test_scoped_server_without_authorization_does_not_start(serve_: Callable[[Server], Awaitable[Any]]) -> None:
    with pytest.raises(ValueError, match="give auth="):
        trio.run(serve_, scoped_server())


def test_scoped_server_without_authorization_is_no_asgi_application() -> None:
    with pytest.raises(ValueError, match="give auth="):
        asgi.app(scoped_server())
    asgi.app(scoped_server(), principal=lambda scope: GRANT)


def test_scoped_server_without_authorization_does_not_start_on_asyncio() -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            await serve_on_asyncio(scoped_server(), *await asyncio.open_connection(sock=ours))

    with pytest.raises(ValueError, match="give auth="):
        asyncio.run(main())


async def _call(server: Server) -> bool | None:
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: serve(server, theirs, principal=GRANT))
        async with open_transport(ours) as client:
            return (await client.call_tool("erase")).is_error


def test_program_grants_scopes_to_its_only_client() -> None:
    async def in_memory() -> None:
        async with memory_client(scoped_server(), principal=GRANT) as client:
            assert not (await client.call_tool("erase")).is_error
        async with memory_client(scoped_server()) as client:
            with pytest.raises(RequestError, match="notes:write"):
                await client.call_tool("erase")

    trio.run(in_memory)
    assert not trio.run(_call, scoped_server())
