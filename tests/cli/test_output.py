"""Results go to standard output, everything else to standard error, and nothing a server says drives the terminal."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mcpio.cli import lock
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.output import Console, width
from mcpio.types import LoggingMessageNotification


class Terminal(io.StringIO):
    """A stream that says that people watch it."""

    def isatty(self) -> bool:
        return True


@contextmanager
def screens() -> Iterator[tuple[Terminal, Terminal]]:
    """Make both outputs terminals."""
    out, err = Terminal(), Terminal()
    with redirect_stdout(out), redirect_stderr(err):
        yield out, err


def test_pipe_gets_unescaped_text(capsys: pytest.CaptureFixture[str]) -> None:
    Console().result("\x1b[2Jred")
    Console().result("with its own end\n")
    assert capsys.readouterr() == ("\x1b[2Jred\nwith its own end\n", "")


def test_terminal_gets_control_characters_escaped() -> None:
    with screens() as (out, err):
        Console().result("\x1b[2J\ttabs\nand\rlines\x9b \u202eexe.\u200b")
        Console().failure("\x07")
    assert out.getvalue() == "\\x1b[2J\ttabs\nand\\rlines\\x9b \\u202eexe.\\u200b\n"
    assert err.getvalue() == "mcpio: \\x07\n"


def test_progress_on_a_terminal_rewrites_one_line() -> None:
    with screens() as (_, err):
        console = Console()
        console.progress(1, 2, None)
        console.progress(2, None, "nearly\x1b")
        console.note("done")
    assert err.getvalue() == "\r\x1b[Kprogress: 1 of 2\r\x1b[Kprogress: 2 nearly\\x1b\ndone\n"


def test_progress_too_large_for_a_float_is_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    Console().progress(10**400, 10**401, None)
    assert capsys.readouterr().err == "progress: 10000000000000000000... of 10000000000000000000...\n"


def test_result_after_progress_starts_a_new_line() -> None:
    with screens() as (out, err):
        console = Console()
        console.progress(0.5, None, None)
        console.result("5")
    assert err.getvalue() == "\r\x1b[Kprogress: 0.5\n"
    assert out.getvalue() == "5\n"


def test_log_messages_show_level_and_logger(capsys: pytest.CaptureFixture[str]) -> None:
    Console().log(LoggingMessageNotification("error", "no wood", "store"))
    Console().log(LoggingMessageNotification("debug", {"n": "é"}))
    assert capsys.readouterr().err == 'error (store): no wood\ndebug: {"n": "é"}\n'


def test_quiet_prints_results_and_failures_only(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(quiet=True)
    console.note("x")
    console.log(LoggingMessageNotification("error", "x"))
    console.progress(1, 2, "x")
    console.failure("y")
    assert capsys.readouterr() == ("", "mcpio: y\n")


def test_closed_standard_error_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    console = Console()
    console.progress(1, 2, "x")
    console.failure("x")


def test_result_for_a_closed_standard_output_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    console = Console()
    for write in (partial(console.result, "x"), partial(console.exact, "x"), partial(console.data, b"x")):
        with pytest.raises(Failure, match="standard output is closed") as failed:
            write()
        assert failed.value.status is Exit.UNWRITABLE
    console.failure("x")  # needs standard error only


def test_bytes_follow_buffered_text(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    console = Console()
    console.exact("text, ")
    console.data(b"\xff")
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == b"text, \xff"


def test_text_only_output_skips_bytes() -> None:
    with redirect_stdout(io.StringIO()) as out:
        Console().data(b"\xff")
    assert out.getvalue() == ""


def test_terminal_gets_no_exact_text_or_bytes() -> None:
    with screens() as (out, _):
        Console().exact("\x1b]0;title\x07")
        Console().data(b"\x1b[2J\n")
        Console().data(b"\xff\x1b")
    assert out.getvalue() == "\\x1b]0;title\\x07\n\\x1b[2J\n[binary: 2 bytes]\n"


def test_width_from_terminal_or_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    assert width() == 50


def test_standard_error_of_the_server_is_escaped() -> None:
    with screens() as (_, err):
        console = Console()
        console.progress(1, None, None)
        console.server_said("\x1b[2Jup")
    assert err.getvalue() == "\r\x1b[Kprogress: 1\nserver: \\x1b[2Jup\n"


def test_closed_standard_error_does_not_redirect_to_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    console = Console()
    console.failure("no")
    console.progress(1, 2, None)
    console.result("yes")
    assert capsys.readouterr().out == "yes\n"


def test_named_pipe_is_written_in_place(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    lock.write(str(pipe), "text")
    assert os.read(reading, 100) == b"text"
    os.close(reading)
    assert pipe.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="the system has no such link")
def test_output_that_is_a_redirected_file_is_written_in_place(tmp_path: Path) -> None:
    file = tmp_path / "out"
    words = ["from mcpio.cli import lock", "from mcpio.cli.output import opened"]
    words += ["lock.write('/dev/stdout', 'text')", "with opened('/dev/stdout', 'a') as file: file.write(' and more')"]
    with file.open("w") as out:
        subprocess.run([sys.executable, "-c", "\n".join(words)], check=True, stdout=out)
    assert file.read_text() == "text and more"
    assert os.path.islink("/dev/stdout")


def test_written_file_goes_through_no_link_of_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / "mcpio.lock.partial").symlink_to(victim)
    (tmp_path / "mcpio.lock").symlink_to(victim)
    lock.write(str(tmp_path / "mcpio.lock"), "text")
    assert (tmp_path / "mcpio.lock").read_text() == "text"
    assert victim.read_text() == "kept"

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(Failure, match="No space left on device"):
        lock.write(str(tmp_path / "mcpio.lock"), "other")
    assert sorted(os.listdir(tmp_path)) == ["mcpio.lock", "mcpio.lock.partial", "victim"]
