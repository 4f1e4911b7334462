"""``mcpio demo`` as a reader runs it: in a few seconds, readable anywhere, and honest when something fails."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from mcpio.cli import main
from mcpio.cli.demo import _server_wrote
from mcpio.cli.demo.view import View
from mcpio.cli.exit_status import Exit

COMMAND = [sys.executable, "-m", "mcpio", "demo"]


def test_whole_conversation_shown() -> None:
    run = subprocess.run(COMMAND, capture_output=True, text=True, env={**os.environ, "COLUMNS": "100"})
    assert (run.returncode, run.stderr) == (Exit.DONE, "")
    assert "\x1b" not in run.stdout
    assert max(map(len, run.stdout.splitlines())) <= 100
    rows = re.findall(r"^(\w+) +(-->|<--) (.+?) +(\w+)$", run.stdout, re.MULTILINE)
    phases = [(row[0], row[3]) for row in rows]
    assert phases[:3] == [("initializing", "initializing"), ("operating", "initializing"), ("operating", "operating")]
    assert phases[-1] == ("closed", "closed")
    for word in (
        "initialize", "tools/list", "resources/list", "prompts/list", "tools/call", "resources/read", "prompts/get",
        "notifications/progress", "notifications/message", "notifications/cancelled", "ping", "server/discover",
        "(end of input)",
    ):  # fmt: skip
        assert word in run.stdout.replace("\n                 ", "")
    assert re.search(r"^Done: 29 messages in \d\.\d s; the server exited with status 0\.$", run.stdout, re.MULTILINE)


def test_closed_output_exits_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    run = subprocess.run(COMMAND, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (run.returncode, run.stderr) == (Exit.OUTPUT_CLOSED, b"")


def test_signal_ends_the_demo() -> None:
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while "initialize" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "")


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        ("import sys; sys.exit(3)", Exit.SERVER_DIED, "the connection ended"),
        ("print('hello')", Exit.SERVER_DIED, "the connection ended"),
    ],
)
def test_failing_server_fails_the_demo(
    program: str, status: Exit, said: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mcpio.cli.demo.SERVER", (sys.executable, "-c", program))
    assert main(["demo"]) is status
    assert said in capfd.readouterr().err


def test_missing_server_program_fails(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("mcpio.cli.demo.SERVER", ("no-such-program-here",))
    assert main(["demo"]) is Exit.NO_PROGRAM
    assert "no such program" in capfd.readouterr().err


def test_endless_conversation_times_out(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("mcpio.cli.demo.SERVER", ("sh", "-c", "cat > /dev/null"))
    monkeypatch.setattr("mcpio.cli.demo.DEADLINE", 0.05)
    assert main(["demo"]) is Exit.TIMEOUT
    assert "the conversation has not ended after 0.05 s" in capfd.readouterr().err


def test_other_standard_error_of_the_server_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    view = View(lines.append, 80, colour=False)
    view.sent("a", "new")
    for line in ("phase of the moon", "phase", "Traceback:", "phase in new"):
        _server_wrote(view, line)
    assert capsys.readouterr().err == "server: phase of the moon\nserver: phase\nserver: Traceback:\n"
    assert len(lines) == 1
