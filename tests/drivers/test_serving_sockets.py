"""``serve_tcp`` and ``serve_unix`` on each loop: who a client is, how many there may be, and how serving ends."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from carriers import added
from certificates import serving_as, trusting
from eachloop import EachLoop, Here, on_each_loop, on_each_virtual_loop
from lifespans import Scope

from mcpio import Client, CloseReason, ConnectFailed, ConnectionLost, Context, Server
from mcpio._drivers.socket_server import ActiveSet
from mcpio.observe import Tap
from mcpio.trio import SocketPeer
from mcpio.types import CallToolRequest

KINDS = pytest.mark.parametrize("kind", ["tcp", "unix"])


def make_server(**options: Any) -> Server:
    server = Server("here", "1.0", **options)

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def wait(ctx: Context, seconds: float) -> str:
        ctx.progress(1)
        await ctx.sleep(seconds)
        return "waited"

    @server.tool
    def who(ctx: Context) -> str:
        return repr(ctx.peer.principal)

    return server


@asynccontextmanager
async def serving(
    here: Here, server: Server, kind: str, path: Path, **options: Any
) -> AsyncIterator[Callable[..., Any]]:
    """Serve for a block; give what opens a client."""
    if kind == "unix":
        options["path"] = path / "s"
    async with here.listening(kind, server, **options) as (at, _):
        yield (
            partial(here.drivers.open_tcp, at.host, at.port)
            if kind == "tcp"
            else partial(here.drivers.open_unix, path / "s")
        )


async def refused(opened: Any) -> None:
    with pytest.raises(ConnectFailed):
        async with opened:
            pass


def given_to(here: Here, sockets: list[socket.socket]) -> list[Any]:
    """Return sockets that listen, as the loop's ``listeners=``."""
    if here.is_trio:
        return [trio.SocketListener(trio.socket.from_stdlib_socket(each)) for each in sockets]
    return list(sockets)


# Many clients


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
@on_each_loop
async def test_clients_beyond_the_limit_of_an_address_are_rejected(here: Here, kind: str, tmp_path: Path) -> None:
    async with serving(here, make_server(), kind, tmp_path, max_per_address=1) as opened, opened() as first:
        if kind == "unix":  # without an address
            async with opened() as second:
                assert await added(second, 1, 1) == 2
        else:
            await refused(opened())
        assert await added(first, 1, 2) == 3


@KINDS
def test_tap_observes_each_session_and_a_failing_tap_ends_only_its_session(
    kind: str, tmp_path: Path, each_loop: EachLoop
) -> None:
    opened_taps: list[Tap] = []

    class Counting(Tap):
        def opened(self, connection: Any, now: float) -> None:
            opened_taps.append(self)
            if len(opened_taps) == 2:
                raise ValueError("no")

    async def main(here: Here) -> None:
        async with serving(here, make_server(), kind, tmp_path, tap=Counting) as opened:
            async with opened(era="handshake") as client:
                await client.ping()
            await refused(opened(era="handshake"))
            async with opened(era="handshake") as client:
                await client.ping()

    each_loop.run(main)
    assert len(opened_taps) == 3


def test_tasks_outlive_the_connection_that_started_them(tmp_path: Path, each_loop: EachLoop) -> None:
    server = make_server()
    done: list[str] = []

    @server.tool(task_support="optional")
    async def slow(ctx: Context) -> str:
        await ctx.sleep(0.1)
        done.append("done")
        return "done"

    async def main(here: Here) -> None:
        async with serving(here, server, "unix", tmp_path) as opened:
            async with opened(era="handshake") as client:
                await client.start_task(CallToolRequest("slow"))
            while not done:
                await here.sleep(0.005)

    each_loop.run(main)
    assert done == ["done"]


# Who a client is


@KINDS
def test_principal_function_names_or_rejects_clients(kind: str, tmp_path: Path, each_loop: EachLoop) -> None:
    seen: list[SocketPeer] = []
    answers: list[Any] = ["ada", PermissionError("no"), ValueError("broken")]

    async def main(here: Here) -> None:
        async def principal(peer: SocketPeer) -> Any:
            seen.append(peer)
            await here.checkpoint()
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        async with serving(here, make_server(), kind, tmp_path, principal=principal) as opened:
            async with opened(era="handshake") as client:
                assert (await client.call_tool("who")).text == "'ada'"
            for _ in range(2):
                await refused(opened(era="handshake"))

    each_loop.run(main)
    assert [peer.certificate for peer in seen] == [None] * 3
    if kind == "tcp":
        assert (seen[0].address[0], seen[0].user_id) == ("127.0.0.1", None)
    elif hasattr(socket, "SO_PEERCRED"):
        assert seen[0].user_id == os.getuid()


def test_failing_principal_function_is_logged_and_rejects_one_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, each_loop: EachLoop
) -> None:
    def find(_: SocketPeer) -> str:
        raise KeyError("unknown")

    async def main(here: Here) -> None:
        async with serving(here, make_server(), "unix", tmp_path, principal=find) as opened:
            await refused(opened())

    each_loop.run(main)
    # A client whose first connection ends tries the handshake on a second one.
    message = "the principal of a connection could not be found"
    assert caplog.messages == [message, f"{message} again: KeyError('unknown')"]


def test_tls_tells_who_a_client_is_and_a_failed_handshake_costs_only_itself(
    tmp_path: Path, each_loop: EachLoop
) -> None:
    context = serving_as("localhost", asks=ssl.CERT_OPTIONAL)

    async def main(here: Here) -> None:
        served = serving(here, make_server(), "tcp", tmp_path, ssl_context=context, handshake_timeout=0.2)
        async with served as opened:
            await refused(opened())  # speaks no TLS
            with pytest.raises(ConnectFailed) as caught:
                await opened(ssl_context=trusting()).__aenter__()  # expects a certificate for the address
            assert isinstance(caught.value.__cause__, ssl.SSLError)
            as_ada = trusting(shows=("ada@localhost", "ada"))
            async with opened(ssl_context=as_ada, server_hostname="localhost") as client:
                assert "ada" in (await client.call_tool("who")).text
                assert await added(client, 1, 1) == 2

    each_loop.run(main)


# Clients that do nothing, and the end


@pytest.mark.parametrize("option", ["first_message_timeout", "idle_timeout"])
def test_silent_client_is_disconnected(option: str, tmp_path: Path, each_loop: EachLoop) -> None:
    server = make_server()

    async def main(here: Here) -> None:
        async with serving(here, server, "unix", tmp_path, **{option: 0.03}):
            stream = await here.loop.open_stream("", 0, os.fspath(tmp_path / "s"))
            assert await stream.receive_some() == b""
            await stream.aclose()
            while server.sessions:
                await here.sleep(0.005)

    each_loop.run(main)


@pytest.mark.long
@KINDS
@on_each_loop
async def test_idle_connection_is_closed_unless_a_request_runs(here: Here, kind: str, tmp_path: Path) -> None:
    async with serving(here, make_server(), kind, tmp_path, idle_timeout=0.2) as opened, opened() as client:
        assert (await client.call_tool("wait", {"seconds": 0.5})).text == "waited"
        await client.driver.wait_closed()
        assert client.ended is not None
        assert client.ended.reason is CloseReason.END_OF_FILE


@KINDS
def test_requests_of_a_half_closed_client_are_answered_within_end_timeout(
    kind: str, tmp_path: Path, each_loop: EachLoop
) -> None:
    server, ended = make_server(), []

    @server.tool
    async def never(ctx: Context) -> None:
        try:
            await ctx.sleep(1000)
        finally:
            ended.append("never")

    async def main(here: Here) -> None:
        async with serving(here, server, kind, tmp_path, end_timeout=0.2, idle_timeout=60) as opened:
            for name, arguments in (("wait", '{"seconds":0.01}'), ("never", "{}")):
                async with opened(era="handshake") as client:
                    stream = client.driver._adapter.stream
                    call = '{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"%s","arguments":%s}}\n'
                    await stream.send_all((call % (name, arguments)).encode())
                    await stream.send_eof()
                    await client.driver.wait_closed()
                    assert client.connection.stats.received_bytes > 0
            while server.sessions:
                await here.sleep(0.005)

    each_loop.run(main)
    assert ended == ["never"]


@KINDS
@on_each_loop
async def test_shutdown_answers_running_requests_within_the_grace(here: Here, kind: str, tmp_path: Path) -> None:
    outcomes: list[str] = []
    clients: list[Client] = []
    connected, run = here.event(), [here.event(), here.event()]

    async def hold(opened: Any) -> None:
        async with opened() as client:
            clients.append(client)
            connected.set()
            await client.driver.wait_closed()

    async def ask(seconds: float, runs: Any) -> None:
        try:
            call = clients[0].call_tool("wait", {"seconds": seconds}, on_progress=lambda *_: runs.set())
            outcomes.append((await call).text)
        except ConnectionLost:
            outcomes.append("lost")

    async with here.tasks() as tasks, serving(here, make_server(), kind, tmp_path, grace=0.5) as opened:
        tasks.spawn(hold(opened))
        await connected.wait()
        for seconds, runs in zip((0.1, 60), run, strict=True):
            tasks.spawn(ask(seconds, runs))
            await runs.wait()
    assert outcomes == ["waited", "lost"]


# Addresses, listeners and files


@on_each_loop
async def test_server_reports_its_address_and_an_address_in_use_is_named(here: Here) -> None:
    async with here.listening("tcp", make_server()) as (listening, _):
        assert (listening.host, listening.port > 0) == ("127.0.0.1", True)
        with pytest.raises(OSError, match=r"in use|unable to bind") as caught:
            await here.drivers.serve_tcp(make_server(), listening.port)
        assert caught.value.errno in (errno.EADDRINUSE, None)
        assert f"127.0.0.1 port {listening.port}" in str(caught.value)


@on_each_loop
async def test_given_listeners_are_served_and_closed(here: Here, tmp_path: Path) -> None:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]  # they block, as sockets do
    ports = [each.getsockname()[1] for each in sockets]
    async with here.listening("tcp", make_server(), listeners=given_to(here, sockets)) as (listening, _):
        assert listening.port == ports[0]
        for port in ports:
            async with here.drivers.open_tcp("127.0.0.1", port) as client:
                assert await added(client, 1, 1) == 2
    assert [each.fileno() for each in sockets] == [-1, -1]


@on_each_loop
async def test_every_listener_accepts_again_after_the_server_was_full(here: Here) -> None:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [listener.getsockname()[1] for listener in listeners]
    async with here.tasks() as tasks:
        given = given_to(here, listeners)
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


SERVES = pytest.mark.parametrize("serve", ["serve_tcp", "serve_http", "serve_websocket"])


@SERVES
@on_each_loop
async def test_listeners_that_are_none_raise(here: Here, serve: str) -> None:
    serves = getattr(here.drivers, serve)
    with pytest.raises(ValueError, match="listeners must be at least one that listens"):
        await serves(Server("s"), listeners=[])
    with socket.create_server(("127.0.0.1", 0)) as plain:
        wrong: Any = 3
        advice = "listeners must be socket, not 3"
        if here.is_trio:
            wrong, advice = plain, r"not <socket.socket .*from_stdlib_socket\(sock\)\) makes one"
        with pytest.raises(TypeError, match=advice):
            await serves(Server("s"), listeners=[wrong])


@SERVES
@pytest.mark.parametrize("handles_signals", [False, True])
@pytest.mark.parametrize("grace", ["1", -1, True])
@on_each_loop
async def test_grace_that_is_no_time_raises(here: Here, serve: str, handles_signals: bool, grace: Any) -> None:
    with pytest.raises(ValueError, match="grace must be a number of seconds"):
        await getattr(here.drivers, serve)(Server("s"), port=0, grace=grace, handle_signals=handles_signals)


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
@on_each_loop
async def test_invalid_options_raise_and_close_the_listeners(
    here: Here, wrong: dict[str, Any], error: type[Exception]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(error):
        await here.drivers.serve_tcp(make_server(), port, **wrong)
    # With no listener left behind, which would be a warning too.
    with pytest.raises(OSError, match=r"refused|failed"):
        await here.loop.open_stream("127.0.0.1", port, None)


@on_each_loop
async def test_unknown_options_are_refused(here: Here) -> None:
    wrong: Any = {"colour": 1}
    drivers = here.drivers
    for serve in (
        partial(drivers.serve_tcp, make_server()),
        partial(drivers.serve_unix, make_server(), "/nowhere"),
    ):
        with pytest.raises(TypeError, match="unknown option 'colour'"):
            await serve(**wrong)
    for opened in (drivers.open_tcp("127.0.0.1", 1, **wrong), drivers.open_unix("/nowhere", **wrong)):
        with pytest.raises(TypeError, match="unknown option 'colour'"):
            async with opened:
                pass


@pytest.mark.parametrize("mode", [None, 0o660])
def test_the_file_of_a_unix_socket_has_its_mode_is_replaced_when_stale_and_is_removed(
    mode: int | None, tmp_path: Path, each_loop: EachLoop
) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(os.fspath(path))
    options = {} if mode is None else {"mode": mode}

    async def main(here: Here) -> None:
        async with here.listening("unix", make_server(), path=path, **options) as (listening, _):
            assert (listening.host, listening.port) == (None, None)
            assert stat.S_IMODE(path.stat().st_mode) == (mode or 0o600)
            with pytest.raises(OSError, match="another server listens") as caught:
                await here.drivers.serve_unix(make_server(), path)
            assert caught.value.errno == errno.EADDRINUSE
            async with here.drivers.open_unix(path) as client:
                assert await added(client, 2, 3) == 5

    each_loop.run(main)
    assert not path.exists()


@on_each_virtual_loop
async def test_waits_for_the_last_session_end_together(here: Here) -> None:
    members: ActiveSet[str] = ActiveSet(here.loop)
    members.enter("session")
    async with here.tasks() as tasks:
        for _ in range(2):
            tasks.spawn(members.wait_empty())
        await here.settle()
        members.leave("session")
