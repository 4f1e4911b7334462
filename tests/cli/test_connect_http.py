"""The commands with a server at a URL."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import trio

from mcpio import Server, ToolError
from mcpio.cli import main
from mcpio.cli.exit_status import Exit
from mcpio.trio import serve_http

server = Server("here", "1")


@server.tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def fail() -> str:
    """Fail."""
    raise ToolError("as it should")


@server.resource("note://first")
def first() -> str:
    """Return a note."""
    return "a note"


@server.prompt
def hello(name: str) -> str:
    """Greet."""
    return f"Say hello to {name}."


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    begun: Future[tuple[str, trio.lowlevel.TrioToken, trio.CancelScope]] = Future()

    async def serve() -> None:
        async with trio.open_nursery() as nursery:
            listening = await nursery.start(partial(serve_http, server, port=0, grace=0))
            begun.set_result((listening.url, trio.lowlevel.current_trio_token(), nursery.cancel_scope))

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    found, token, scope = begun.result(10)
    yield found
    token.run_sync_soon(scope.cancel)
    thread.join(10)
    assert not thread.is_alive()


def test_every_command_works_over_http(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["call", url, "add", "a=2", "b=40"]) is Exit.DONE
    assert json.loads(capfd.readouterr().out) == {"result": 42}
    assert main(["call", url, "fail"]) is Exit.TOOL_FAILED
    assert "as it should" in capfd.readouterr().err
    assert main(["call", url, "nothing"]) is Exit.NOT_FOUND
    assert main(["list", "--json", url]) is Exit.DONE
    assert [tool["name"] for tool in json.loads(capfd.readouterr().out)["tools"]] == ["add", "fail"]
    assert main(["read", url, "note://first"]) is Exit.DONE
    assert capfd.readouterr().out == "a note"
    assert main(["prompt", url, "hello", "name=Ada"]) is Exit.DONE
    assert "Say hello to Ada." in capfd.readouterr().out


def test_connection_refused_is_unreachable(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        assert main(["list", url]) is Exit.UNREACHABLE
    assert "cannot connect to 127.0.0.1:" in capfd.readouterr().err


@contextmanager
def _answering(data: bytes) -> Iterator[str]:
    """Give the URL of a server that answers everything with the same bytes, and what it read."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(5)
                    seen.append(connection.recv(65536))
                    connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


seen: list[bytes] = []


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (b"HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n", Exit.REFUSED, "401: Bearer"),
        (b"HTTP/1.1 404 No\r\nContent-Length: 5\r\n\r\nnope!", Exit.PROTOCOL, "status 404"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1\r\n\r\n.", Exit.PROTOCOL, "text/html"),
        (b"nonsense\r\n\r\n", Exit.PROTOCOL, "malformed HTTP"),
        (b"", Exit.SERVER_DIED, "the server closed the connection"),
    ],
)
def test_server_faults_map_to_status_and_message(
    capfd: pytest.CaptureFixture[str], answer: bytes, status: Exit, said: str
) -> None:
    with _answering(answer) as url:
        assert main(["list", url]) is status
    assert said in capfd.readouterr().err


def test_headers_sent_with_every_request(capfd: pytest.CaptureFixture[str]) -> None:
    seen.clear()
    with _answering(b"") as url:
        main(["list", "--header", "Authorization: Bearer x", "--header", "X-Y:z", url])
    assert b"\r\nauthorization: Bearer x\r\nx-y: z\r\n" in seen[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--header", "x", "http://a/"], "must be NAME:VALUE"),
        (["--header", ":x", "http://a/"], "must be NAME:VALUE"),
        (["--header", "Host: x", "http://a/"], "headers must not have Host: the client sets it"),
        (["--header", "x: y", "python server.py"], "--header is for servers at a URL, not for python server.py"),
        (["--auth", "me", "python server.py"], "--auth is for servers at a URL, not for python server.py"),
        (["--auth", "me", "tcp://127.0.0.1:1"], "--auth is for servers over HTTP, not for tcp://127.0.0.1:1"),
        (["-e", "A=1", "http://a/"], "--env is for servers that are started"),
        (["--inherit-env", "http://a/"], "--inherit-env is for servers that are started"),
        (["--cwd", ".", "https://a/"], "--cwd is for servers that are started"),
        (["http://u:p@a/"], "must not contain credentials"),
        (["http://"], "must name a host"),
    ],
)
def test_invalid_command_lines_rejected(capfd: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    try:
        status: Any = main(["list", *words])
    except SystemExit as error:
        status = error.code
    assert status == Exit.USAGE
    assert said in capfd.readouterr().err


@pytest.mark.parametrize("slash", ["", "/"])
def test_url_without_a_path_gets_a_hint(url: str, slash: str, capsys: pytest.CaptureFixture[str]) -> None:
    root = url.removesuffix("/mcp")
    assert main(["list", root + slash]) is Exit.PROTOCOL
    assert capsys.readouterr().err.endswith(f"Most servers answer at /mcp: try {root}/mcp\n")
    assert main(["list", f"{root}/elsewhere"]) is Exit.PROTOCOL
    assert "try" not in capsys.readouterr().err
