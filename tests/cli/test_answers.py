"""What a server asks in the middle of a command, and what the user of a terminal answers."""

from __future__ import annotations

import argparse
import os
import pty
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import trio

from mcpio.cli import answers, main
from mcpio.cli.answers import Terminal
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.output import Console
from mcpio.errors import SamplingRejected
from mcpio.types import (
    BooleanSchema,
    CreateMessageRequest,
    ElicitFormRequest,
    ElicitResult,
    ElicitSchema,
    ElicitURLRequest,
    LegacyTitledEnumSchema,
    NumberSchema,
    SamplingMessage,
    StringSchema,
    TextContent,
    TitledChoice,
    TitledItems,
    TitledMultiSelectEnumSchema,
    TitledSingleSelectEnumSchema,
    UnknownSchema,
    UntitledSingleSelectEnumSchema,
)

SCOPE: Any = None


class Typist:
    """Types the lines; the end of the input comes after the last."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = iter(lines)
        self.prompts: list[str] = []

    async def read(self, prompt: str) -> str | None:
        await trio.lowlevel.checkpoint()
        self.prompts.append(prompt)
        return next(self.lines, None)


def _elicit(request: Any, *lines: str) -> tuple[ElicitResult, Typist]:
    typist = Typist(lines)
    return trio.run(Terminal(Console(), typist.read).elicit, SCOPE, request), typist


def _form(required: tuple[str, ...] = (), **fields: Any) -> ElicitFormRequest:
    return ElicitFormRequest("For whom?", ElicitSchema(fields, required))


def test_form_filled_in_field_by_field(capsys: pytest.CaptureFixture[str]) -> None:
    request = _form(
        ("seats",),
        seats=NumberSchema("integer", title="Seats", description="how many", minimum=1, maximum=9),
        window=BooleanSchema(default=True),
        meal=TitledSingleSelectEnumSchema((TitledChoice("v", "Vegetables"), TitledChoice("f", "Fish"))),
        day=StringSchema(format="date"),
        note=StringSchema(),
        price=NumberSchema(),
    )
    # Too many seats, no number, none at all; then a wrong choice.
    result, typist = _elicit(request, "12", "two", "", "2", "", "3", "2", "2026-11-22", "", "1.5")
    assert result.action == "accept"
    assert result.content == {"seats": 2, "window": True, "meal": "f", "day": "2026-11-22", "price": 1.5}
    assert typist.prompts[0] == "seats (integer)*: "
    assert typist.prompts[4] == "window (y/n, default y): "
    assert typist.prompts[5:8] == ["meal (number): ", "meal (number): ", "day (date): "]
    said = capsys.readouterr().err
    assert said.startswith("The server asks: For whom?\n(! declines, Ctrl-D dismisses, ")
    assert "  Seats: how many\n" in said
    assert "  must be a whole number, not 'two'\n" in said
    assert "  1. Vegetables (v)\n  2. Fish (f)\n  must be one of the numbers 1 to 2, not '3'\n" in said


def test_choices_taken_by_number_and_by_value() -> None:
    result, _ = _elicit(
        _form(
            colors=TitledMultiSelectEnumSchema(TitledItems((TitledChoice("r", "Red"), TitledChoice("g", "Green")))),
            size=UntitledSingleSelectEnumSchema(("small", "large")),
            kind=LegacyTitledEnumSchema(("a", "b"), ("Apple", "Banana"), default="b"),
        ),
        *("1, g", "large", ""),
    )
    assert result.content == {"colors": ("r", "g"), "size": "large", "kind": "b"}


@pytest.mark.parametrize(("lines", "action"), [(["2", "!"], "decline"), (["2"], "cancel"), ([], "cancel")])
def test_form_declined_or_dismissed(lines: list[str], action: str) -> None:
    result, _ = _elicit(_form(a=NumberSchema(), b=BooleanSchema()), *lines)
    assert (result.action, result.content) == (action, None)


def test_wrong_answers_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    request = _form(("ok", "on", "mail"), ok=BooleanSchema(), on=NumberSchema(), mail=StringSchema(format="email"))
    result, _ = _elicit(request, "maybe", "N", "x", "nan", "-inf", "3", "nobody", "a@b.example")
    assert result.content == {"ok": False, "on": 3.0, "mail": "a@b.example"}
    said = capsys.readouterr().err
    assert "must be y or n, not 'maybe'" in said
    assert "must be a number, not 'x'" in said
    assert "must be a finite number, not 'nan': JSON has no other" in said
    assert "mail" in said.partition("not 'x'")[2]


def test_field_of_an_unknown_kind_is_text() -> None:
    result, typist = _elicit(_form(odd=UnknownSchema({"type": "color"})), "blue")
    assert (result.content, typist.prompts) == ({"odd": "blue"}, ["odd (text): "])


@pytest.mark.parametrize(("line", "action"), [("y", "accept"), ("", "decline"), ("no", "decline")])
def test_address_shown_and_not_opened(line: str, action: str, capsys: pytest.CaptureFixture[str]) -> None:
    result, _ = _elicit(ElicitURLRequest("Sign in", "https://x/sign", "1"), line)
    assert (result.action, result.content) == (action, None)
    assert "\n  https://x/sign\n" in capsys.readouterr().err


def _sample(*lines: str) -> str:
    request = CreateMessageRequest((SamplingMessage("user", TextContent("Say hi")),), 10, system_prompt="Be kind")
    result = trio.run(Terminal(Console(), Typist(lines).read).sample, SCOPE, request)
    return result.text


def test_message_of_the_model_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert _sample("hi", "there", "", "not read") == "hi\nthere"
    assert "  system: Be kind\n  user: Say hi\n" in capsys.readouterr().err
    for lines in (["!"], ["half an answer"], []):
        with pytest.raises(SamplingRejected, match="the user refuses"):
            _sample(*lines)


def test_questions_asked_one_at_a_time() -> None:
    typist = Typist(["1", "2", "3", "4"])
    terminal = Terminal(Console(), typist.read)

    async def both() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(terminal.elicit, SCOPE, _form(a=NumberSchema(), b=NumberSchema()))
            nursery.start_soon(terminal.elicit, SCOPE, _form(a=NumberSchema(), b=NumberSchema()))

    trio.run(both)
    assert [prompt[0] for prompt in typist.prompts] == ["a", "b", "a", "b"]


# Options


def _options(**given: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"sampling": None, "root": [], **given})


def test_nothing_declared_without_a_terminal(tmp_path: Path) -> None:
    assert answers.client_options(_options(), Console()) == {}
    (tmp_path / "said.txt").write_text("hello")
    found: Any = answers.client_options(_options(sampling=str(tmp_path / "said.txt"), root=[str(tmp_path)]), Console())
    assert set(found) == {"sampling", "roots"}
    assert found["sampling"](SCOPE, None).text == "hello"
    assert found["roots"][0].uri == tmp_path.as_uri()
    refusing: Any = answers.client_options(_options(sampling="refuse"), Console())
    with pytest.raises(SamplingRejected):
        refusing["sampling"](SCOPE, None)


def test_root_whose_name_is_no_text_has_a_name_that_can_be_sent(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/r\xff"
    os.mkdir(folder)
    found: Any = answers.client_options(_options(root=[os.fsdecode(folder)]), Console())
    [root] = found["roots"]
    assert (root.uri.rpartition("/")[2], root.name) == ("r%FF", "r\ufffd")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sampling": "ask"}, "--sampling ask needs a terminal"),
        (
            {"sampling": "no-such-file"},
            "--sampling must be ask, refuse or a readable file, not 'no-such-file': No such",
        ),
        ({"sampling": sys.executable}, "--sampling must be a file of UTF-8 text, not "),
        ({"root": ["no-such-directory"]}, "--root must be a directory, not 'no-such-directory'"),
    ],
)
def test_invalid_option_rejected(given: dict[str, Any], said: str) -> None:
    with pytest.raises(Failure, match=said) as caught:
        answers.client_options(_options(**given), Console())
    assert caught.value.status is Exit.USAGE


# On a real terminal

SERVER = """
import attrs
from mcpio import Context, Server, TextContent
from mcpio.app import Accepted, Form
from mcpio.types import CreateMessageRequest, SamplingMessage

server = Server("cinema", "1")

@attrs.frozen
class Order:
    seats: int

@server.tool
async def book(ctx: Context) -> str:
    answer = await ctx.elicit("How many seats?", Form(Order))
    return f"{answer.value.seats} seats" if isinstance(answer, Accepted) else type(answer).__name__

@server.tool
async def where(ctx: Context) -> str:
    message = await ctx.sample(CreateMessageRequest((SamplingMessage("user", TextContent("Look")),), 9))
    return f"{message.text}, in {[root.name for root in await ctx.roots()]}"
"""


@pytest.fixture
def cinema(tmp_path: Path) -> str:
    """Return the path of a server that asks."""
    (tmp_path / "cinema.py").write_text(SERVER)
    return str(tmp_path / "cinema.py")


def _on_a_terminal(words: list[str], types: bytes) -> tuple[int, bytes, bytes]:
    """Run a command on a pseudo-terminal; type once it asks. Returns its status, standard output, and the terminal."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "mcpio", *words]
    with subprocess.Popen(command, stdin=slave, stderr=slave, stdout=subprocess.PIPE) as process:
        os.close(slave)
        seen = b""
        while not seen.endswith(b": ") and not seen.endswith(b"> "):
            seen += os.read(master, 1000)
        os.write(master, types)
        out, _ = process.communicate(timeout=30)
    os.close(master)
    return process.returncode, out, seen


@pytest.mark.parametrize(("types", "out"), [(b"3\n", b"3 seats\n"), (b"!\n", b"Declined\n"), (b"\x04", b"Cancelled\n")])
def test_tool_that_asks_called_from_a_terminal(cinema: str, types: bytes, out: bytes) -> None:
    status, said, seen = _on_a_terminal(["call", cinema, "book"], types)
    assert (status, said) == (Exit.DONE, out)
    assert b"The server asks: How many seats?" in seen
    assert seen.endswith(b"seats (integer)*: ")


def test_message_typed_on_a_terminal(cinema: str, tmp_path: Path) -> None:
    words = ["call", cinema, "where", "--sampling", "ask", "--root", str(tmp_path)]
    status, said, _ = _on_a_terminal(words, b"a tree\n\n")
    assert (status, said.decode()) == (Exit.DONE, f"a tree, in ['{tmp_path.name}']\n")


def test_tool_that_asks_fails_without_a_terminal(cinema: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["call", cinema, "book"]) is Exit.REFUSED
    assert "elicit" in capfd.readouterr().err
