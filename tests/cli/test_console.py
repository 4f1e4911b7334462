"""Results go to standard output, everything else to standard error, and nothing a server says drives the terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import pytest

from mcpio import LoggingMessageNotification
from mcpio.cli.console import Console, width


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


def test_a_pipe_gets_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    Console().result("\x1b[2Jred")
    Console().result("with its own end\n")
    assert capsys.readouterr() == ("\x1b[2Jred\nwith its own end\n", "")


def test_a_terminal_gets_unsafe_characters_as_escapes() -> None:
    with screens() as (out, err):
        Console().result("\x1b[2J\ttabs\nand\rlines\x9b \u202eexe.\u200b")
        Console().failure("\x07")
    assert out.getvalue() == "\\x1b[2J\ttabs\nand\\rlines\\x9b \\u202eexe.\\u200b\n"
    assert err.getvalue() == "mcpio: \\x07\n"


def test_progress_on_a_terminal_is_one_line_that_changes() -> None:
    with screens() as (_, err):
        console = Console()
        console.progress(1, 2, None)
        console.progress(2, None, "nearly\x1b")
        console.note("done")
    assert err.getvalue() == "\r\x1b[Kprogress: 1 of 2\r\x1b[Kprogress: 2 nearly\\x1b\ndone\n"


def test_a_result_after_progress_begins_on_a_line_of_its_own() -> None:
    with screens() as (out, err):
        console = Console()
        console.progress(0.5, None, None)
        console.result("5")
    assert err.getvalue() == "\r\x1b[Kprogress: 0.5\n"
    assert out.getvalue() == "5\n"


def test_log_messages_say_their_level_and_who_logs(capsys: pytest.CaptureFixture[str]) -> None:
    Console().log(LoggingMessageNotification("error", "no wood", "store"))
    Console().log(LoggingMessageNotification("debug", {"n": "é"}))
    assert capsys.readouterr().err == 'error (store): no wood\ndebug: {"n": "é"}\n'


def test_quiet_means_results_and_failures_only(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(quiet=True)
    console.note("x")
    console.log(LoggingMessageNotification("error", "x"))
    console.progress(1, 2, "x")
    console.failure("y")
    assert capsys.readouterr() == ("", "mcpio: y\n")


def test_without_any_output_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    console = Console()
    console.result("x")
    console.exact("x")
    console.data(b"x")
    console.progress(1, 2, "x")
    console.failure("x")


def test_bytes_come_after_the_text_before_them(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    console = Console()
    console.exact("text, ")
    console.data(b"\xff")
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == b"text, \xff"


def test_an_output_without_bytes_gets_none() -> None:
    with screens() as (out, _):
        Console().data(b"\xff")
    assert out.getvalue() == ""


def test_the_width_is_the_terminals_or_what_columns_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    assert width() == 50


def test_what_a_server_writes_beside_the_protocol_drives_no_terminal() -> None:
    with screens() as (_, err):
        console = Console()
        console.progress(1, None, None)
        console.server_said("\x1b[2Jup")
    assert err.getvalue() == "\r\x1b[Kprogress: 1\nserver: \\x1b[2Jup\n"


def test_nothing_takes_standard_output_in_place_of_a_closed_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    console = Console()
    console.failure("no")
    console.progress(1, 2, None)
    console.result("yes")
    assert capsys.readouterr().out == "yes\n"
