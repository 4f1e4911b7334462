"""``mcpio serve --http``: the address, what does not go with it, and what cannot be had."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

import pytest

from mcpio.cli import main
from mcpio.cli.exit_status import Exit
from mcpio.cli.targets import Address, parse_address, parse_place


@pytest.fixture
def module(tmp_path: Path) -> str:
    """Return the path of a module with a server."""
    path = tmp_path / "workshop.py"
    path.write_text("from mcpio import Server\nserver = Server('workshop')\n")
    return str(path)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("8000", "127.0.0.1", 8000),
        (":0", "127.0.0.1", 0),
        ("0.0.0.0:80", "0.0.0.0", 80),
        ("localhost:65535", "localhost", 65535),
        ("[::1]:8000", "::1", 8000),
    ],
)
def test_address_parsed(text: str, host: str, port: int) -> None:
    assert parse_address(text) == Address(host, port)


def test_place_accepts_unix_sockets() -> None:
    found = parse_place("unix:/run/s"), parse_place("unix:s"), parse_place("80")
    assert found == ("/run/s", "s", Address("127.0.0.1", 80))


@pytest.mark.parametrize("text", ["", "http", "localhost", "unix:", "localhost:", "65536", "-1", "1.5", "²"])
def test_invalid_address_rejected(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be a port or HOST:PORT"):
        parse_address(text)
    with pytest.raises(argparse.ArgumentTypeError, match="must be a port or HOST:PORT"):
        parse_place(text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--path", "/x"], "--path needs --http"),
        (["--health", "/x"], "--health needs --http"),
        (["--store", "x.db"], "--store needs --http"),
        (["--access-log"], "--access-log needs --http"),
        (["--http", "0", "--path", "x"], "--path must begin with a slash, not 'x'"),
        (
            ["--http", "0", "--path", "/x?y"],
            "--path must be printable ASCII without ? and #, not '/x?y'",
        ),
        (
            ["--http", "0", "--health", "/é"],
            "--health must be printable ASCII without ? and #, not '/é'",
        ),
        (["--http", "0", "--health", "/mcp"], "each path must be given once: /mcp, /mcp"),
        (["--http", "0", "--record", "x"], "--record cannot be combined with --http: it writes one conversation"),
    ],
)
def test_conflicting_options_rejected(
    module: str, words: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", module, *words]) is Exit.USAGE
    assert capfd.readouterr().err == f"mcpio: {said}\n"


def test_unusable_store_file_reported(module: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("no database " * 100)
    for name in ("notes.txt", "nowhere/sessions.db"):
        path = str(tmp_path / name)
        assert main(["serve", module, "--http", "0", "--store", path]) is Exit.NOT_LOADED
        assert capfd.readouterr().err.startswith(f"mcpio: cannot keep sessions in {path}: ")


def test_address_in_use_reported(module: str, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", module, "--http", f"{port}"]) is Exit.NOT_LOADED
    assert capfd.readouterr().err.startswith(f"mcpio: cannot listen at 127.0.0.1 port {port}: ")


LIFESPAN = """
from contextlib import asynccontextmanager
from mcpio import Server

@asynccontextmanager
async def lifespan(server):
    raise {error}
    yield

server = Server("workshop", lifespan=lifespan)
"""


@pytest.mark.parametrize(
    "error", ["FileNotFoundError(2, 'No such file', 'notes.db')", "OSError(28, 'full')", "ValueError('odd')"]
)
@pytest.mark.parametrize("words", [["--http", "0"], ["--websocket", "0"], ["--tcp", "0"], ["--unix", "s"], []])
def test_failing_lifespan_is_reported_as_that(
    words: list[str], error: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "workshop.py"
    path.write_text(LIFESPAN.format(error=error))
    assert main(["serve", str(path), *words]) is Exit.NOT_LOADED
    said = capfd.readouterr().err
    assert "the lifespan of 'workshop' failed:\n" in said
    assert said.rstrip().splitlines()[-1].startswith(error.partition("(")[0])
    assert "cannot listen" not in said
    assert "cannot write" not in said
