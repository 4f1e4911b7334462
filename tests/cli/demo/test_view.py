"""The demo's rows come in the client's order, each with both phases, and fit every terminal."""

from __future__ import annotations

import os
import sys

import pytest

from mcpio.cli.demo.view import View

TEXT = '{"jsonrpc":"2.0","id":1,"method":"ping"}'


class Shown:
    """A view and what it printed."""

    def __init__(self, columns: int = 80, *, colour: bool = False) -> None:
        self.lines: list[str] = []
        self.view = View(self.lines.append, columns, colour=colour)


def test_row_shows_both_phases() -> None:
    shown = Shown()
    shown.view.sent(TEXT, "operating")
    shown.view.reported("in", "initializing")
    shown.view.reported("out", "operating")
    shown.view.received("{}", "closing")
    assert shown.lines == [
        'operating    --> {"jsonrpc":"2.0","id":1,"method":"ping"}           initializing',
        "closing      <-- {}                                                    operating",
    ]


def test_headings_align_with_columns() -> None:
    shown = Shown()
    shown.view.title(12)
    assert shown.lines[0].startswith(f"A client (this process, {os.getpid()}) and a server (its child, 12) ")
    assert shown.lines[-1] == "client       message" + " " * 54 + "server"


def test_rows_keep_the_order_of_the_client() -> None:
    shown = Shown()
    shown.view.reported("out", "operating")
    shown.view.sent("a", "operating")
    shown.view.received("b", "operating")
    shown.view.step("Next.")
    assert shown.lines == []
    assert not shown.view.complete
    shown.view.reported("in", "operating")
    assert [line.split()[:3] for line in shown.lines if line] == [
        ["operating", "-->", "a"],
        ["operating", "<--", "b"],
        ["1.", "Next."],
    ]
    assert shown.view.complete


def test_long_message_wrapped_and_cut() -> None:
    shown = Shown()
    shown.view.sent("x" * 1000, "new")
    shown.view.reported("in", "new")
    assert [line[13:17] for line in shown.lines] == ["--> ", "    ", "    ", "    "]
    assert shown.lines[-1].endswith("... (1000 characters)")
    assert {len(line) for line in shown.lines[1:]} == {67}
    assert len(shown.lines[0]) == 80


def test_narrow_terminal_shows_phases_on_a_separate_line() -> None:
    shown = Shown(40)
    shown.view.title(12)
    shown.view.step("The handshake settles the revision and the rest.")
    shown.view.sent("x" * 50, "initializing")
    shown.view.reported("in", "initializing")
    assert max(map(len, shown.lines)) <= 48
    assert shown.lines[-5:] == [
        "1. The handshake settles the revision",
        "and the rest.",
        "--> " + "x" * 36,
        "    " + "x" * 14,
        "    client initializing, server initializing",
    ]


@pytest.mark.parametrize("columns", [1, 10, 25, 71, 72, 200])
def test_any_width_works(columns: int) -> None:
    shown = Shown(columns)
    shown.view.title(1)
    shown.view.step("A step.")
    shown.view.sent(TEXT * 10, "operating")
    shown.view.reported("in", "operating")
    shown.view.end("all is well", 1.23)
    assert "Done: 1 messages in 1.2 s; all is well." in " ".join(shown.lines)


def test_colour_does_not_change_the_text() -> None:
    plain, coloured = Shown(), Shown(colour=True)
    for shown in (plain, coloured):
        shown.view.step("A step.")
        shown.view.sent(TEXT, "operating")
        shown.view.reported("in", "operating")
    assert "\x1b[" not in "".join(plain.lines)
    stripped = [line.replace("\x1b[1m", "").replace("\x1b[36m", "").replace("\x1b[0m", "") for line in coloured.lines]
    assert stripped == plain.lines
    assert stripped != coloured.lines


def test_control_characters_of_messages_are_escaped() -> None:
    shown = Shown()
    shown.view.sent("\x1b[2J", "new")
    shown.view.reported("in", "new")
    assert "\\x1b[2J" in shown.lines[0]


@pytest.mark.parametrize(
    ("terminal", "variables", "colour"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colour_only_on_terminals_without_no_color(
    terminal: bool,
    variables: dict[str, str],
    colour: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: terminal)
    View.for_output().step("A step.")
    assert ("\x1b[1m" in capsys.readouterr().out) is colour


def test_broken_output_raises_in_the_client_only() -> None:
    def fail(text: str) -> None:
        raise BrokenPipeError

    view = View(fail, 80, colour=False)
    view.sent("a", "operating")
    view.reported("in", "operating")
    with pytest.raises(BrokenPipeError):
        view.received("b", "operating")
