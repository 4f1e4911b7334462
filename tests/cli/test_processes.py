"""The commands as processes, with servers that are processes: what only the real thing can show."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from mcpio.cli import main
from mcpio.cli.exit_status import Exit

SERVER = """
import os, sys
import trio
from mcpio import Context, Server

server = Server("process", "1")

@server.tool
async def wait(ctx: Context) -> str:
    print("waiting", file=sys.stderr, flush=True)
    ctx.progress(1)
    await trio.sleep_forever()

@server.tool
def die() -> str:
    print("last words", file=sys.stderr, flush=True)
    os._exit(3)

@server.tool
def say(text: str, times: int = 1) -> str:
    print("noise")
    return text * times
"""


@pytest.fixture
def serving(tmp_path: Path) -> list[str]:
    """Return the command of a server."""
    (tmp_path / "workshop.py").write_text(SERVER)
    return [sys.executable, "-m", "mcpio", "serve", str(tmp_path / "workshop.py")]


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "mcpio", *words], capture_output=True, text=True)


def test_call_from_a_shell(serving: list[str]) -> None:
    run = _run("call", "--json", "say", "text=ab", "times=2", "--", *serving)
    assert (run.returncode, run.stderr) == (Exit.DONE, "")
    assert json.loads(run.stdout)["content"] == [{"type": "text", "text": "abab"}]


def test_quoted_server_command_split_like_a_shell(serving: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    quoted = " ".join(f"'{word}'" for word in serving)
    assert main(["list", quoted, "-v"]) is Exit.DONE
    ran = capfd.readouterr()
    assert ran.out.startswith("process 1, speaking 2026-07-28\n\nTools\n  wait\n")
    assert ran.err == ""


def test_failure_quotes_standard_error_of_the_server(serving: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["call", "die", "--", *serving]) is Exit.SERVER_DIED
    ending = f"{sys.executable!r} exited with status 3; the end of its standard error:\nlast words\n"
    assert capfd.readouterr().err == f"mcpio: tools/call: the connection ended (closed by the peer): {ending}"


@pytest.mark.parametrize(
    ("server", "status", "said"),
    [
        ("no-such-program-here", Exit.NO_PROGRAM, "cannot start 'no-such-program-here': no such program"),
        (".", Exit.NOT_EXECUTABLE, "cannot start '.': "),
        ("no.py", Exit.NO_PROGRAM, "there is no file 'no.py'; looked in "),
        ("localhost:80", Exit.NO_PROGRAM, "cannot start 'localhost:80': no such program. A server that runs"),
        ("sh -c 'echo no >&2; exit 5'", Exit.SERVER_DIED, "the handshake failed: initialize: the connection ended"),
        ("cat", Exit.PROTOCOL, "the handshake failed: "),
        ("sleep 60 --timeout", Exit.TIMEOUT, "the handshake failed: initialize: no answer within"),
    ],
)
def test_program_that_is_not_a_server_fails(
    server: str, status: Exit, said: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpio.cli.connect.GRACE", 0.05)
    seconds = "0.1" if server.endswith("--timeout") else "20"
    assert main(["list", server.removesuffix(" --timeout"), "--timeout", seconds]) is status
    assert capfd.readouterr().err.startswith(f"mcpio: {said}")


@pytest.mark.parametrize("name", ["app.py", "my app.py"])
def test_python_file_in_quotes_served(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text("from mcpio import Server\nserver = Server('app', '1')\n")
    monkeypatch.chdir(tmp_path)
    assert main(["list", shlex.quote(name)]) is Exit.DONE
    assert capfd.readouterr().out.startswith("app 1, speaking ")


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_command_and_server(serving: list[str], signum: signal.Signals, status: int) -> None:
    command = [sys.executable, "-m", "mcpio", "call", "-v", "wait", "--", *serving]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        heard = {process.stderr.readline(), process.stderr.readline()}
        process.send_signal(signum)
        out, err = process.communicate(timeout=20)
    assert heard == {"server: waiting\n", "progress: 1\n"}
    assert (process.returncode, out, err) == (status, "", "")


def test_access_log_goes_to_standard_error(serving: list[str]) -> None:
    command = [*serving, "--http", "0", "--health", "/health", "--access-log"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = process.stderr.readline().removeprefix("mcpio: serving 'process' at ").strip()
        with urllib.request.urlopen(url.removesuffix("/mcp") + "/health") as response:
            response.read()
        line = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert "INFO mcpio.access: GET /health 200 " in line
    assert line.endswith(" 127.0.0.1\n")


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_http_server_prints_its_url_and_stops_on_signal(
    serving: list[str], signum: signal.Signals, status: int
) -> None:
    command = [*serving, "--http", "0", "--path", "/here", "--health", "/health"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = process.stderr.readline().removeprefix("mcpio: serving 'process' at ").strip()
        assert url.endswith("/here")
        with urllib.request.urlopen(url.removesuffix("/here") + "/health") as response:
            assert json.load(response) == {"status": "ok"}
        process.send_signal(signum)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (status, "", "")


def test_stored_session_continues_with_the_next_server(serving: list[str], tmp_path: Path) -> None:
    command = [*serving, "--http", "0", "--store", str(tmp_path / "sessions.db")]
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    fields = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    for method, params in (("initialize", info), ("ping", {})):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            url = process.stderr.readline().removeprefix("mcpio: serving 'process' at ").strip()
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
            with urllib.request.urlopen(urllib.request.Request(url, body, fields)) as response:
                assert response.status == 200
                fields |= {"mcp-session-id": response.headers.get("mcp-session-id", "")}
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20)


def test_closed_pipe_ends_the_command_quietly(serving: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "mcpio", "call", "say", "text=x", "--", *serving]
    run = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (run.returncode, run.stderr) == (Exit.OUTPUT_CLOSED, b"")


def test_console_script_and_module_are_equal() -> None:
    script = Path(sys.executable).with_name("mcpio")
    run = subprocess.run([script, "--version"], capture_output=True, text=True)
    assert run.stdout == _run("--version").stdout
