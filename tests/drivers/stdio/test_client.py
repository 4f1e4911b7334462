"""Clients over standard input and output on each event loop, with real processes on the other side."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from typing import Any

import pytest
from eachloop import EachLoop, Here
from stdioprograms import POLITE, WITHOUT_SLOW_CALLBACKS, is_running, python, raw, server_on

from mcpio import Options, RequestTimeout
from mcpio.errors import ConnectFailed, ConnectionLost, NoBackChannel
from mcpio.types.content import TextContent

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")


@pytest.mark.long
@pytest.mark.req("STDIO-01", "STDIO-05", "STDIO-06", "STDIO-07", "STDIO-10", "STDIO-13")
def test_client_calls_a_child_process_and_ends_it(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        err: list[str] = []
        async with here.drivers.open_stdio(server_on("trio"), stderr=err.append, era="handshake") as client:
            result = await client.call_tool("echo", {"text": "hi"})
            assert result.content == (TextContent("hi"),)
            assert is_running(client.child.pid)
            with here.scope(0.05):
                await client.call_tool("never_ends")
            await client.ping()
        assert client.child.returncode == 0
        assert not is_running(client.child.pid)
        assert err == [
            "entered", "a stray line from a handler", "and one from C", "never_ends was cancelled", "left"
        ]  # fmt: skip

    each_loop.run(main)


def test_connected_client_works_outside_a_block(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        client = await here.connect_stdio(POLITE, era="handshake")
        await client.call_tool("any")
        await client.aclose()
        assert client.child.returncode == 0
        await client.aclose()
        with pytest.raises(NoBackChannel, match=r"^the connection is closed$"):
            await client.ping()

    each_loop.run(main)


@pytest.mark.long
def test_cancelled_block_ends_a_child_with_a_running_call(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        began = here.now()
        with here.scope() as scope:
            async with here.drivers.open_stdio(
                server_on("trio"), close_grace=20, stderr="discard", era="handshake"
            ) as client:
                await client.call_tool("never_ends", on_progress=lambda *_: scope.cancel())
        assert scope.cancelled_caught
        assert client.child.returncode == 0
        assert here.now() - began < 15

    each_loop.run(main)


def test_client_that_is_cancelled_while_it_opens_leaves_nothing(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        for count in (*range(8), 20):
            async with here.tasks() as tasks:

                async def use() -> None:
                    async with here.drivers.open_stdio(["sh", "-c", "cat > /dev/null"]):
                        await here.forever()

                using = tasks.spawn(use())
                for _ in range(count):
                    await here.checkpoint()
                using.cancel()

    each_loop.run(main)


@pytest.mark.long
def test_program_that_ends_with_a_client_open_is_silent() -> None:
    code = f"""{WITHOUT_SLOW_CALLBACKS}
import asyncio
from mcpio.asyncio import connect_stdio

async def main():
    client = await connect_stdio({server_on("trio")!r}, stderr="discard")
    print((await client.call_tool("echo", {{"text": "hi"}})).text)

asyncio.run(main())
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, "hi\n", "")


def test_unknown_option_starts_no_process(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        wrong: Any = {"environ": {}}
        with pytest.raises(TypeError, match=r"^unknown option 'environ'; the options are .*\bcwd, .*\bsampling"):
            async with here.drivers.open_stdio(["/no/such/program"], **wrong):
                pytest.fail("there is none")

    each_loop.run(main)


# Servers that die


def test_error_of_a_call_names_the_servers_exit_status(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        source = "greet()\ncall()\nprint('something terrible\\nhas happened', file=sys.stderr)\nsys.exit(3)"
        async with here.drivers.open_stdio(raw(source), stderr="capture", era="handshake") as client:
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

    each_loop.run(main)


def test_killed_server_fails_every_call_with_its_signal(each_loop: EachLoop) -> None:
    count = 300  # More than the session acts on at once.

    async def main(here: Here) -> None:
        lost: list[str] = []

        async def call(client: Any) -> None:
            try:
                await client.call_tool("any")
            except ConnectionLost as error:
                lost.append(error.reason)

        async with here.drivers.open_stdio(raw("greet()\nfor line in sys.stdin: pass"), era="handshake") as client:
            async with here.tasks() as tasks:
                for _ in range(count):
                    tasks.spawn(call(client))
                await here.sleep(0.05)
                os.kill(client.child.pid, signal.SIGKILL)
            assert len(lost) == count
            assert all(reason.endswith(f"{sys.executable!r} was ended by SIGKILL") for reason in lost)

    each_loop.run(main)


def test_a_client_that_closes_does_not_blame_the_server(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        async with (
            here.drivers.open_stdio(raw("greet()\nfor line in sys.stdin: pass"), era="handshake") as client,
            here.tasks() as tasks,
        ):

            async def call() -> None:
                with pytest.raises(ConnectionLost, match=r"^tools/call: the connection ended \(closed here\)$"):
                    await client.call_tool("any")

            tasks.spawn(call())
            await here.sleep(0.05)
            client.close()

    each_loop.run(main)


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
def test_handshake_error_tells_how_the_child_ended(source: str, message: str, each_loop: EachLoop) -> None:
    more: dict[str, Any] = {}
    if each_loop.name == "uvloop" and source.startswith("os.close(1)"):
        # Children of uvloop hold copies of their pipes, so only their exit ends their output.
        message, more = "initialize: no answer within 1 s", {"options": Options(initialize_timeout=1)}

    async def main(here: Here) -> None:
        with pytest.raises(ConnectFailed) as caught:
            async with here.drivers.open_stdio(raw(source), stderr="capture", close_grace=0.1, era="handshake", **more):
                pytest.fail("there was no handshake")
        assert str(caught.value) == "the handshake failed: " + message.format(program=sys.executable)

    each_loop.run(main)


def test_a_program_that_does_not_start(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        with pytest.raises(ConnectFailed, match=r"^cannot start '/no/such/program': no such program$") as caught:
            async with here.drivers.open_stdio(["/no/such/program"], era="handshake"):
                pytest.fail("there is none")
        assert isinstance(caught.value.__cause__, FileNotFoundError)
        with pytest.raises(ConnectFailed, match="no such program"):
            await here.connect_stdio(["/no/such/program"], era="handshake")

    each_loop.run(main)


@pytest.mark.long
@pytest.mark.parametrize(
    ("argv", "error", "said"),
    [
        ("program", TypeError, "argv must be a list of strings"),
        (python("print('hello', flush=True); import time; time.sleep(60)"), ConnectFailed, "begins with 'hello'"),
    ],
)
def test_missing_argument_or_program_is_explained(
    argv: Any, error: type[Exception], said: str, each_loop: EachLoop
) -> None:
    async def main(here: Here) -> None:
        with pytest.raises(error, match=said):
            await here.connect_stdio(argv, options=Options(initialize_timeout=0.2), close_grace=0.1)

    each_loop.run(main)


@pytest.mark.long
def test_concurrent_calls_get_their_own_answers(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        texts: dict[int, str] = {}

        async def call(number: int) -> None:
            texts[number] = (await client.call_tool("echo", {"text": str(number) * 5_000})).text

        async with here.drivers.open_stdio(server_on("trio"), stderr="discard") as client:
            async with here.tasks() as tasks:
                for number in range(64):
                    tasks.spawn(call(number))
            with pytest.raises(RequestTimeout):
                await client.call_tool("never_ends", timeout=0.1)
        assert texts == {number: str(number) * 5_000 for number in range(64)}

    each_loop.run(main)


DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
greet()
while True:
    time.sleep(1)
"""


def test_child_that_ignores_the_end_of_its_input_is_terminated_then_killed(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        client = await here.connect_stdio(raw(DEAF), close_grace=0.1, terminate_grace=0.1, era="handshake")
        await client.aclose()
        assert client.child.returncode == -signal.SIGKILL

    each_loop.run(main)


# P9


async def close(here: Here, client: Any, how: str) -> None:
    if how == "thread":
        await here.runtime.to_thread(client.close)
        return
    client.close()
    if how == "wait":
        await client.aclose()


def test_any_number_of_clients_closed_in_any_order_from_anywhere(each_loop: EachLoop) -> None:
    """Clients in tasks of their own; closed by other tasks, a thread and a signal handler; no process is left."""
    chance = random.Random(5)
    clients: list[Any] = []
    count = 8

    async def main(here: Here) -> None:
        all_open = here.event()

        def note(client: Any) -> None:
            clients.append(client)
            if len(clients) == count:
                all_open.set()

        async def hold(number: int) -> None:
            if number % 2:
                note(await here.connect_stdio(POLITE, era="handshake"))
                return
            async with here.drivers.open_stdio(POLITE, era="handshake") as client:
                note(client)
                await client.driver.wait_closed()

        async with here.tasks() as tasks:
            for number in range(count):
                tasks.spawn(hold(number))
            await all_open.wait()
            previous = signal.signal(signal.SIGUSR1, lambda *_: clients[0].close())
            try:
                signal.raise_signal(signal.SIGUSR1)
                for client in chance.sample(clients * 2, 2 * count):
                    tasks.spawn(close(here, client, chance.choice(["at once", "thread", "wait"])))
            finally:
                signal.signal(signal.SIGUSR1, previous)
        for client in clients:
            await client.driver.wait_closed()

    each_loop.run(main)
    assert [client.child.returncode for client in clients] == [0] * count
    for client in clients:
        client.close()
        assert not is_running(client.child.pid)


PROGRESS = """
request = call()
params = {"progressToken": request["params"]["_meta"]["progressToken"], "progress": 1}
os.write(1, json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).encode() + b"\\n")
while True:
    time.sleep(1)
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_error_of_a_callback_that_ends_the_program_ends_the_child_before(
    each_loop: EachLoop, error: BaseException
) -> None:
    pids: list[int] = []

    async def main(here: Here) -> None:
        def progressed(*_: Any) -> None:
            raise error

        async with here.drivers.open_stdio(
            raw(f"{DEAF.partition('while')[0]}{PROGRESS}"), close_grace=0.1, terminate_grace=0.1, era="handshake"
        ) as client:
            pids.append(client.child.pid)
            await client.call_tool("any", on_progress=progressed)

    with pytest.raises((type(error), BaseExceptionGroup)):  # a group of Trio's strict ones
        each_loop.run(main)
    assert not is_running(pids[0])
