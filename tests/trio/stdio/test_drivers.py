"""Clients and servers over standard input and output, with real processes on the other side."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from mcpio import Server
from mcpio.errors import ConnectFailed, ConnectionLost, NoBackChannel
from mcpio.trio import connect_stdio, open_stdio, serve_stdio
from mcpio.trio._stdio.drivers import StdioClient
from mcpio.types.content import TextContent

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")

SERVER = """
import os, sys
from contextlib import asynccontextmanager
import trio
from mcpio import Context, Server
from mcpio.trio import serve_stdio

@asynccontextmanager
async def lifespan(server):
    print("entered", file=sys.stderr)
    try:
        yield
    finally:
        print("left", file=sys.stderr)

server = Server("real", lifespan=lifespan)

@server.tool
def echo(text: str) -> str:
    print("a stray line from a handler")
    os.write(1, b"and one from C\\n")
    return text

@server.tool
async def later(seconds: float) -> str:
    await trio.sleep(seconds)
    return "later"

@server.tool
async def never_ends(ctx: Context) -> None:
    ctx.progress(1)
    try:
        await trio.sleep_forever()
    finally:
        print("never_ends was cancelled", file=sys.stderr)

@server.tool
async def dies(status: int) -> None:
    print("something terrible", file=sys.stderr)
    print("has happened", file=sys.stderr, flush=True)
    os._exit(status)

@server.tool(blocking=True)
def blocks() -> None:
    import time
    time.sleep(60)

trio.run(serve_stdio, server)
"""

RAW = """
import json, os, sys

def answer(request, **result):
    os.write(1, json.dumps({"jsonrpc": "2.0", "id": request["id"], **result}).encode() + b"\\n")

def greet():
    request = json.loads(sys.stdin.readline())
    info = {"name": "raw", "version": "1"}
    answer(request, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
    return json.loads(sys.stdin.readline())

def call():
    return json.loads(sys.stdin.readline())
"""
"""A server without a library, which starts quickly and does what a test adds."""


def python(source: str) -> list[str]:
    return [sys.executable, "-c", source]


def raw(source: str) -> list[str]:
    return [sys.executable, "-S", "-c", RAW + source]


POLITE = raw("greet()\nfor line in sys.stdin:\n    answer(json.loads(line), result={'content': []})")

HELLO: dict[str, Any] = {
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}


def lines(*messages: dict[str, Any]) -> bytes:
    return b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages)


def tool(id: int, name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments, "_meta": {"progressToken": id}}
    return {"id": id, "method": "tools/call", "params": params}


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# Our server


def told(err: bytes) -> list[str]:
    """Return the lines on standard error, but no reports of slow handlers: a busy machine slows any."""
    return [line for line in err.decode().splitlines() if "held up everything else" not in line]


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []

    def start(source: str = SERVER) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        processes.append(subprocess.Popen(python(source), stdin=pipe, stdout=pipe, stderr=pipe))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.req("STDIO-01", "STDIO-04", "STDIO-09")
def test_the_end_of_input_ends_a_server_when_its_answers_are_out(
    started: Callable[[], subprocess.Popen[bytes]],
) -> None:
    process = started()
    asked = [HELLO, tool(1, "later", seconds=0.3), tool(2, "echo", text="hi"), tool(3, "later", seconds=0.1)]
    out, err = process.communicate(lines(*asked), timeout=20)
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer["id"] for answer in answers] == [0, 2, 3, 1]
    assert all(answer["result"] for answer in answers)
    assert process.returncode == 0
    assert told(err) == ["entered", "a stray line from a handler", "and one from C", "left"]


@pytest.mark.parametrize("handler", ["never_ends", "blocks"])
def test_a_signal_ends_a_server_in_the_middle_of_a_call(
    handler: str, started: Callable[[], subprocess.Popen[bytes]]
) -> None:
    process = started()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(lines(HELLO, tool(1, handler), {"id": 2, "method": "ping"}))
    process.stdin.flush()
    while b'"id":2' not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 143
    cancelled = ["never_ends was cancelled"] * (handler == "never_ends")
    assert told(err) == ["entered", *cancelled, "left"]


def test_a_server_whose_client_was_killed_ends_though_a_handler_never_does(
    started: Callable[..., subprocess.Popen[bytes]],
) -> None:
    run = "from functools import partial\ntrio.run(partial(serve_stdio, server, end_timeout=0.2))"
    process = started(SERVER.replace("trio.run(serve_stdio, server)", run))
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(lines(HELLO, tool(1, "never_ends"), {"id": 2, "method": "ping"}))
    process.stdin.flush()
    while b'"id":2' not in process.stdout.readline():
        pass
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert told(err) == ["entered", "never_ends was cancelled", "left"]


@pytest.mark.parametrize(("given", "used"), [({}, 10.0), ({"end_timeout": None}, None), ({"end_timeout": 3}, 3)])
def test_end_timeout_defaults_to_ten_seconds(given: Any, used: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []

    async def serve(server: object, stream: object, *, end_timeout: float | None, **more: Any) -> None:
        found.append(end_timeout)

    monkeypatch.setattr("mcpio.trio._stdio.drivers.serve", serve)
    trio.run(partial(serve_stdio, Server("s"), **given))
    assert found == [used]


# Our client


@pytest.mark.req("STDIO-01", "STDIO-05", "STDIO-06", "STDIO-07", "STDIO-10", "STDIO-13")
def test_a_conversation() -> None:
    async def main() -> None:
        err: list[str] = []
        async with open_stdio(python(SERVER), stderr=err.append, era="handshake") as client:
            result = await client.call_tool("echo", {"text": "hi"})
            assert result.content == (TextContent("hi"),)
            assert is_running(client.child.pid)
            with trio.move_on_after(0.05):
                await client.call_tool("never_ends")
            await client.ping()
        assert client.child.returncode == 0
        assert not is_running(client.child.pid)
        assert err == [
            "entered", "a stray line from a handler", "and one from C", "never_ends was cancelled", "left"
        ]  # fmt: skip

    trio.run(main)


def test_a_client_that_is_tied_to_no_block() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            client = await connect_stdio(POLITE, nursery=nursery, era="handshake")
            await client.call_tool("any")
            await client.aclose()
            assert client.child.returncode == 0
            await client.aclose()
            with pytest.raises(NoBackChannel, match=r"^the connection is closed$"):
                await client.ping()

    trio.run(main)


def test_a_cancelled_block_ends_a_server_that_would_go_on_with_its_call() -> None:
    async def main() -> None:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            client = await connect_stdio(
                python(SERVER), nursery=nursery, close_grace=20, stderr="discard", era="handshake"
            )
            await client.call_tool("never_ends", on_progress=lambda *_: nursery.cancel_scope.cancel())
        assert client.child.returncode == 0
        assert trio.current_time() - began < 15

    trio.run(main)


def test_an_option_that_there_is_not_starts_no_process() -> None:
    async def main() -> None:
        wrong: Any = {"environ": {}}
        with pytest.raises(TypeError, match=r"^unknown option 'environ'; the options are .*\bcwd, .*\bsampling"):
            async with open_stdio(["/no/such/program"], **wrong):
                pytest.fail("there is none")

    trio.run(main)


# Servers that die


def test_error_of_a_call_names_the_servers_exit_status() -> None:
    async def main() -> None:
        source = "greet()\ncall()\nprint('something terrible\\nhas happened', file=sys.stderr)\nsys.exit(3)"
        async with open_stdio(raw(source), stderr="capture", era="handshake") as client:
            with pytest.raises(ConnectionLost) as caught:
                await client.call_tool("any")
            assert str(caught.value) == (
                "tools/call: the connection ended (closed by the peer): "
                f"{sys.executable!r} exited with status 3; the end of its standard error:\n"
                "something terrible\nhas happened"
            )
            await client.driver.wait_closed()
            with pytest.raises(NoBackChannel, match=r"^the connection is closed: .* exited with status 3; the end"):
                await client.ping()

    trio.run(main)


def test_killed_server_fails_every_call_with_its_signal() -> None:
    count = 300  # More than the session acts on at once.

    async def main() -> None:
        lost: list[str] = []

        async def call(client: StdioClient) -> None:
            try:
                await client.call_tool("any")
            except ConnectionLost as error:
                lost.append(error.reason)

        async with open_stdio(raw("greet()\nfor line in sys.stdin: pass"), era="handshake") as client:
            async with trio.open_nursery() as nursery:
                for _ in range(count):
                    nursery.start_soon(call, client)
                await trio.testing.wait_all_tasks_blocked()
                os.kill(client.child.pid, signal.SIGKILL)
            assert len(lost) == count
            assert all(reason.endswith(f"{sys.executable!r} was ended by SIGKILL") for reason in lost)

    trio.run(main)


def test_a_client_that_closes_does_not_blame_the_server() -> None:
    async def main() -> None:
        async with (
            open_stdio(raw("greet()\nfor line in sys.stdin: pass"), era="handshake") as client,
            trio.open_nursery() as nursery,
        ):

            async def call() -> None:
                with pytest.raises(ConnectionLost, match=r"^tools/call: the connection ended \(closed here\)$"):
                    await client.call_tool("any")

            nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
            client.close()

    trio.run(main)


LOST = "initialize: the connection ended (closed by the peer): {program!r}"

ANSWERS_WITH_AN_ERROR = """
print("no", file=sys.stderr, flush=True)
answer(json.loads(sys.stdin.readline()), error={"code": 1, "message": "go away"})
sys.stdin.read()
"""

BAD_STARTS = {
    "exits at once": (
        "print('no key', file=sys.stderr); sys.exit(2)",
        f"{LOST} exited with status 2; the end of its standard error:\nno key",
    ),
    "is killed": ("sys.stdin.readline(); os.kill(os.getpid(), 6)", f"{LOST} was ended by SIGABRT"),
    "closes its output": ("os.close(1); sys.stdin.read(); import time; time.sleep(20)", f"{LOST} has not exited"),
    "answers with an error": (ANSWERS_WITH_AN_ERROR, "go away (1); the end of the server's standard error:\nno"),
}


@pytest.mark.parametrize(("source", "message"), BAD_STARTS.values(), ids=BAD_STARTS)
def test_handshake_error_tells_how_the_child_ended(source: str, message: str) -> None:
    async def main() -> None:
        with pytest.raises(ConnectFailed) as caught:
            async with open_stdio(raw(source), stderr="capture", close_grace=0.1, era="handshake"):
                pytest.fail("there was no handshake")
        assert str(caught.value) == "the handshake failed: " + message.format(program=sys.executable)

    trio.run(main)


def test_a_program_that_does_not_start() -> None:
    async def main() -> None:
        with pytest.raises(ConnectFailed, match=r"^cannot start '/no/such/program': no such program$") as caught:
            async with open_stdio(["/no/such/program"], era="handshake"):
                pytest.fail("there is none")
        assert isinstance(caught.value.__cause__, FileNotFoundError)
        async with trio.open_nursery() as nursery:
            with pytest.raises(ConnectFailed, match="no such program"):
                await connect_stdio(["/no/such/program"], nursery=nursery, era="handshake")

    trio.run(main)


# P9


def test_any_number_of_clients_closed_in_any_order_from_anywhere() -> None:
    """Clients in tasks of their own; closed by other tasks, a thread and a signal handler; no process is left."""
    chance = random.Random(5)
    clients: list[StdioClient] = []
    count, all_open = 8, trio.Event()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(hold_block if number % 2 else hold_none, nursery)
            await all_open.wait()
            previous = signal.signal(signal.SIGUSR1, lambda *_: clients[0].close())
            try:
                signal.raise_signal(signal.SIGUSR1)
                for client in chance.sample(clients * 2, 2 * count):
                    nursery.start_soon(chance.choice([close, close_in_thread, wait_too]), client)
            finally:
                signal.signal(signal.SIGUSR1, previous)

    async def hold_block(_: trio.Nursery) -> None:
        async with open_stdio(POLITE, era="handshake") as client:
            note(client)
            await client.driver.wait_closed()

    async def hold_none(nursery: trio.Nursery) -> None:
        note(await connect_stdio(POLITE, nursery=nursery, era="handshake"))

    def note(client: StdioClient) -> None:
        clients.append(client)
        if len(clients) == count:
            all_open.set()

    async def close(client: StdioClient) -> None:
        client.close()

    async def wait_too(client: StdioClient) -> None:
        await client.aclose()

    async def close_in_thread(client: StdioClient) -> None:
        await trio.to_thread.run_sync(client.close)

    trio.run(main)
    assert [client.child.returncode for client in clients] == [0] * count
    for client in clients:
        client.close()
        assert not is_running(client.child.pid)
