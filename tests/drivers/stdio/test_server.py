"""Servers over standard input and output, on each event loop, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import trio
from eachloop import UVLOOP
from stdioprograms import HELLO, lines, opened, server_on, tool

from mcpio import Server
from mcpio.trio import serve_stdio

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")


@pytest.fixture(params=["trio", "asyncio", UVLOOP])
def loop(request: pytest.FixtureRequest) -> str:
    """The event loop of the server."""
    name: str = request.param
    return name


@pytest.fixture
def started(loop: str) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []

    def start(options: str = "") -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        processes.append(subprocess.Popen(server_on(loop, options), stdin=pipe, stdout=pipe, stderr=pipe))
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
    assert err.decode().splitlines() == ["entered", "a stray line from a handler", "and one from C", "left"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("handler", ["never_ends", "blocks"])
def test_a_signal_ends_a_server_in_the_middle_of_a_call(
    handler: str, number: signal.Signals, started: Callable[[], subprocess.Popen[bytes]]
) -> None:
    process = started()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(lines(HELLO, tool(1, handler), {"id": 2, "method": "ping"}))
    process.stdin.flush()
    while b'"id":2' not in process.stdout.readline():
        pass
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    cancelled = ["never_ends was cancelled"] * (handler == "never_ends")
    assert err.decode().splitlines() == ["entered", *cancelled, "left"]


def test_a_server_whose_client_was_killed_ends_though_a_handler_never_does(
    started: Callable[..., subprocess.Popen[bytes]],
) -> None:
    process = started("end_timeout=0.2")
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
    assert err.decode().splitlines() == ["entered", "never_ends was cancelled", "left"]


@pytest.mark.parametrize(("given", "used"), [({}, 10.0), ({"end_timeout": None}, None), ({"end_timeout": 3}, 3)])
def test_end_timeout_defaults_to_ten_seconds_on_trio(
    given: Any, used: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []

    async def serve(server: object, stream: object, *, end_timeout: float | None, **more: Any) -> None:
        found.append(end_timeout)

    monkeypatch.setattr("mcpio.trio._stdio.serve", serve)
    trio.run(partial(serve_stdio, Server("s"), **given))
    assert found == [used]


def test_server_reads_a_file_and_writes_to_one(tmp_path: Any, loop: str) -> None:
    (tmp_path / "in").write_bytes(opened(tool(1, "echo", text="x" * 100_000)))
    with open(tmp_path / "in", "rb") as given, open(tmp_path / "out", "wb") as taken:
        done = subprocess.run(
            server_on(loop), stdin=given, stdout=taken, stderr=subprocess.DEVNULL, timeout=30, check=False
        )
    assert done.returncode == 0
    answers = [json.loads(line) for line in (tmp_path / "out").read_bytes().splitlines()]
    assert answers[1]["result"]["content"][0]["text"] == "x" * 100_000


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full, which Linux has")
def test_answers_that_a_full_disk_does_not_take_are_reported(loop: str) -> None:
    with open("/dev/full", "wb") as full:
        process = subprocess.run(
            server_on(loop), input=lines(HELLO), stdout=full, stderr=subprocess.PIPE, timeout=20, check=False
        )
    assert process.stderr.decode().splitlines() == [
        "entered",
        "the output cannot be written: No space left on device",
        "left",
    ]


def test_flags_of_inherited_files_are_unchanged(loop: str) -> None:
    reading, writing = os.pipe()
    child = subprocess.Popen(server_on(loop), stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    os.write(writing, opened())
    child.stdout.readline()
    assert os.get_blocking(reading)
    child.kill()
    child.communicate()
    assert os.get_blocking(reading)
    os.close(reading)
    os.close(writing)


def test_server_waits_for_a_client_that_does_not_read(loop: str) -> None:
    """What finds no room in the pipe is written later, whole and in order."""
    child = subprocess.Popen(server_on(loop), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(opened(*(tool(id, "echo", text=str(id) * 20_000) for id in range(1, 20))))
    child.stdin.flush()
    out, _ = child.communicate(timeout=30)
    answers = {answer["id"]: answer for answer in map(json.loads, out.splitlines())}
    assert all(answers[id]["result"]["content"][0]["text"] == str(id) * 20_000 for id in range(1, 20))
