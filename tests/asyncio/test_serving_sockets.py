"""``serve_tcp`` and ``serve_unix`` on asyncio: who a client is, how many there may be, and how serving ends."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from certificates import serving_as, trusting
from streams import each_loop, run_in_real_time
from streams import run as run_in_virtual_time

from mcpio import Client, ConnectFailed, Context, Server
from mcpio.asyncio import SocketPeer, open_tcp, open_unix, serve_tcp, serve_unix

KINDS = pytest.mark.parametrize("kind", ["tcp", "unix"])

__all__ = ["each_loop"]

pytestmark = pytest.mark.usefixtures("each_loop")


def make_server(**options: Any) -> Server:
    server = Server("here", "1.0", **options)

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def wait(ctx: Context, seconds: float) -> str:
        ctx.progress(1)
        await asyncio.sleep(seconds)
        return "waited"

    @server.tool
    def who(ctx: Context) -> str:
        return repr(ctx.peer.principal)

    return server


@asynccontextmanager
async def serving(server: Server, kind: str, path: Path, **options: Any) -> AsyncIterator[Callable[..., Any]]:
    """Serve for a block; yield what opens a client."""
    started = asyncio.get_running_loop().create_future()
    if kind == "tcp":
        task = asyncio.create_task(serve_tcp(server, started=started, **options))
    else:
        task = asyncio.create_task(serve_unix(server, path / "s", started=started, **options))
    at = await started
    try:
        yield lambda **more: open_tcp("127.0.0.1", at.port, **more) if kind == "tcp" else open_unix(path / "s", **more)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def added(client: Client, a: int, b: int) -> int:
    found: int = (await client.call_tool("add", {"a": a, "b": b})).structured_content["result"]
    return found


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds of which nobody tells."""
    while True:
        if holds():
            return
        await asyncio.sleep(0.005)


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await main()

    run_in_real_time(limited)


@KINDS
def test_running_requests_are_answered_at_the_end(kind: str, tmp_path: Path) -> None:
    server = make_server()

    async def main() -> None:
        began = asyncio.Event()
        async with serving(server, kind, tmp_path, grace=5) as opened:
            client = await opened().__aenter__()
            call = asyncio.create_task(client.call_tool("wait", {"seconds": 0.05}, on_progress=lambda *_: began.set()))
            await began.wait()
        assert (await call).text == "waited"
        await client.aclose()

    run(main)


@KINDS
def test_requests_that_outlast_the_grace_are_cancelled(kind: str, tmp_path: Path) -> None:
    server = make_server()

    async def main() -> None:
        began = asyncio.Event()
        async with serving(server, kind, tmp_path, grace=0.02) as opened:
            client = await opened().__aenter__()
            call = asyncio.create_task(client.call_tool("wait", {"seconds": 60}, on_progress=lambda *_: began.set()))
            await began.wait()
        await asyncio.wait([call])
        assert call.exception() is not None
        await client.aclose()

    run(main)


@pytest.mark.parametrize("option", ["first_message_timeout", "idle_timeout"])
def test_a_silent_client_is_closed(option: str, tmp_path: Path) -> None:
    server = make_server()

    async def main() -> None:
        options: Any = {option: 0.03}
        async with serving(server, "unix", tmp_path, **options):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
            await until(lambda: not server.sessions)

    run(main)


def test_client_with_a_first_message_stays_connected(tmp_path: Path) -> None:
    async def main() -> None:
        served = serving(make_server(), "unix", tmp_path, first_message_timeout=1)
        async with served as opened, opened() as client:
            await asyncio.sleep(5)
            assert await added(client, 1, 1) == 2

    run_in_virtual_time(main)


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="this system does not tell")
def test_the_principal_may_be_found_by_the_user_and_a_client_be_turned_away(tmp_path: Path) -> None:
    allowed: list[int | None] = [os.getuid()]

    async def find(peer: SocketPeer) -> str:
        if peer.user_id not in allowed:
            raise PermissionError
        return f"user {peer.user_id}"

    async def main() -> None:
        async with serving(make_server(), "unix", tmp_path, principal=find) as opened:
            async with opened() as client:
                assert (await client.call_tool("who")).text == repr(f"user {os.getuid()}")
            allowed.clear()
            with pytest.raises(ConnectFailed):
                await opened().__aenter__()

    run(main)


def test_failing_principal_function_is_logged_and_rejects_one_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def find(_: SocketPeer) -> str:
        raise KeyError("unknown")

    async def main() -> None:
        async with serving(make_server(), "unix", tmp_path, principal=find) as opened:
            with pytest.raises(ConnectFailed):
                await opened().__aenter__()

    run(main)
    # A client whose first connection ends tries the handshake on a second one.
    message = "the principal of a connection could not be found"
    assert caplog.messages == [message, f"{message} again: KeyError('unknown')"]


def test_tls_tells_who_a_client_is_and_a_failed_handshake_costs_only_itself(tmp_path: Path) -> None:
    here = serving_as("localhost", asks=ssl.CERT_OPTIONAL)

    async def main() -> None:
        async with serving(make_server(), "tcp", tmp_path, ssl_context=here, handshake_timeout=0.2) as opened:
            with pytest.raises(ConnectFailed):
                await opened().__aenter__()  # speaks no TLS
            async with opened(
                ssl_context=trusting(shows=("ada@localhost", "ada")), server_hostname="localhost"
            ) as client:
                assert "ada" in (await client.call_tool("who")).text
                assert (await client.call_tool("add", {"a": 1, "b": 1})).structured_content == {"result": 2}

    run(main)


def test_sockets_that_listen_may_be_given_and_are_closed(tmp_path: Path) -> None:
    async def main() -> None:
        given = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]  # they block, as sockets do
        ports = [each.getsockname()[1] for each in given]
        async with serving(make_server(), "tcp", tmp_path, listeners=given):
            for port in ports:
                async with open_tcp("127.0.0.1", port) as client:
                    assert await added(client, 1, 1) == 2
        assert [each.fileno() for each in given] == [-1, -1]

    run(main)


@pytest.mark.parametrize(
    ("listeners", "error", "fault"),
    [
        ([], ValueError, "listeners must be at least one"),
        ([3], TypeError, "listeners must be socket, not 3"),
    ],
)
def test_listeners_that_are_none_raise(listeners: Any, error: type[Exception], fault: str) -> None:
    async def main() -> None:
        with pytest.raises(error, match=fault):
            await serve_tcp(make_server(), listeners=listeners)

    run(main)


@KINDS
def test_an_unavailable_address_is_named_and_cancels_the_future(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        started = asyncio.get_running_loop().create_future()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            if kind == "tcp":
                with pytest.raises(OSError, match=f"127.0.0.1 port {port}") as caught:
                    await serve_tcp(make_server(), port, started=started)
                assert caught.value.errno == errno.EADDRINUSE
            else:
                (tmp_path / "s").write_text("no socket")
                with pytest.raises(FileExistsError):
                    await serve_unix(make_server(), tmp_path / "s", started=started)
        assert started.cancelled()

    run(main)


def test_a_wrong_option_is_named_and_cancels_the_future() -> None:
    async def main() -> None:
        started = asyncio.get_running_loop().create_future()
        wrong: Any = {"max_connection": 1}
        with pytest.raises(TypeError, match="max_connection"):
            await serve_tcp(make_server(), started=started, **wrong)
        assert started.cancelled()

    run(main)


def test_a_stale_socket_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(tmp_path / "s"))

    async def main() -> None:
        async with serving(make_server(), "unix", tmp_path) as opened:
            assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600
            with pytest.raises(OSError, match="another server listens"):
                await serve_unix(make_server(), tmp_path / "s")
            async with opened() as client:
                assert await added(client, 1, 1) == 2

    run(main)


def test_exception_of_a_lifespan_propagates_unwrapped_and_cancels_the_future(tmp_path: Path) -> None:
    @asynccontextmanager
    async def broken(server: Server) -> AsyncIterator[None]:
        if not server.sessions:
            raise KeyError("lifespan")
        yield

    async def main() -> None:
        started = asyncio.get_running_loop().create_future()
        with pytest.raises(KeyError, match="lifespan"):
            await serve_unix(make_server(lifespan=broken), tmp_path / "s", started=started)
        assert started.cancelled()
        assert os.listdir(tmp_path) == []

    run(main)
