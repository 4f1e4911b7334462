"""``mcpio serve --http``: the address, what does not go with it, and what cannot be had."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

import pytest

from mcpio.cli import main
from mcpio.cli.failures import Exit
from mcpio.cli.http_serving import Address, address, place


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
def test_an_address_is_a_port_or_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert address(text) == Address(host, port)


def test_a_place_may_be_a_unix_socket() -> None:
    assert (place("unix:/run/s"), place("unix:s"), place("80")) == ("/run/s", "s", Address("127.0.0.1", 80))


@pytest.mark.parametrize("text", ["", "http", "localhost", "unix:", "localhost:", "65536", "-1", "1.5", "²"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no port, and no host and port"):
        address(text)
    with pytest.raises(argparse.ArgumentTypeError, match="is no port, and no host and port"):
        place(text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--path", "/x"], "--path is for --http"),
        (["--health", "/x"], "--health is for --http"),
        (["--store", "x.db"], "--store is for --http"),
        (["--http", "0", "--path", "x"], "--path begins with a slash, and 'x' does not"),
        (
            ["--http", "0", "--path", "/x?y"],
            "no URL has '/x?y' for its path: --path takes printable ASCII but ? and #",
        ),
        (
            ["--http", "0", "--health", "/é"],
            "no URL has '/é' for its path: --health takes printable ASCII but ? and #",
        ),
        (["--http", "0", "--health", "/mcp"], "one path for two things: /mcp, /mcp"),
        (["--http", "0", "--record", "x"], "--record writes down one conversation: it is not for --http"),
    ],
)
def test_what_does_not_go_together(module: str, words: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", module, *words]) is Exit.USAGE
    assert capfd.readouterr().err == f"mcpio: {said}\n"


def test_a_file_in_which_sessions_cannot_be_kept(
    module: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("no database " * 100)
    for name in ("notes.txt", "nowhere/sessions.db"):
        path = str(tmp_path / name)
        assert main(["serve", module, "--http", "0", "--store", path]) is Exit.NOT_LOADED
        assert capfd.readouterr().err.startswith(f"mcpio: cannot keep sessions in {path}: ")


def test_an_address_that_is_taken(module: str, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", module, "--http", f"{port}"]) is Exit.NOT_LOADED
    assert capfd.readouterr().err.startswith(f"mcpio: cannot listen at 127.0.0.1 port {port}: ")
