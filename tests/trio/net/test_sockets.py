"""Clients and servers over TCP and Unix sockets: connecting, who a client is, how many, and how it ends."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from carriers import run, until

from mcpio import Client, CloseReason, ConnectFailed, ConnectionLost, Context, Server
from mcpio.observe import Tap
from mcpio.trio import SocketListening, SocketPeer, open_tcp, open_unix, serve_tcp, serve_unix
from mcpio.types import CallToolRequest

KINDS = ("tcp", "unix")


def make_server(**options: Any) -> Server:
    server = Server("here", "1.0", **options)

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def wait(ctx: Context, seconds: float) -> str:
        await trio.sleep(seconds)
        return "waited"

    @server.tool
    def who(ctx: Context) -> str:
        return repr(ctx.peer.principal)

    return server


@asynccontextmanager
async def serving(server: Server, kind: str, path: Path, **options: Any) -> AsyncIterator[Callable[..., Any]]:
    """Serve for a block; give what opens a client."""
    async with trio.open_nursery() as nursery:
        if kind == "tcp":

            async def serve(*, task_status: trio.TaskStatus[SocketListening]) -> None:
                await serve_tcp(server, 0, task_status=task_status, **options)

            listening = await nursery.start(serve)
            yield lambda **more: open_tcp("127.0.0.1", listening.port, **more)
        else:

            async def serve(*, task_status: trio.TaskStatus[SocketListening]) -> None:
                await serve_unix(server, path / "s", task_status=task_status, **options)

            await nursery.start(serve)
            yield lambda **more: open_unix(path / "s", **more)
        nursery.cancel_scope.cancel()


async def refused(opened: Any) -> None:
    with pytest.raises(ConnectFailed):
        async with opened:
            pass


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_idle_connection_is_closed_unless_a_request_runs(kind: str, tmp_path: Path) -> None:
    server = make_server()

    async def main() -> None:
        async with serving(server, kind, tmp_path, idle_timeout=0.2) as opened, opened() as client:
            result = await client.call_tool("wait", {"seconds": 0.5})
            assert result.text == "waited"
            await client.driver.wait_closed()
            assert client.ended is not None
            assert client.ended.reason is CloseReason.END_OF_FILE

    run(main)


@pytest.mark.parametrize("kind", KINDS)
def test_requests_of_a_half_closed_client_are_answered_within_end_timeout(kind: str, tmp_path: Path) -> None:
    server, ended = make_server(), []

    @server.tool
    async def never() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("never")

    async def main() -> None:
        async with serving(server, kind, tmp_path, end_timeout=0.2, idle_timeout=60) as opened:
            for name, arguments in (("wait", '{"seconds":0.01}'), ("never", "{}")):
                async with opened(era="handshake") as client:
                    driver: Any = client.driver
                    stream = driver._adapter.stream
                    call = '{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"%s","arguments":%s}}\n'
                    await stream.send_all((call % (name, arguments)).encode())
                    await stream.send_eof()
                    await client.driver.wait_closed()
                    assert client.connection.stats.received_bytes > 0
            await until(lambda: not server.sessions)

    run(main)
    assert ended == ["never"]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_shutdown_answers_running_requests_within_the_grace(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        outcomes: list[str] = []

        async def ask(client: Client, seconds: float) -> None:
            try:
                outcomes.append((await client.call_tool("wait", {"seconds": seconds})).text)
            except ConnectionLost:
                outcomes.append("lost")

        async with trio.open_nursery() as nursery:
            async with serving(make_server(), kind, tmp_path, grace=0.5) as opened:
                client = await nursery.start(_held, opened)
                nursery.start_soon(ask, client, 0.1)
                nursery.start_soon(ask, client, 60)
                await trio.sleep(0.05)
            await client.driver.wait_closed()
            await trio.testing.wait_all_tasks_blocked()
        assert outcomes == ["waited", "lost"]

    run(main)


async def _held(opened: Any, task_status: trio.TaskStatus[Client]) -> None:
    async with opened() as client:
        task_status.started(client)
        await client.driver.wait_closed()


@pytest.mark.parametrize("kind", KINDS)
def test_principal_function_names_or_rejects_clients(kind: str, tmp_path: Path) -> None:
    seen: list[SocketPeer] = []
    answers: list[Any] = ["ada", PermissionError("no"), ValueError("broken")]

    async def principal(peer: SocketPeer) -> str:
        seen.append(peer)
        await trio.lowlevel.checkpoint()
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        found: str = answer
        return found

    async def main() -> None:
        async with serving(make_server(), kind, tmp_path, principal=principal) as opened:
            async with opened(era="handshake") as client:
                assert (await client.call_tool("who")).text == "'ada'"
            for _ in range(2):
                await refused(opened(era="handshake"))

    run(main)
    assert [peer.certificate for peer in seen] == [None] * 3
    if kind == "tcp":
        assert (seen[0].address[0], seen[0].user_id) == ("127.0.0.1", None)
    elif hasattr(socket, "SO_PEERCRED"):
        assert seen[0].user_id == os.getuid()


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


@pytest.mark.parametrize("kind", KINDS)
def test_tap_observes_each_session_and_a_failing_tap_ends_only_its_session(kind: str, tmp_path: Path) -> None:
    opened_taps: list[Tap] = []

    class Counting(Tap):
        def opened(self, connection: Any, now: float) -> None:
            opened_taps.append(self)
            if len(opened_taps) == 2:
                raise ValueError("no")

    async def main() -> None:
        async with serving(make_server(), kind, tmp_path, tap=Counting) as opened:
            async with opened(era="handshake") as client:
                await client.ping()
            await refused(opened(era="handshake"))
            async with opened(era="handshake") as client:
                await client.ping()

    run(main)
    assert len(opened_taps) == 3


def test_tasks_outlive_the_connection_that_started_them(tmp_path: Path) -> None:
    server = make_server()
    done: list[str] = []

    @server.tool(task_support="optional")
    async def slow() -> str:
        await trio.sleep(0.1)
        done.append("done")
        return "done"

    async def main() -> None:
        async with serving(server, "unix", tmp_path) as opened:
            async with opened(era="handshake") as client:
                await client.start_task(CallToolRequest("slow"))
            await until(lambda: bool(done))

    run(main)
    assert done == ["done"]


def test_system_exit_of_a_handler_propagates_unwrapped(tmp_path: Path) -> None:
    server = make_server()

    @server.tool
    def leave() -> None:
        raise SystemExit(3)

    async def main() -> None:
        async with serving(server, "unix", tmp_path) as opened, opened() as client:
            with suppress(ConnectionLost):
                await client.call_tool("leave")
            await trio.sleep_forever()

    with pytest.RaisesGroup(SystemExit, allow_unwrapped=True, flatten_subgroups=True):
        run(main)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"ssl_context": 5}, TypeError),
        ({"max_connections": "many"}, TypeError),
        ({"max_per_address": "few"}, TypeError),
        ({"max_per_address": 0}, ValueError),
        ({"handshake_timeout": -1}, ValueError),
        ({"grace": -1}, ValueError),
        ({"idle_timeout": "soon"}, ValueError),
    ],
)
def test_invalid_options_raise_and_close_the_listeners(wrong: dict[str, Any], error: type[Exception]) -> None:
    async def main() -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        await listener.aclose()
        with pytest.raises(error):
            await serve_tcp(make_server(), port, **wrong)
        # With no listener left behind, which would be a warning too.
        with pytest.raises(OSError, match=r"refused|failed"):
            await trio.open_tcp_stream("127.0.0.1", port)

    run(main)


def test_unknown_options_are_refused() -> None:
    async def main() -> None:
        wrong: Any = {"colour": 1}
        for serve in (partial(serve_tcp, make_server()), partial(serve_unix, make_server(), "/nowhere")):
            with pytest.raises(TypeError, match="unknown option 'colour'"):
                await serve(**wrong)
        for opened in (open_tcp("127.0.0.1", 1, **wrong), open_unix("/nowhere", **wrong)):
            with pytest.raises(TypeError, match="unknown option 'colour'"):
                async with opened:
                    pass

    run(main)
