"""Where servers on sockets listen: addresses, the files of Unix sockets, and who finds whom there."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from carriers import added, make_server, run, until
from certificates import serving_as
from runners import run_by
from triowire import MemoryListener, in_virtual_time

from mcpio import ConnectionLost
from mcpio.trio import SocketListening, SocketPeer, open_tcp, open_unix, serve_tcp, serve_unix
from mcpio.trio._event_loop import keep_tcp_alive

# TCP


@run_by(run)
async def test_listeners_that_are_closed_end_the_server() -> None:
    own = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve_tcp, make_server(), listeners=own))
        async with open_tcp("127.0.0.1", own[0].socket.getsockname()[1]) as client:
            assert await added(client, 1, 1) == 2
        await own[0].aclose()


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="this system names it otherwise, or not at all")
@pytest.mark.parametrize(("seconds", "asked"), [(0.5, 1), (60.0, 60), (1e12, 32767)])
@run_by(trio.run)
async def test_tcp_keep_alive_is_enabled_where_supported(seconds: float, asked: int) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener, await trio.open_tcp_stream(*listener.socket.getsockname()) as stream:
        keep_tcp_alive(stream, seconds)
        assert stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == asked


@run_by(run)
async def test_client_cancelled_while_connecting_raises_only_cancelled() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        with pytest.raises(trio.Cancelled):
            async with open_tcp("127.0.0.1", 1):
                pass


@pytest.mark.parametrize("secured", [False, True])
@run_by(in_virtual_time)
async def test_client_waiting_for_admission_is_disconnected_at_shutdown(secured: bool) -> None:
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


async def _for_ever(peer: object) -> None:
    await trio.sleep_forever()


def test_system_exit_of_a_handler_propagates_unwrapped() -> None:
    server = make_server()

    @server.tool
    def leave() -> None:
        raise SystemExit(3)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            listening = await nursery.start(serve_tcp, server)
            async with open_tcp(listening.host, listening.port) as client:
                with suppress(ConnectionLost):
                    await client.call_tool("leave")
                await trio.sleep_forever()

    with pytest.RaisesGroup(SystemExit, allow_unwrapped=True, flatten_subgroups=True):
        run(main)


def test_client_whose_principal_is_not_found_in_time_is_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    clock, ended = trio.testing.MockClock(), list[str]()

    async def main() -> None:
        asked = trio.Event()

        async def principal(peer: SocketPeer) -> str:
            asked.set()
            try:
                await trio.sleep_forever()
            finally:
                ended.append("cancelled")

        async with trio.open_nursery() as nursery:
            listening = await nursery.start(partial(serve_tcp, make_server(), 0, principal=principal))
            async with await trio.open_tcp_stream("127.0.0.1", listening.port) as stream:
                await asked.wait()
                clock.jump(29.9)
                await trio.testing.wait_all_tasks_blocked()
                assert not ended
                clock.jump(0.2)
                await trio.testing.wait_all_tasks_blocked()
                assert ended == ["cancelled"]
                with suppress(trio.BrokenResourceError):
                    assert await stream.receive_some() == b""
            nursery.cancel_scope.cancel()

    trio.run(main, clock=clock)
    assert "was not found within 30.0 seconds" in caplog.text


# Unix sockets


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
