"""``mcpio serve --loop asyncio``, and what is said of handlers that call the other loop's functions."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from mcpio._drivers import report
from mcpio.cli import main
from mcpio.trio import open_stdio

SOURCE = """
import asyncio
import trio
from mcpio import Server

server = Server("both")

@server.tool
async def on_asyncio() -> str:
    await asyncio.sleep(0)
    await asyncio.wait_for(asyncio.sleep(0.01), 1)
    return "asyncio"

@server.tool
async def on_trio() -> str:
    await trio.sleep(0)
    return "trio"
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "app.py").write_text(SOURCE)
    return str(tmp_path / "app.py")


def command(path: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "mcpio", "serve", path, *more]


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
def test_handlers_run_on_the_loop_that_was_asked_for_and_the_log_tells_of_the_other(path: str, loop: str) -> None:
    async def play() -> None:
        async with open_stdio(command(path, "--loop", loop), stderr="capture") as client:
            assert (await client.call_tool(f"on_{loop}")).text == loop
            other = "asyncio" if loop == "trio" else "trio"
            assert (await client.call_tool(f"on_{other}")).is_error
            child = client.child
        assert f"mcpio serve --loop {other}" in child.stderr_tail

    trio.run(play)


TRANSPORTS = [
    ["--http", "0", "--health", "/health", "--access-log"],
    ["--http", "0", "--websocket", "--store"],
    ["--websocket", "0"],
    ["--tcp", "0"],
    ["--unix"],
]


@pytest.mark.parametrize("options", TRANSPORTS, ids=" ".join)
def test_every_transport_is_served_on_asyncio(path: str, tmp_path: Path, options: list[str]) -> None:
    needs_path = options[-1] in {"--store", "--unix"}
    words = command(path, "--loop", "asyncio", *options, *([str(tmp_path / "s")] if needs_path else []))
    child = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    try:
        said = child.stderr.readline().rstrip("\n")
        assert said.startswith("mcpio: serving 'both' at "), said
        for address in said.removeprefix("mcpio: serving 'both' at ").split(" and "):
            done = subprocess.run(
                [sys.executable, "-m", "mcpio", "call", address, "on_asyncio"],
                capture_output=True,
                text=True,
                check=False,
            )
            assert (done.stdout, done.returncode) == ("asyncio\n", 0), done.stderr
    finally:
        child.terminate()
        rest = child.communicate(timeout=20)[1]
    assert child.returncode == 143
    assert ("POST /mcp 200" in rest) == ("--access-log" in options), rest


def test_reload_on_asyncio_is_refused(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", path, "--loop", "asyncio", "--reload"]) == 2
    assert "--reload cannot be combined with --loop asyncio" in capsys.readouterr().err


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
@pytest.mark.parametrize("transport", ["--http", "--websocket", "--tcp"])
def test_taken_port_is_reported_as_not_listening(
    path: str, loop: str, transport: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", path, "--loop", loop, transport, str(port)]) == 8
    said = capsys.readouterr().err
    assert said.startswith(f"mcpio: cannot listen at 127.0.0.1 port {port}: ")
    assert "address already in use" in said.lower()


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
def test_failing_lifespan_is_reported_as_that(tmp_path: Path, loop: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "workshop.py"
    path.write_text(
        "from contextlib import asynccontextmanager\n"
        "from mcpio import Server\n"
        "@asynccontextmanager\n"
        "async def lifespan(server):\n"
        "    raise OSError(28, 'full')\n"
        "    yield\n"
        "server = Server('workshop', lifespan=lifespan)\n"
    )
    assert main(["serve", str(path), "--loop", loop, "--http", "0"]) == 8
    said = capsys.readouterr().err
    assert said.startswith("mcpio: the lifespan of 'workshop' failed:\n")
    assert said.endswith("OSError: [Errno 28] full\n")


@pytest.mark.parametrize("error", [RuntimeError("another"), ValueError("no running event loop"), None])
def test_other_errors_get_no_hint(caplog: pytest.LogCaptureFixture, error: BaseException | None) -> None:
    with caplog.at_level(logging.WARNING):
        report("it failed", error)
    assert "--loop" not in caplog.text
