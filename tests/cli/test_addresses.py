"""Servers on sockets, from both sides of the command line."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest
from commanded import serving, written

from mcpio.cli import main
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.targets import Address, parse_socket_url


@pytest.fixture
def module(tmp_path: Path) -> str:
    """Return the path of a module with a server."""
    return written(tmp_path)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("tcp", signal.SIGINT),
        ("unix", signal.SIGTERM),
        ("http+unix", signal.SIGINT),
        ("ws+unix", signal.SIGTERM),
    ],
)
def test_socket_server_answers_until_signalled(
    kind: str, status: signal.Signals, module: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s"
    words = {
        "tcp": ("--tcp", "0"),
        "unix": ("--unix", str(path)),
        "http+unix": ("--http", f"unix:{path}"),
        "ws+unix": ("--websocket", f"unix:{path}"),
    }
    with serving(module, *words[kind]) as (process, where):
        assert where.startswith(f"{kind}:")
        for _ in range(2):
            assert main(["call", where, "add", "a=2", "b=40"]) is Exit.DONE
            assert json.loads(capfd.readouterr().out) == {"result": 42}
        process.send_signal(status)
        assert process.wait(10) == 128 + status
    assert not path.exists()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("tcp://localhost:4000", Address("localhost", 4000)),
        ("tcp://[::1]:4000/", Address("::1", 4000)),
        ("tcp://4000", Address("127.0.0.1", 4000)),
        ("unix:/run/s", "/run/s"),
        ("unix:s", "s"),
    ],
)
def test_socket_url_parsed(text: str, where: Address | str) -> None:
    assert parse_socket_url(text) == where


@pytest.mark.parametrize("text", ["tcp://", "tcp://localhost", "tcp://localhost:x", "tcp://localhost:65536", "unix:"])
def test_incomplete_socket_url_rejected(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Failure, match="has no"):
        parse_socket_url(text)
    assert main(["list", text]) is Exit.USAGE


def test_connection_refused_is_unreachable(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["list", f"unix:{tmp_path}/s"]) is Exit.UNREACHABLE
    assert f"no connection to {tmp_path}/s: " in capfd.readouterr().err


@pytest.mark.parametrize("words", [["--header", "a:b"], ["--cwd", "."], ["--env", "a=b"], ["--inherit-env"]])
def test_process_and_http_options_rejected_for_sockets(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["list", *words, "unix:s"]) is Exit.USAGE
    assert f"{words[0]} is for servers " in capfd.readouterr().err


def test_unusable_socket_address_reported(module: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for words in (["--unix", module], ["--http", f"unix:{module}"]):
        assert main(["serve", module, *words]) is Exit.NOT_LOADED
        assert f"cannot listen at {module}: " in capfd.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", module, "--tcp", str(port)]) is Exit.NOT_LOADED
    assert f"cannot listen at 127.0.0.1 port {port}: " in capfd.readouterr().err
    assert main(["serve", module, "--tcp", "a..b:0"]) is Exit.NOT_LOADED
    assert "cannot listen at a..b port 0: " in capfd.readouterr().err
    assert main(["serve", module, "--unix", ""]) is Exit.USAGE
    assert capfd.readouterr().err == "mcpio: --unix must be a path, not empty\n"
    assert main(["serve", module, "--tcp", "0", "--record", "x"]) is Exit.USAGE
