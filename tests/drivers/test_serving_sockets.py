"""``serve_tcp`` and ``serve_unix``: many clients, faulty ones, and how many there may be."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from carriers import added
from eachloop import EachLoop, Here
from lifespans import Scope

from mcpio import ConnectFailed, Server
from mcpio._drivers.socket_server import ActiveSet
from mcpio.trio import SocketListening

KINDS = pytest.mark.parametrize("kind", ["tcp", "unix"])


def make_server(**options: Any) -> Server:
    server = Server("here", "1.0", **options)

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    return server


@asynccontextmanager
async def serving(
    here: Here, server: Server, kind: str, path: Path, **options: Any
) -> AsyncIterator[Callable[[], Any]]:
    """Serve for a block; give what opens a client."""
    serve = here.drivers.serve_tcp if kind == "tcp" else partial(here.drivers.serve_unix, path=path / "s")

    def opener(listening: SocketListening) -> Callable[[], Any]:
        if kind == "tcp":
            return partial(here.drivers.open_tcp, "127.0.0.1", listening.port)
        return partial(here.drivers.open_unix, path / "s")

    if here.is_trio:
        async with trio.open_nursery() as nursery:
            listening = await nursery.start(partial(serve, server, **options))
            yield opener(listening)
            nursery.cancel_scope.cancel()
    else:
        started = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(serve(server, started=started, **options))
        listening = await started
        try:
            yield opener(listening)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.mark.req("XPORT-01", "XPORT-03")
@KINDS
def test_many_clients_share_a_server_and_its_lifespan(kind: str, tmp_path: Path, each_loop: EachLoop) -> None:
    scope = Scope()
    server = make_server(lifespan=scope)

    async def main(here: Here) -> None:
        found: list[int] = []

        async def ask(opened: Any, number: int) -> None:
            async with opened() as client:
                found.append(await added(client, number, number))

        async with serving(here, server, kind, tmp_path) as opened:
            async with here.tasks() as tasks:
                for number in range(20):
                    tasks.spawn(ask(opened, number))
            assert scope.seen == ["entered"]
        assert sorted(found) == [2 * number for number in range(20)]

    each_loop.run(main)
    assert (scope.seen, server.sessions, os.listdir(tmp_path)) == (["entered", "left"], (), [])


@KINDS
def test_faulty_client_affects_no_other_client(kind: str, tmp_path: Path, each_loop: EachLoop) -> None:
    server = make_server()

    async def main(here: Here) -> None:
        async with serving(here, server, kind, tmp_path) as opened, opened() as client:
            for rude in (b"", b"\xff\n", b"{}\n" * 50, b"x" * 100_000):
                async with opened() as other:
                    stream = other.driver._adapter.stream
                    await stream.send_all(rude)
                    if here.is_trio:
                        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                        stream.socket.close()
                    else:
                        stream.cut()
                assert await added(client, 1, 1) == 2
            while len(server.sessions) > 1:
                await here.sleep(0.005)

    each_loop.run(main)


@KINDS
def test_beyond_the_limit_clients_wait_until_there_is_room(kind: str, tmp_path: Path, each_loop: EachLoop) -> None:
    server = make_server()

    async def main(here: Here) -> None:
        came = here.event()
        async with serving(here, server, kind, tmp_path, max_connections=1) as opened, here.tasks() as tasks:

            async def come() -> None:
                async with opened() as second:
                    if await added(second, 1, 2) == 3:
                        came.set()

            async with opened() as first:
                tasks.spawn(come())
                await here.sleep(0.05)
                assert (came.is_set(), len(server.sessions), await added(first, 1, 1)) == (False, 1, 2)
                server.sessions[0].close()
                await came.wait()

    each_loop.run(main)


@KINDS
def test_clients_beyond_the_limit_of_an_address_are_rejected(kind: str, tmp_path: Path, each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        async with serving(here, make_server(), kind, tmp_path, max_per_address=1) as opened, opened() as first:
            if kind == "unix":  # without an address
                async with opened() as second:
                    assert await added(second, 1, 1) == 2
            else:
                with pytest.raises(ConnectFailed):
                    await opened().__aenter__()
            assert await added(first, 1, 2) == 3

    each_loop.run(main)


def test_every_listener_accepts_again_after_the_server_was_full(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        ports = [listener.getsockname()[1] for listener in listeners]
        given: Any = listeners
        if here.is_trio:
            given = [trio.SocketListener(trio.socket.from_stdlib_socket(listener)) for listener in listeners]
        async with here.tasks() as tasks:
            serving = tasks.spawn(here.drivers.serve_tcp(make_server(), listeners=given, max_connections=1))
            # One is served; then each listener has one that waits.
            waiting = [socket.create_connection(("127.0.0.1", port)) for port in (ports[0], *ports)]
            await here.sleep(0.2)
            for client in waiting:
                client.close()
            for port in ports:
                async with here.drivers.open_tcp("127.0.0.1", port) as client:
                    assert await added(client, 1, 1) == 2
            serving.cancel()

    each_loop.run(main)


def test_waits_for_the_last_session_end_together(each_virtual_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        members: ActiveSet[str] = ActiveSet(here.loop)
        members.enter("session")
        async with here.tasks() as tasks:
            for _ in range(2):
                tasks.spawn(members.wait_empty())
            await here.settle()
            members.leave("session")

    each_virtual_loop.run(main, virtual=True)
