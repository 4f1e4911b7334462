"""``mcpio serve --loop asyncio``, and what is said of handlers that call the other loop's functions."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
import trio

from mcpio._drivers import report
from mcpio.cli import main
from mcpio.trio import open_http, open_stdio

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


@pytest.mark.parametrize(
    "web_server", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("uvicorn", "hypercorn")]
)
def test_http_is_served_by_the_web_server_that_is_installed(path: str, tmp_path: Path, web_server: str) -> None:
    hidden = {"uvicorn": "hypercorn", "hypercorn": "uvicorn"}[web_server]
    hide = (
        "import importlib.util as util, sys\n"
        "find = util.find_spec\n"
        f"util.find_spec = lambda name, *rest: None if name == {hidden!r} else find(name, *rest)\n"
        "from mcpio.cli import main\n"
        "sys.exit(main())\n"
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    options = [
        "serve",
        path,
        "--loop",
        "asyncio",
        "--http",
        str(port),
        "--health",
        "/health",
        "--store",
        str(tmp_path / "s"),
    ]
    child = subprocess.Popen([sys.executable, "-c", hide, *options], stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.05)

        async def play() -> None:
            async with open_http(f"http://127.0.0.1:{port}/mcp") as client:
                assert (await client.call_tool("on_asyncio")).text == "asyncio"

        trio.run(play)
    finally:
        child.terminate()
        child.wait(20)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--websocket", "0"], "serves no WebSocket"),
        (["--http", "0", "--access-log"], "the web server has a log of its own"),
        (["--tcp", "0"], "serves no TCP"),
        (["--unix", "s"], "serves no Unix socket"),
        (["--reload"], "--reload runs on Trio"),
    ],
)
def test_option_that_needs_trio_is_refused(
    path: str, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", path, "--loop", "asyncio", *options]) == 2
    assert said in capsys.readouterr().err


def test_http_without_a_web_server_names_the_package_to_install(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mcpio.cli.serve_on_asyncio.find_spec", lambda _: None)
    assert main(["serve", path, "--loop", "asyncio", "--http", "0"]) == 2
    assert "pip install uvicorn, or hypercorn" in capsys.readouterr().err


@pytest.mark.parametrize(
    "web_server", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("uvicorn", "hypercorn")]
)
def test_taken_port_is_reported_as_not_listening(path: str, web_server: str) -> None:
    # In another process: hypercorn does not close the socket.
    code = (
        "import sys\n"
        "from mcpio.cli import main, serve_on_asyncio\n"
        f"serve_on_asyncio._web_server = lambda: {web_server!r}\n"
        "sys.exit(main())\n"
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = ["serve", path, "--loop", "asyncio", "--http", str(port)]
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 8
    verb = "serve" if web_server == "uvicorn" else "listen"
    assert f"mcpio: cannot {verb} at 127.0.0.1 port {port}: " in done.stderr
    assert "address already in use" in done.stderr.lower()


@pytest.mark.needs("uvicorn")
def test_failing_lifespan_is_reported_as_that(tmp_path: Path) -> None:
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
    words = command(str(path), "--loop", "asyncio", "--http", "0")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 8
    assert "mcpio: cannot serve at 127.0.0.1 port 0: see the log of uvicorn" in done.stderr
    assert "the lifespan of 'workshop' failed:" in done.stderr
    assert "full" in done.stderr


@pytest.mark.parametrize("error", [RuntimeError("another"), ValueError("no running event loop"), None])
def test_other_errors_get_no_hint(caplog: pytest.LogCaptureFixture, error: BaseException | None) -> None:
    with caplog.at_level(logging.WARNING):
        report("it failed", error)
    assert "--loop" not in caplog.text
