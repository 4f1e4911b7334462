"""The catalogue of bad input over TCP and Unix sockets, and what only these have: nobody there, no TLS, a sudden end.

Times pass as soon as nothing moves for a moment.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from certificates import serving_as, trusting
from faults import FROM_CLIENTS, FROM_SERVERS, GOOD, GREETINGS, a_server, answers, call, converse, line, shake_hands

from mcpio import Client, CloseReason, ConnectFailed, ConnectionLost, McpError, NoBackChannel
from mcpio.trio import open_tcp, open_unix, serve_tcp, serve_unix

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there are no Unix sockets")

KINDS = ("tcp", "unix")
AT_ONCE = b"\1\0\0\0\0\0\0\0"
"""For ``SO_LINGER``: a close that is a reset, over TCP."""


def run(main: Callable[[], Awaitable[None]]) -> None:
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.02))


# What a client may send


@asynccontextmanager
async def raw_client(kind: str, directory: Path) -> AsyncIterator[trio.SocketStream]:
    """Serve, and give a client that says what it is told to."""
    async with trio.open_nursery() as nursery:
        if kind == "tcp":
            listening = await nursery.start(serve_tcp, a_server())
            stream = await trio.open_tcp_stream(listening.host, listening.port)
        else:
            await nursery.start(serve_unix, a_server(), directory / "s")
            stream = await trio.open_unix_socket(directory / "s")
        await shake_hands(stream)
        yield stream
        await stream.aclose()
        nursery.cancel_scope.cancel()


@pytest.mark.req("CANC-06", "CANC-09", "LIFE-13")
@pytest.mark.parametrize(("sent", "id", "code", "message"), FROM_CLIENTS.values(), ids=FROM_CLIENTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_answers_what_is_wrong_and_goes_on(
    kind: str, sent: bytes, id: Any, code: int | None, message: str, tmp_path: Path
) -> None:
    async def main() -> None:
        async with raw_client(kind, tmp_path) as client:
            await client.send_all(sent)
            *errors, pong = await answers(client)
            assert pong == {"jsonrpc": "2.0", "id": "after", "result": {}}
            assert [(error.get("id"), error["error"]["code"]) for error in errors] == [(id, code)] * (code is not None)
            assert all(error["error"]["message"].startswith(message) for error in errors)

    run(main)


@pytest.mark.parametrize(
    "rest", [b"", b'{"jsonrpc"', call(1, "wait", seconds=60)], ids=["nothing", "half a line", "a call"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_vanishes_in_the_middle_costs_nobody_anything(kind: str, rest: bytes, tmp_path: Path) -> None:
    async def main() -> None:
        async with raw_client(kind, tmp_path) as client:
            address = client.socket.getpeername()
            await client.send_all(rest)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            client.socket.close()
            opened = open_tcp(*address[:2]) if kind == "tcp" else open_unix(tmp_path / "s")
            async with opened as other:
                await other.ping(timeout=5)

    run(main)


# What a server may send


@asynccontextmanager
async def raw_server(kind: str, directory: Path, serve: Callable[..., Awaitable[None]]) -> AsyncIterator[Any]:
    """Listen, have the first connection served by a function of its stream, and give what opens a client."""
    listener = trio.socket.socket(trio.socket.AF_INET if kind == "tcp" else trio.socket.AF_UNIX)
    await listener.bind(("127.0.0.1", 0) if kind == "tcp" else str(directory / "s"))
    listener.listen()

    async def once() -> None:
        stream = trio.SocketStream((await listener.accept())[0])
        async with stream:
            with suppress(trio.EndOfChannel):
                await serve(stream)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(once)
        with listener:
            if kind == "tcp":
                yield partial(open_tcp, *listener.getsockname())
            else:
                yield partial(open_unix, directory / "s")
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("said", "error"), FROM_SERVERS.values(), ids=FROM_SERVERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_client_gets_an_answer_or_an_exception_and_goes_on(
    kind: str, said: bytes, error: McpError | None, tmp_path: Path
) -> None:
    async def main() -> None:
        serve = partial(converse, said=[said], ends=False)
        async with raw_server(kind, tmp_path, serve) as opened, opened() as client:
            if error is None:
                assert (await client.call_tool("any", timeout=3)).content == ()
            else:
                with pytest.raises(type(error), match=f"^{re.escape(str(error))}"):
                    await client.call_tool("any", timeout=3)
            await client.ping(timeout=3)

    run(main)


@pytest.mark.req("LIFE-06", "LIFE-18", "LIFE-23")
@pytest.mark.parametrize(("said", "cause", "message"), GREETINGS.values(), ids=GREETINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_handshake_that_goes_wrong_is_one_exception(
    kind: str, said: bytes, cause: type[McpError], message: str, tmp_path: Path
) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.send_all(said)
        while await stream.receive_some():
            pass

    async def main() -> None:
        async with raw_server(kind, tmp_path, serve) as opened:
            with pytest.raises(ConnectFailed) as caught:
                async with opened():
                    pytest.fail("there was no handshake")
            assert str(caught.value) == f"the handshake failed: {message}"
            assert type(caught.value.__cause__) is cause

    run(main)


async def _leaves(stream: trio.SocketStream) -> None:
    """End at once."""


async def _resets(stream: trio.SocketStream) -> None:
    """End abruptly, when something was said."""
    await stream.receive_some()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)


@pytest.mark.parametrize("serve", [_leaves, _resets], ids=["at once", "abruptly"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_goes_before_the_handshake(kind: str, serve: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with raw_server(kind, tmp_path, serve) as opened:
            with pytest.raises(
                ConnectFailed, match=r"^the handshake failed: initialize: the connection ended"
            ) as caught:
                async with opened():
                    pytest.fail("there was no handshake")
            assert type(caught.value.__cause__) is ConnectionLost

    run(main)


ENDS = {
    "in order": (b"", CloseReason.END_OF_FILE),
    "in a line": (line(id=2, result=GOOD)[:-9], CloseReason.END_OF_FILE),
    "abruptly": (None, CloseReason.LOST),
}


@pytest.mark.parametrize(("said", "reason"), ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_goes_loses_the_calls_and_later_ones_are_refused(
    kind: str, said: bytes | None, reason: CloseReason, tmp_path: Path
) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await converse(stream, said=[b"" if said is None else said], ends=True)
        if said is None:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        else:
            await trio.sleep_forever()

    async def main() -> None:
        async with raw_server(kind, tmp_path, serve) as opened, opened() as client:
            await _lost(client)
            assert client.ended is not None
            # Whether a reset or the end comes first is for the system to say.
            assert client.ended.reason in {reason, CloseReason.END_OF_FILE}

    run(main)


async def _lost(client: Client) -> None:
    with pytest.raises(ConnectionLost, match=r"^tools/call: the connection ended"):
        await client.call_tool("any")
    with pytest.raises(NoBackChannel, match=r"^the connection is closed$"):
        await client.call_tool("any")


# Connections


def test_a_client_that_wants_tls_of_a_server_that_has_none_is_told_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            listening = await nursery.start(serve_tcp, a_server())
            with pytest.raises(ConnectFailed, match=rf"^no connection to 127\.0\.0\.1:{listening.port}"):
                async with open_tcp("127.0.0.1", listening.port, ssl_context=trusting()):
                    pytest.fail("there was no handshake")
            nursery.cancel_scope.cancel()

    run(main)


def test_a_client_without_tls_of_a_server_that_wants_it_is_told_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            listening = await nursery.start(partial(serve_tcp, a_server(), ssl_context=serving_as("127.0.0.1")))
            with pytest.raises(ConnectFailed, match=r"^the handshake failed: initialize: ") as caught:
                async with open_tcp("127.0.0.1", listening.port):
                    pytest.fail("there was no handshake")
            assert type(caught.value.__cause__) is ConnectionLost
            nursery.cancel_scope.cancel()

    run(main)


def test_a_path_with_no_socket_or_none_that_anybody_listens_on(tmp_path: Path) -> None:
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

    run(main)
