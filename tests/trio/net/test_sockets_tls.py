"""TLS over TCP: certificates on both sides, and what becomes of those that do not fit."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from certificates import ADA, serving_as, showing, trusting
from cryptography import x509
from cryptography.x509.oid import NameOID

from mcpio import ConnectFailed, Context, Server
from mcpio.trio import SocketListening, SocketPeer, open_tcp, serve_tcp

server = Server("here", "1.0")


@server.tool
def who(ctx: Context) -> str:
    return repr(ctx.peer.principal)


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


@pytest.mark.req("XPORT-05")
def test_the_names_in_a_clients_certificate_are_the_principal() -> None:
    serving, asking = serving_as("localhost", asks=ssl.CERT_REQUIRED), trusting(shows=ADA)

    async def main() -> None:
        async with (
            listening(ssl_context=serving) as port,
            open_tcp("127.0.0.1", port, ssl_context=asking, server_hostname="localhost") as client,
        ):
            said = (await client.call_tool("who")).text
            assert "(('commonName', 'ada'),)" in said
            assert "('email', 'ada@example.org')" in said

    trio.run(main)


def a_name(**parts: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(getattr(NameOID, kind), text) for kind, text in parts.items()])


ONE, OTHER = (x509.UniformResourceIdentifier(f"spiffe://example.org/{name}") for name in ("one", "other"))
HERE = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ((a_name(), [ONE]), (a_name(), [ONE]), True),
        ((a_name(), [ONE]), (a_name(), [OTHER]), False),
        ((a_name(), [ONE]), (a_name(), [ONE, OTHER]), False),
        ((a_name(), [x509.DNSName("a")]), (a_name(), [x509.RFC822Name("a")]), False),
        ((a_name(), [HERE]), (a_name(), [HERE]), False),
        ((a_name(), []), (a_name(), []), False),
        ((a_name(COMMON_NAME="a"), []), (a_name(COMMON_NAME="a"), []), True),
        ((a_name(COMMON_NAME="a"), []), (a_name(COMMON_NAME="b"), []), False),
        ((a_name(COMMON_NAME="a"), [ONE]), (a_name(COMMON_NAME="a"), [OTHER]), False),
        ((a_name(ORGANIZATION_NAME="SPIRE"), [ONE]), (a_name(ORGANIZATION_NAME="SPIRE"), [OTHER]), False),
        ((a_name(ORGANIZATION_NAME="a"), []), (a_name(ORGANIZATION_NAME="a"), []), False),
    ],
)
def test_two_certificates_are_one_principal_only_if_they_name_the_same_client(
    one: tuple[x509.Name, Any], other: tuple[x509.Name, Any], is_same: bool
) -> None:
    said: list[str] = []

    async def main() -> None:
        serving = serving_as("localhost", asks=ssl.CERT_REQUIRED)
        # From Python 3.13 on, OpenSSL itself refuses a certificate without names by default.
        serving.verify_flags &= ~ssl.VERIFY_X509_STRICT
        async with listening(ssl_context=serving) as port:
            for subject, alternatives in (one, other):
                context = showing(subject, alternatives)
                async with open_tcp("127.0.0.1", port, ssl_context=context, server_hostname="localhost") as client:
                    said.append((await client.call_tool("who")).text)

    trio.run(main)
    assert (said[0] == said[1]) is is_same
    assert "()" not in said


def test_certificate_without_names_or_fingerprint_is_rejected() -> None:
    with pytest.raises(PermissionError, match="contains no name"):
        _ = SocketPeer(None, {"subject": ()}).identity
    assert SocketPeer().identity is None


def test_principal_function_sees_the_certificate() -> None:
    serving, asking = serving_as("localhost", asks=ssl.CERT_REQUIRED), trusting(shows=ADA)
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


@pytest.mark.req("XPORT-05")
def test_certificates_that_do_not_fit_end_the_connection_on_either_side() -> None:
    serving, asking = serving_as("localhost", asks=ssl.CERT_REQUIRED), trusting(shows=ADA)
    without = trusting()

    async def main() -> None:
        async with listening(ssl_context=serving) as port:
            for context, name in ((without, "localhost"), (asking, "elsewhere"), (None, None)):
                with pytest.raises(ConnectFailed):
                    await open_tcp(
                        "127.0.0.1", port, ssl_context=context, server_hostname=name, era="handshake"
                    ).__aenter__()
            async with open_tcp(
                "127.0.0.1", port, ssl_context=asking, server_hostname="localhost", era="handshake"
            ) as client:
                await client.ping()

    trio.run(main)


def test_client_that_stalls_the_tls_handshake_is_disconnected() -> None:
    serving = serving_as("localhost", asks=ssl.CERT_REQUIRED)

    async def main() -> None:
        async with listening(ssl_context=serving, handshake_timeout=0.1, tcp_keep_alive=None) as port:
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            assert await stream.receive_some() == b""
            await stream.aclose()

    trio.run(main)
