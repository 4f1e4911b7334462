"""Clients and servers on asyncio over standard input and output, with real processes on the other side."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from streams import run_in_real_time

from mcpio import ConnectFailed, ConnectionLost, NoBackChannel, Options, RequestTimeout
from mcpio.asyncio import StdioClient, connect_stdio, open_stdio
from mcpio.backoff import Backoff
from mcpio.types.content import TextContent

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")

SERVER = """
import asyncio, os, sys
from contextlib import asynccontextmanager
from mcpio import Context, Server
from mcpio.asyncio import serve_stdio

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
async def never_ends(ctx: Context) -> None:
    ctx.progress(1)
    try:
        await asyncio.sleep(3600)
    finally:
        print("never_ends was cancelled", file=sys.stderr)

@server.tool
async def dies(status: int) -> None:
    print("something terrible", file=sys.stderr, flush=True)
    os._exit(status)

@server.tool(blocking=True)
def blocks() -> None:
    import time
    time.sleep(60)

LOOP
"""

PLAIN = SERVER.replace("LOOP", "asyncio.run(serve_stdio(server))")
UVLOOP = SERVER.replace("LOOP", "import uvloop\nuvloop.run(serve_stdio(server))")

IMPATIENT = Options(initialize_timeout=0.5)

HELLO: dict[str, Any] = {
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}


def python(source: str) -> list[str]:
    return [sys.executable, "-c", source]


def lines(*messages: dict[str, Any]) -> bytes:
    return b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages)


def tool(id: int, name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments, "_meta": {"progressToken": id}}
    return {"id": id, "method": "tools/call", "params": params}


def opened(*messages: dict[str, Any]) -> bytes:
    """Return a conversation that begins with a handshake."""
    return lines(HELLO, {"method": "notifications/initialized"}, *messages)


@pytest.fixture(
    params=[pytest.param(PLAIN, id="asyncio"), pytest.param(UVLOOP, id="uvloop", marks=pytest.mark.needs("uvloop"))]
)
def source(request: pytest.FixtureRequest) -> str:
    text: str = request.param
    return text


# Our server


def test_server_answers_requests_received_before_the_end_of_input(source: str) -> None:
    done = subprocess.run(
        python(source), input=opened(tool(1, "echo", text="hi")), capture_output=True, timeout=30, check=False
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [0, 1]
    assert answers[1]["result"]["content"][0]["text"] == "hi"
    assert done.returncode == 0
    told = done.stderr.decode().splitlines()
    assert told[0] == "entered"
    assert told[-1] == "left"
    assert {"a stray line from a handler", "and one from C"} <= set(told)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_ends_a_server_at_once(source: str, number: signal.Signals) -> None:
    child = subprocess.Popen(python(source), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(opened(tool(1, "never_ends"), tool(2, "blocks")))
    child.stdin.flush()
    while b"notifications/progress" not in child.stdout.readline():
        pass
    began = time.monotonic()
    child.send_signal(number)
    assert child.wait(10) == 128 + number
    # The promise is 100 ms; a machine that runs other tests may take longer.
    assert time.monotonic() - began < 2
    said = child.communicate()[1].decode()
    assert "never_ends was cancelled" in said
    assert "Traceback" not in said


def test_server_reads_a_file_and_writes_to_one(tmp_path: Any) -> None:
    (tmp_path / "in").write_bytes(opened(tool(1, "echo", text="x" * 100_000)))
    with open(tmp_path / "in", "rb") as given, open(tmp_path / "out", "wb") as taken:
        done = subprocess.run(
            python(PLAIN), stdin=given, stdout=taken, stderr=subprocess.DEVNULL, timeout=30, check=False
        )
    assert done.returncode == 0
    answers = [json.loads(line) for line in (tmp_path / "out").read_bytes().splitlines()]
    assert answers[1]["result"]["content"][0]["text"] == "x" * 100_000


def test_flags_of_inherited_files_are_unchanged() -> None:
    reading, writing = os.pipe()
    child = subprocess.Popen(python(PLAIN), stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    os.write(writing, opened())
    child.stdout.readline()
    assert os.get_blocking(reading)
    child.kill()
    child.communicate()
    assert os.get_blocking(reading)
    os.close(reading)
    os.close(writing)


def test_server_waits_for_a_client_that_does_not_read() -> None:
    """What finds no room in the pipe is written later, whole and in order."""
    child = subprocess.Popen(python(PLAIN), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(opened(*(tool(id, "echo", text=str(id) * 20_000) for id in range(1, 20))))
    child.stdin.flush()
    time.sleep(0.3)
    out, _ = child.communicate(timeout=30)
    answers = {answer["id"]: answer for answer in map(json.loads, out.splitlines())}
    assert all(answers[id]["result"]["content"][0]["text"] == str(id) * 20_000 for id in range(1, 20))


# Our client


async def start(**options: Any) -> StdioClient:
    return await connect_stdio(python(PLAIN), stderr="capture", **options)


def test_client_in_a_block_ends_its_child(source: str) -> None:
    async def main() -> None:
        async with open_stdio(python(source), stderr="capture") as client:
            result = await client.call_tool("echo", {"text": "hi"})
            assert result.content == (TextContent("hi"),)
            child = client.child
            running = child.returncode
        assert (running, child.returncode) == (None, 0)
        assert "left" in child.stderr_tail

    run_in_real_time(main)


def test_concurrent_calls_get_their_own_answers() -> None:
    async def main() -> None:
        async with open_stdio(python(PLAIN), stderr="discard") as client:
            calls = [client.call_tool("echo", {"text": str(number) * 5_000}) for number in range(64)]
            results = await asyncio.gather(*calls)
        assert [result.text for result in results] == [str(number) * 5_000 for number in range(64)]

    run_in_real_time(main)


def test_client_may_be_closed_by_another_task_than_the_one_that_opened_it() -> None:
    async def main() -> None:
        client = await asyncio.create_task(start(era="handshake"))
        await asyncio.create_task(client.ping())

        async def end() -> None:
            client.close()
            await client.aclose()

        await asyncio.create_task(end())
        assert client.child.returncode == 0
        with pytest.raises(NoBackChannel):
            await client.ping()

    run_in_real_time(main)


def test_clients_may_be_closed_in_any_order() -> None:
    async def main() -> None:
        first, second = await start(era="handshake"), await start(era="handshake")
        await first.aclose()
        await second.ping()
        await second.aclose()

    run_in_real_time(main)


def test_cancelled_call_cancels_its_handler_and_nothing_else() -> None:
    async def main() -> None:
        async with open_stdio(python(PLAIN), stderr="capture", era="handshake") as client:
            begun = asyncio.Event()
            call = asyncio.create_task(client.call_tool("never_ends", on_progress=lambda *_: begun.set()))
            await begun.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            while "never_ends was cancelled" not in client.child.stderr_tail:
                await client.ping()

    run_in_real_time(main)


def test_child_that_dies_is_explained() -> None:
    async def main() -> None:
        client = await start(era="handshake")
        with pytest.raises(ConnectionLost, match=r"exited with status 3; .*\n.*\nsomething terrible"):
            await client.call_tool("dies", {"status": 3})
        await client.aclose()

    run_in_real_time(main)


def test_program_that_does_not_start_is_explained() -> None:
    async def main() -> None:
        with pytest.raises(ConnectFailed, match="cannot start '/no/such/program': no such program"):
            await connect_stdio(["/no/such/program"])
        with pytest.raises(ConnectFailed, match="exited with status 7"):
            await connect_stdio(python("raise SystemExit(7)"))
        wrong: Any = "program"
        with pytest.raises(TypeError, match="argv is a list of strings"):
            await connect_stdio(wrong)
        with pytest.raises(ConnectFailed, match="not a message, and begins with 'hello'"):
            await connect_stdio(python("print('hello', flush=True); import time; time.sleep(60)"), options=IMPATIENT)

    run_in_real_time(main)


def test_child_that_ignores_the_end_of_its_input_is_terminated_then_killed() -> None:
    deaf = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "import json\n"
        "request = json.loads(sys.stdin.readline())\n"
        "print(json.dumps({'jsonrpc': '2.0', 'id': request['id'], 'result': {'protocolVersion': '2025-11-25',"
        " 'capabilities': {}, 'serverInfo': {'name': 'deaf', 'version': '1'}}}), flush=True)\n"
        "while True: time.sleep(1)\n"
    )

    async def main() -> None:
        client = await connect_stdio(python(deaf), close_grace=0.1, terminate_grace=0.1, era="handshake")
        await client.aclose()
        assert client.child.returncode == -signal.SIGKILL

    run_in_real_time(main)


@pytest.mark.req("SSTD-04")
def test_client_outlives_its_child_with_a_restart_policy() -> None:
    async def main() -> None:
        lost = asyncio.Event()
        client = await start(restart=Backoff(base=0.01), on_session_lost=lost.set)
        first = client.child
        os.kill(first.pid, signal.SIGKILL)
        await lost.wait()
        while True:
            try:
                assert (await client.call_tool("echo", {"text": "again"})).text == "again"
                break
            except (ConnectionLost, NoBackChannel):
                await asyncio.sleep(0.05)
        assert client.child.pid != first.pid
        assert first.returncode == -signal.SIGKILL
        await client.aclose()
        assert client.child.returncode == 0

    run_in_real_time(main)


def test_client_in_a_group_ends_with_it() -> None:
    async def main() -> None:
        clients: list[StdioClient] = []
        with pytest.raises(ExceptionGroup):
            await fail(clients)
        (client,) = clients
        assert await client.child.wait() is not None

    async def fail(clients: list[StdioClient]) -> None:
        async with asyncio.TaskGroup() as group:
            clients.append(await start(group=group))
            raise ValueError

    run_in_real_time(main)


def test_timeout_of_a_call() -> None:
    async def main() -> None:
        async with open_stdio(python(PLAIN), stderr="discard") as client:
            with pytest.raises(RequestTimeout):
                await client.call_tool("never_ends", timeout=0.1)

    run_in_real_time(main)
