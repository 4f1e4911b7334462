"""TLS over TCP: certificates on both sides, and what becomes of those that do not fit."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trustme

from mcpio import ConnectFailed, Context, Server
from mcpio.trio import SocketListening, SocketPeer, open_tcp, serve_tcp

server = Server("here", "1.0")


@server.tool
def who(ctx: Context) -> str:
    return repr(ctx.peer.principal)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def contexts(authority: trustme.CA) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the server's, which wants to see a certificate, and a client's, which has one."""
    serving, asking = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(serving)
    authority.issue_cert("ada@example.org", common_name="ada").configure_cert(asking)
    for context in (serving, asking):
        authority.configure_trust(context)
    serving.verify_mode = ssl.CERT_REQUIRED
    return serving, asking


@asynccontextmanager
async def listening(**options: Any) -> AsyncIterator[int]:
    async def serve(*, task_status: trio.TaskStatus[SocketListening]) -> None:
        await serve_tcp(server, 0, task_status=task_status, **options)

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            found = await nursery.start(serve)
            assert found.port is not None
            yield found.port
            nursery.cancel_scope.cancel()


def test_the_subject_of_a_clients_certificate_is_the_principal(authority: trustme.CA) -> None:
    serving, asking = contexts(authority)

    async def main() -> None:
        async with (
            listening(ssl_context=serving) as port,
            open_tcp("127.0.0.1", port, ssl_context=asking, server_hostname="localhost") as client,
        ):
            assert "(('commonName', 'ada'),)" in (await client.call_tool("who")).text

    trio.run(main)


def test_the_certificate_is_for_the_function_to_see(authority: trustme.CA) -> None:
    serving, asking = contexts(authority)
    peers: list[SocketPeer] = []

    def principal(peer: SocketPeer) -> str:
        peers.append(peer)
        return "somebody"

    async def main() -> None:
        async with (
            listening(ssl_context=serving, principal=principal) as port,
            open_tcp("127.0.0.1", port, ssl_context=asking, server_hostname="localhost") as client,
        ):
            assert (await client.call_tool("who")).text == "'somebody'"

    trio.run(main)
    assert peers[0].certificate["subjectAltName"] == (("email", "ada@example.org"),)


def test_certificates_that_do_not_fit_end_the_connection_on_either_side(authority: trustme.CA) -> None:
    serving, asking = contexts(authority)
    without = ssl.create_default_context()
    authority.configure_trust(without)

    async def main() -> None:
        async with listening(ssl_context=serving) as port:
            for context, name in ((without, "localhost"), (asking, "elsewhere"), (None, None)):
                with pytest.raises(ConnectFailed):
                    await open_tcp("127.0.0.1", port, ssl_context=context, server_hostname=name).__aenter__()
            async with open_tcp("127.0.0.1", port, ssl_context=asking, server_hostname="localhost") as client:
                await client.ping()

    trio.run(main)


def test_a_client_that_says_nothing_in_the_handshake_is_cut_off(authority: trustme.CA) -> None:
    serving, _ = contexts(authority)

    async def main() -> None:
        async with listening(ssl_context=serving, handshake_timeout=0.1, tcp_keep_alive=None) as port:
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            assert await stream.receive_some() == b""
            await stream.aclose()

    trio.run(main)
