"""A client whose server is a child process that is started again when it dies."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from eachloop import EachLoop, Here

from mcpio import ClientConnection, CloseReason, ConnectFailed, ConnectionLost, Implementation, NoBackChannel
from mcpio.backoff import Backoff
from mcpio.restarts import RestartPolicy

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")

SERVER = """
import os, sys
import trio
from mcpio import Server
from mcpio.trio import serve_stdio

lives, = sys.argv[1:]
with open(lives, "a+") as file:
    print(os.getpid(), file=file)
    file.seek(0)
    if len(file.readlines()) > 2:
        sys.exit("no more")

server = Server("mortal")

@server.tool
def who() -> int:
    return os.getpid()

@server.tool
def dies() -> None:
    print("alas", file=sys.stderr, flush=True)
    os._exit(7)

@server.tool
async def waits() -> None:
    await trio.sleep_forever()

trio.run(serve_stdio, server)
"""
POLICY = Backoff(base=0.01, tries=3)


def program(path: Path) -> list[str]:
    """Return what starts a server that can be started twice."""
    return [sys.executable, "-c", SERVER, str(path / "lives")]


def pids(path: Path) -> list[int]:
    return [int(line) for line in (path / "lives").read_text().split()]


@pytest.mark.req("SSTD-04")
def test_dead_child_is_restarted_and_its_calls_fail_with_its_exit_status(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, each_loop: EachLoop
) -> None:
    losses: list[tuple[int | None, str]] = []

    async def main(here: Here) -> None:
        def on_lost() -> None:
            losses.append((client.child.returncode, client.child.stderr_tail))

        caught: list[str] = []

        async def ask(name: str) -> None:
            with pytest.raises(ConnectionLost) as error:
                await client.call_tool(name)
            caught.append(str(error.value))

        async with here.drivers.open_stdio(
            program(tmp_path), restart=POLICY, on_session_lost=on_lost, stderr="capture"
        ) as client:
            async with here.tasks() as tasks:
                tasks.spawn(ask("waits"))
                tasks.spawn(ask("dies"))
            said = f"{sys.executable!r} exited with status 7; the end of its standard error:\nalas"
            assert all(text.startswith("tools/call: ") and text.endswith(said) for text in caught), caught
            found = await client.call_tool("who")
            assert found.structured_content == {"result": client.child.pid}
            assert pids(tmp_path)[1:] == [client.child.pid]
            assert client.child.returncode is None

    each_loop.run(main)
    assert losses == [(7, "alas\n")]
    assert "trying again" not in caplog.text


def test_client_ends_with_the_reason_when_restarts_are_exhausted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, each_loop: EachLoop
) -> None:
    async def main(here: Here) -> None:
        async with here.drivers.open_stdio(
            program(tmp_path), restart=Backoff(base=0.01, tries=2), stderr="capture", era="handshake"
        ) as client:
            for _ in range(2):
                with pytest.raises(ConnectionLost):
                    await client.call_tool("dies")
                if len(pids(tmp_path)) < 2:
                    await client.ping()
            with pytest.raises(NoBackChannel, match=r"could not be had: .* status 1; .*\nno more"):
                await client.call_tool("who")
            await client.driver.wait_closed()
            assert client.ended is not None
            assert (client.ended.reason, type(client.ended.cause)) == (CloseReason.LOST, ConnectionLost)
            assert str(client.ended.cause).endswith("no more")
            with pytest.raises(NoBackChannel, match="exited with status 1; the end of its standard error:\nno more"):
                await client.call_tool("who")

    each_loop.run(main)
    assert "exited with status 7; the end of its standard error:\n    alas: trying again" in caplog.text
    assert len(pids(tmp_path)) == 3


def test_a_limit_within_a_time_holds_though_each_child_worked(tmp_path: Path, each_loop: EachLoop) -> None:
    policy = RestartPolicy(backoff=Backoff(base=0, tries=9), settled_after=0, most=0)

    async def main(here: Here) -> None:
        async with here.drivers.open_stdio(program(tmp_path), restart=policy) as client:
            os.kill(client.child.pid, signal.SIGKILL)
            await client.driver.wait_closed()

    each_loop.run(main)
    assert len(pids(tmp_path)) == 1


SUCCESSORS = """
import json, os, sys

def answers(**answer):
    asked = json.loads(sys.stdin.readline())
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)

lives, *successors = sys.argv[1:]
with open(lives, "a+") as file:
    print(os.getpid(), file=file)
    file.seek(0)
    life = successors[len(file.readlines()) - 1]
print(life, flush=True) if life == "noise" else print(life, file=sys.stderr, flush=True)
if life == "refuses":
    answers(error={"code": -32603, "message": "not today"})
if life == "works":
    info = {"name": "s", "version": "1"}
    answers(result={"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info})
    sys.stdin.readline(), sys.stdin.readline()
sys.exit(9)
"""


def successors(path: Path, *lives: str) -> list[str]:
    """Return what starts one program after another."""
    return [sys.executable, "-c", SUCCESSORS, str(path / "lives"), *lives]


def test_failure_of_the_first_child_is_not_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, each_loop: EachLoop
) -> None:
    losses: list[int] = []

    async def main(here: Here) -> None:
        argv = successors(tmp_path, "fails", "fails")
        for hears in (None, lambda: losses.append(1)):
            with pytest.raises(ConnectFailed, match="status 9"):
                async with here.drivers.open_stdio(
                    argv, restart=POLICY, on_session_lost=hears, stderr="discard", era="handshake"
                ):
                    pass

    each_loop.run(main)
    assert (losses, caplog.text) == ([], "")
    assert len(pids(tmp_path)) == 2


def test_a_child_that_refuses_the_handshake_is_the_last_and_calls_say_so(tmp_path: Path, each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        argv = successors(tmp_path, "works", "refuses")
        async with here.drivers.open_stdio(argv, restart=POLICY, stderr="discard", era="handshake") as client:
            with pytest.raises(ConnectionLost):
                await client.ping()
            for _ in range(2):
                with pytest.raises(NoBackChannel, match="could not be had: the handshake failed: not today"):
                    await client.ping()

    each_loop.run(main)


def test_child_without_a_handshake_counts_as_a_failure(tmp_path: Path, each_loop: EachLoop) -> None:
    policy = RestartPolicy(backoff=Backoff(base=0, tries=2), settled_after=0)

    async def main(here: Here) -> None:
        argv = successors(tmp_path, "works", *["fails"] * 9)
        async with here.drivers.open_stdio(argv, restart=policy, stderr="discard", era="handshake") as client:
            with pytest.raises(ConnectionLost):
                await client.ping()
            with pytest.raises(NoBackChannel, match="status 9"):
                await client.ping()

    each_loop.run(main)
    assert len(pids(tmp_path)) == 3


def test_noise_of_one_child_is_not_attributed_to_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, each_loop: EachLoop
) -> None:
    async def main(here: Here) -> None:
        argv = successors(tmp_path, "works", "noise", "fails", "fails")
        async with here.drivers.open_stdio(argv, restart=POLICY, stderr="capture", era="handshake") as client:
            with pytest.raises(ConnectionLost):
                await client.ping()
            with pytest.raises(NoBackChannel):
                await client.ping()

    each_loop.run(main)
    failures = [each.getMessage() for each in caplog.records if "no session" in each.getMessage()]
    assert [("begins with 'noise'" in each, each.endswith("fails")) for each in failures] == [
        (True, False),
        (False, True),
        (False, True),
    ]


def test_block_left_between_two_children_ends_at_once(tmp_path: Path, each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        lost = here.event()
        async with here.drivers.open_stdio(
            program(tmp_path), restart=Backoff(base=60, cap=60), on_session_lost=lost.set, stderr="discard"
        ) as client:
            with pytest.raises(ConnectionLost):
                await client.call_tool("dies")
            await lost.wait()

    each_loop.run(main)
    (pid,) = pids(tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_connected_client_is_closed_from_a_thread_during_a_restart(tmp_path: Path, each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        client = await here.connect_stdio(program(tmp_path), restart=POLICY, stderr="discard")
        os.kill(client.child.pid, signal.SIGKILL)
        await client.child.wait()
        await here.runtime.to_thread(client.close)
        await client.driver.wait_closed()

    each_loop.run(main)
    for pid in pids(tmp_path):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_first_child_is_started_once_and_invalid_options_raise(each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        with pytest.raises(ConnectFailed, match="no such program"):
            async with here.drivers.open_stdio(["/nowhere/server"], restart=POLICY):
                pass
        wrong: Any = 5
        with pytest.raises(TypeError, match="a policy must be"):
            async with here.drivers.open_stdio(["/nowhere/server"], restart=wrong):
                pass
        connection = ClientConnection(Implementation("test", "1"))
        with pytest.raises(TypeError, match="leave connection= out"):
            async with here.drivers.open_stdio(["/nowhere/server"], restart=POLICY, connection=connection):
                pass

    each_loop.run(main)
