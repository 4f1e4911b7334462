"""The command line as a whole: commands, help, usage, and what happens when nobody reads the output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mcpio
from mcpio.cli import main
from mcpio.cli.command_line import COMMANDS
from mcpio.cli.exit_status import Exit


@pytest.mark.parametrize("words", [["--help"], ["-h"], []])
def test_help_lists_every_command_and_status(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 0
    said = capsys.readouterr().out
    for command, summary in COMMANDS.items():
        assert f"  {command:10}{summary}\n" in said
    told = {int(word) for word in said.replace(",", " ").split() if word.isdigit()}
    assert {*map(int, Exit), 130, 143} <= told


@pytest.mark.parametrize("module", ["mcpio.cli.command_line", "argparse", "mcpio.cli.use"])
def test_interrupt_during_an_import_ends_quietly(module: str) -> None:
    code = f"""
import sys

class Interrupted:
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

from mcpio.cli import main
sys.meta_path.insert(0, Interrupted)
sys.exit(main(["list", "server.py"]))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_and_rejects_unknown_options(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: mcpio {command}")
    with pytest.raises(SystemExit) as caught:
        main([command, "x", "--wrong"])
    assert caught.value.code == Exit.USAGE


def test_usage_shows_both_ways_to_name_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["call", "--help"])
    assert capsys.readouterr().out.splitlines()[:2] == [
        "usage: mcpio call [options] SERVER TOOL [KEY=VALUE | KEY:=JSON ...]",
        "       mcpio call [options] TOOL [KEY=VALUE | KEY:=JSON ...] -- PROGRAM [ARG ...]",
    ]


def test_version_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"mcpio {mcpio.__version__}\n"


def test_unknown_command_suggests_a_close_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lst"]) is Exit.USAGE
    assert capsys.readouterr() == ("", "mcpio: no command 'lst'. Did you mean 'list'?\n")


def test_unknown_option_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--verison"])
    assert caught.value.code == Exit.USAGE
    assert "--verison" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list"], "no server given; see mcpio list --help"),
        (["list", ""], "no server: give its command in quotes, or its words after --"),
        (["list", "--"], "no server: give its command in quotes, or its words after --"),
        (["list", "python 'x"], "cannot split the server's command \"python 'x\": No closing quotation"),
        (["call", "a=1", "--", "x"], "no tool"),
    ],
)
def test_missing_server_rejected(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    if words[0] == "call":
        words = ["call", "--", "x"]
    assert main(words) is Exit.USAGE
    assert capsys.readouterr().err.startswith(f"mcpio: {said}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--timeout", "soon"], "must be a number of seconds, 0 or more, not 'soon'"),
        (["--timeout", "-1"], "must be a number of seconds, 0 or more, not '-1'"),
        (["--timeout", "inf"], "must be a number of seconds, 0 or more, not 'inf'"),
        (["--env", "NAME"], "must be NAME=VALUE, not 'NAME'"),
        (["--env", "=x"], "must be NAME=VALUE, not '=x'"),
        (["--cwd", "nowhere/at/all"], "must be a directory, not 'nowhere/at/all'"),
    ],
)
def test_invalid_option_values_rejected(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["list", *words, "server"])
    assert caught.value.code == Exit.USAGE
    assert said in capsys.readouterr().err


def test_help_imports_no_event_loop() -> None:
    program = "import sys\nfrom mcpio.cli import main\ntry: main(['--help'])\nfinally: print('trio' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.endswith("False\n")


def test_broken_pipe_exits_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    run = subprocess.run([sys.executable, "-m", "mcpio", "--version"], stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (run.returncode, run.stderr) == (Exit.OUTPUT_CLOSED, b"")


def _with_closed_output(*words: str) -> subprocess.CompletedProcess[bytes]:
    command = ["sh", "-c", 'exec "$0" -m mcpio "$@" >&-', sys.executable, *words]
    return subprocess.run(command, stderr=subprocess.PIPE)


def test_output_closed_at_start_is_ignored_without_a_result() -> None:
    run = _with_closed_output("lst")
    assert run.returncode == Exit.USAGE
    assert run.stderr.startswith(b"mcpio: no command 'lst'")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["config", "https://x/mcp"], Exit.UNWRITABLE, b"cannot write: standard output is closed"),
        (["inspect", "https://x/mcp"], Exit.UNWRITABLE, b"cannot write: standard output is closed"),
        (["demo"], Exit.UNWRITABLE, b"cannot write: standard output is closed"),
        (["lock", "--json", "no-such-program-here"], Exit.NO_PROGRAM, b"cannot start 'no-such-program-here'"),
    ],
)
def test_result_for_a_closed_output_fails_with_74(words: list[str], status: Exit, said: bytes) -> None:
    run = _with_closed_output(*words)
    assert run.stderr.startswith(b"mcpio: " + said)
    assert (run.returncode, b"Traceback" in run.stderr) == (status, False)


def test_unencodable_characters_are_escaped() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "mcpio", "blätter"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert run.returncode == Exit.USAGE
    assert b"no command 'bl\\xe4tter'" in run.stderr


@pytest.mark.long
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no disk that is always full")
@pytest.mark.parametrize("words", [["--version"], ["serve", "x.py", "--record", "/dev/full"]])
def test_full_disk_fails_with_74(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("from mcpio import Server\nserver = Server('x')\n")
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "mcpio", *words],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
        )
    assert run.stderr == b"mcpio: cannot write: No space left on device\n"
    assert run.returncode == Exit.UNWRITABLE


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no disk that is always full")
def test_full_disk_while_reporting_a_failure() -> None:
    with open("/dev/full", "w") as full:
        run = subprocess.run([sys.executable, "-m", "mcpio", "lst"], stderr=full)
    assert run.returncode == Exit.UNWRITABLE


def test_deleted_working_directory_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["list", "server.py"]) == Exit.USAGE
    assert capsys.readouterr().err == "mcpio: the working directory was deleted: change to another one\n"


def test_missing_file_in_a_command_is_not_taken_for_a_missing_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(options: object) -> int:
        raise FileNotFoundError(2, "No such file")

    monkeypatch.setattr("mcpio.cli.replay.run", run)
    with pytest.raises(FileNotFoundError):
        main(["replay", "x"])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no disk that is always full")
@pytest.mark.parametrize(
    ("words", "stream"),
    [
        (["inspect", "tcp://127.0.0.1:1"], "stdout"),
        (["relay", "http://127.0.0.1:1/mcp"], "stderr"),
        (["relay", "--page", "--", "cat"], "stderr"),
    ],
)
def test_output_that_a_task_cannot_write_is_reported(words: list[str], stream: str) -> None:
    with open("/dev/full", "w") as full:
        streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: full}
        words = [sys.executable, "-m", "mcpio", *words]
        run = subprocess.run(words, stdin=subprocess.DEVNULL, timeout=60, **streams)
    assert run.returncode == Exit.UNWRITABLE
    if stream == "stdout":
        assert run.stderr == b"mcpio: cannot write: No space left on device\n"
