"""Where servers on sockets listen: addresses, the files of Unix sockets, and who finds whom there."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import stat
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from carriers import added, make_server, run, until
from certificates import serving_as
from triowire import MemoryListener, in_virtual_time

from mcpio import ConnectFailed
from mcpio.trio import SocketListening, open_tcp, open_unix, serve_tcp, serve_unix
from mcpio.trio._event_loop import keep_tcp_alive

# TCP


def test_started_server_reports_its_address_and_given_listeners_are_used() -> None:
    server = make_server()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            listening = await nursery.start(serve_tcp, server)
            assert (listening.host, listening.port > 0) == ("127.0.0.1", True)
            with pytest.raises(OSError, match=r"in use|unable to bind") as caught:
                await serve_tcp(server, listening.port)
            assert caught.value.errno in (errno.EADDRINUSE, None)
            assert f"127.0.0.1 port {listening.port}" in str(caught.value)
            own = await trio.open_tcp_listeners(0, host="127.0.0.1")

            async def serve(*, task_status: trio.TaskStatus[SocketListening]) -> None:
                await serve_tcp(server, listeners=own, task_status=task_status)

            other = await nursery.start(serve)
            assert other.port == own[0].socket.getsockname()[1]
            nursery.cancel_scope.cancel()
        assert own[0].socket.fileno() == -1

    run(main)


def test_listeners_that_are_closed_end_the_server() -> None:
    async def main() -> None:
        own = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(serve_tcp, make_server(), listeners=own))
            async with open_tcp("127.0.0.1", own[0].socket.getsockname()[1]) as client:
                assert await added(client, 1, 1) == 2
            await own[0].aclose()

    run(main)


def test_all_listeners_are_closed_in_the_end() -> None:
    async def main() -> None:
        own = [*await trio.open_tcp_listeners(0, host="127.0.0.1"), *await trio.open_tcp_listeners(0, host="127.0.0.1")]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(serve_tcp, make_server(), listeners=own))
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert [each.socket.fileno() for each in own] == [-1, -1]

    run(main)


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="this system names it otherwise, or not at all")
@pytest.mark.parametrize(("seconds", "asked"), [(0.5, 1), (60.0, 60), (1e12, 32767)])
def test_tcp_keep_alive_is_enabled_where_supported(seconds: float, asked: int) -> None:
    async def main() -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with listener, await trio.open_tcp_stream(*listener.socket.getsockname()) as stream:
            keep_tcp_alive(stream, seconds)
            assert stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == asked

    trio.run(main)


def test_refused_connection_error_names_the_address() -> None:
    async def main() -> None:
        with pytest.raises(ConnectFailed, match=r"no connection to 127\.0\.0\.1:1: .*Connection refused") as caught:
            async with open_tcp("127.0.0.1", 1):
                pass
        assert isinstance(caught.value.__cause__, OSError)
        with pytest.raises(ConnectFailed, match="no connection to /nowhere/s: "):
            async with open_unix("/nowhere/s"):
                pass
        with pytest.raises(ConnectFailed, match=r"no connection to a\.\.b:1: ") as caught:
            async with open_tcp("a..b", 1):
                pass
        assert isinstance(caught.value.__cause__, UnicodeError)

    run(main)


def test_client_cancelled_while_connecting_raises_only_cancelled() -> None:
    async def main() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            with pytest.raises(trio.Cancelled):
                async with open_tcp("127.0.0.1", 1):
                    pass

    run(main)


@pytest.mark.parametrize("secured", [False, True])
def test_client_waiting_for_admission_is_disconnected_at_shutdown(secured: bool) -> None:
    async def main() -> None:
        listener = MemoryListener()
        context = serving_as("localhost") if secured else None
        serve = partial(serve_tcp, make_server(), listeners=[listener], principal=_for_ever, ssl_context=context)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            client = listener.connect()
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        with trio.fail_after(1):
            assert await client.receive_some() == b""

    in_virtual_time(main)


async def _for_ever(peer: object) -> None:
    await trio.sleep_forever()


def test_unaccepted_connection_times_out() -> None:
    async def main() -> None:
        held = socket.socket()
        held.bind(("127.0.0.1", 0))
        held.listen(0)
        context = ssl.create_default_context()
        with pytest.raises(ConnectFailed, match=r"within 0\.1 s"):
            async with open_tcp("127.0.0.1", held.getsockname()[1], ssl_context=context, connect_timeout=0.1):
                pass
        held.close()

    run(main)


# Unix sockets


def test_the_file_of_a_unix_socket_has_its_mode_is_replaced_when_stale_and_is_removed(tmp_path: Path) -> None:
    server, path = make_server(), tmp_path / "s"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(os.fspath(path))
    stale.close()

    async def serve(*, task_status: trio.TaskStatus[SocketListening]) -> None:
        await serve_unix(server, path, mode=0o660, task_status=task_status)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            listening = await nursery.start(serve)
            assert (listening.host, listening.port) == (None, None)
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
            with pytest.raises(OSError, match="another server listens") as caught:
                await serve_unix(server, path)
            assert caught.value.errno == errno.EADDRINUSE
            async with open_unix(path) as client:
                assert await added(client, 2, 3) == 5
            nursery.cancel_scope.cancel()

    run(main)
    assert not path.exists()


def test_only_one_of_several_servers_replaces_a_stale_socket_file(tmp_path: Path) -> None:
    server, path = make_server(), tmp_path / "s"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(os.fspath(path))
    stale.close()
    refusals: list[int | None] = []

    async def main() -> None:
        ready = trio.Event()

        async def serve() -> None:
            try:
                await serve_unix(server, path, task_status=status)
            except OSError as error:
                refusals.append(error.errno)

        class Status:
            def started(self, _: SocketListening) -> None:
                ready.set()

        status: Any = Status()
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(serve)
            await ready.wait()
            await until(lambda: len(refusals) == 7)
            async with open_unix(path) as client:
                assert await added(client, 2, 3) == 5
            nursery.cancel_scope.cancel()

    run(main)
    assert refusals == [errno.EADDRINUSE] * 7
    assert os.listdir(tmp_path) == []


def test_locked_directory_raises_after_the_timeout(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)

    async def main() -> None:
        with pytest.raises(BlockingIOError):
            await serve_unix(make_server(), tmp_path / "s")

    try:
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    finally:
        os.close(held)


def test_foreign_file_at_the_path_is_kept(tmp_path: Path) -> None:
    server, path = make_server(), tmp_path / "s"
    path.write_text("precious")

    async def main() -> None:
        with pytest.raises(FileExistsError):
            await serve_unix(server, path)
        assert path.read_text() == "precious"
        path.unlink()
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_unix, server, path)
            path.unlink()
            path.write_text("another")
            nursery.cancel_scope.cancel()
        assert path.read_text() == "another"

    run(main)
