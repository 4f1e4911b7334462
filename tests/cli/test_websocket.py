"""Servers over WebSocket, from both sides of the command line."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest
from commanded import serving, written

from mcpio.cli import main
from mcpio.cli.exit_status import Exit


@pytest.fixture
def module(tmp_path: Path) -> str:
    """Return the path of a module with a server."""
    return written(tmp_path)


@pytest.mark.parametrize("words", [["--websocket", "0"], ["--http", "0", "--websocket", "--path", "/x"]])
def test_websocket_server_answers_until_signalled(
    module: str, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(module, *words) as (process, announced):
        address = announced.split()[-1]
        assert address.startswith("ws://127.0.0.1:")
        if "--http" in words:
            assert announced == f"{address.replace('ws:', 'http:')} and {address}"
        assert address.endswith("/x" if "--path" in words else "/mcp")
        header = ["--header", "Authorization: Bearer x"]
        assert main(["call", *header, address, "add", "a=1", "b=2"]) is Exit.DONE
        assert json.loads(capfd.readouterr().out) == {"result": 3}
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 128 + signal.SIGTERM
    assert main(["list", address]) is Exit.UNREACHABLE


def test_server_without_websocket_refuses(module: str, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(module, "--http", "0") as (_, url):
        assert main(["list", url.replace("http:", "ws:")]) is Exit.PROTOCOL
    assert "no WebSocket in answer to the handshake" in capfd.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--websocket"],
        ["--websocket", "0", "--stdio"],
        ["--websocket", "0", "--tcp", "0"],
        ["--websocket", "0", "--unix", "x"],
        ["--websocket", "0", "--http", "0"],
        ["--websocket", "0", "--health", "/x"],
        ["--websocket", "0", "--path", "x"],
        ["--websocket", "0", "--record", "x"],
    ],
)
def test_conflicting_options_rejected(module: str, words: list[str]) -> None:
    assert main(["serve", module, *words]) == Exit.USAGE


@pytest.mark.parametrize(
    "words", [["ws://"], ["ws://user:secret@localhost/"], ["--header", "Sec-WebSocket-Key: x", "ws://h/"]]
)
def test_invalid_url_rejected(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["list", *words]) is Exit.USAGE
    assert "secret" not in capfd.readouterr().err


def test_port_in_use_reported(module: str, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", module, "--websocket", f"{port}"]) is Exit.NOT_LOADED
    assert f"127.0.0.1 port {port}" in capfd.readouterr().err
