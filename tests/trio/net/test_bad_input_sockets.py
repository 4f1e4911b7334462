"""What goes wrong over TCP and Unix sockets only: nobody there, no TLS, a sudden end."""

from __future__ import annotations

import os
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from certificates import serving_as, trusting
from faulted import SOCKETS, Sockets, each_socket
from faults import a_server, call, read_line, shake_hands, welcome

from mcpio import CloseReason, ConnectFailed, ConnectionLost, NoBackChannel
from mcpio.trio import open_tcp, open_unix, serve_tcp

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there are no Unix sockets")

AT_ONCE = b"\1\0\0\0\0\0\0\0"
"""For ``SO_LINGER``: a close that is a reset, over TCP."""

# Clients


@pytest.mark.parametrize(
    "rest", [b"", b'{"jsonrpc"', call(1, "wait", seconds=60)], ids=["nothing", "half a line", "a call"]
)
@each_socket
def test_vanished_client_affects_no_other_client(over: Sockets, rest: bytes, tmp_path: Path) -> None:
    async def main() -> None:
        async with over.served(a_server(), tmp_path) as client:
            await shake_hands(client)
            address = client.socket.getpeername()
            await client.send_all(rest)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            client.socket.close()
            async with over.opener(address)(era="handshake") as other:
                await other.ping(timeout=5)

    over.run(main)


# Servers


async def _leaves(stream: trio.SocketStream) -> None:
    """End at once."""


async def _resets(stream: trio.SocketStream) -> None:
    """End abruptly, when something was said."""
    await stream.receive_some()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)


@pytest.mark.parametrize("play", [_leaves, _resets], ids=["at once", "abruptly"])
@each_socket
def test_connection_end_before_the_handshake_raises_connect_failed(over: Sockets, play: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with over.opened(play, tmp_path) as opened:
            with pytest.raises(
                ConnectFailed, match=r"^the handshake failed: initialize: the connection ended"
            ) as caught:
                async with opened(era="handshake"):
                    pytest.fail("there was no handshake")
            assert type(caught.value.__cause__) is ConnectionLost

    over.run(main)


@each_socket
def test_connection_reset_fails_running_and_later_calls(over: Sockets, tmp_path: Path) -> None:
    async def play(stream: trio.SocketStream) -> None:
        await welcome(stream)
        await read_line(stream)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)

    async def main() -> None:
        async with over.opened(play, tmp_path) as opened, opened(era="handshake") as client:
            with pytest.raises(ConnectionLost, match=r"^tools/call: the connection ended"):
                await client.call_tool("any")
            with pytest.raises(NoBackChannel, match=r"^the connection is closed$"):
                await client.call_tool("any")
        assert client.ended is not None
        assert client.ended.reason is (CloseReason.LOST if over is SOCKETS["tcp"] else CloseReason.END_OF_FILE)

    over.run(main)


# Nobody there, and TLS


def test_tls_client_of_a_plain_server_gets_a_clear_error() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            listening = await nursery.start(serve_tcp, a_server())
            with pytest.raises(ConnectFailed, match=rf"^no connection to 127\.0\.0\.1:{listening.port}"):
                async with open_tcp("127.0.0.1", listening.port, ssl_context=trusting()):
                    pytest.fail("there was no handshake")
            nursery.cancel_scope.cancel()

    SOCKETS["tcp"].run(main)


def test_plain_client_of_a_tls_server_gets_a_clear_error() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            listening = await nursery.start(partial(serve_tcp, a_server(), ssl_context=serving_as("127.0.0.1")))
            with pytest.raises(ConnectFailed, match=r"^the handshake failed: initialize: ") as caught:
                async with open_tcp("127.0.0.1", listening.port):
                    pytest.fail("there was no handshake")
            assert type(caught.value.__cause__) is ConnectionLost
            nursery.cancel_scope.cancel()

    SOCKETS["tcp"].run(main)


def test_path_without_a_listening_socket_raises_connect_failed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(tmp_path / "stale"))
    stale.close()

    async def main() -> None:
        for name, cause in (
            ("none", FileNotFoundError),
            ("file", ConnectionRefusedError),
            ("stale", ConnectionRefusedError),
        ):
            with pytest.raises(ConnectFailed, match=rf"^no connection to {tmp_path}/{name}: ") as caught:
                async with open_unix(tmp_path / name):
                    pytest.fail("there is nobody")
            assert type(caught.value.__cause__) is cause

    SOCKETS["unix"].run(main)
