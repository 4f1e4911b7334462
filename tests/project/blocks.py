"""The code blocks of README and docs: finding them, and running each by what it is.

What a block is shows in its fence:

``python`` with ``>>>``   lines for a REPL; those of one page are one session and go through ``doctest``
``python`` otherwise      a program, run by itself beside the page's other programs. A first line ``# name.py`` names
                          its file; ``await`` at the top level is run under Trio, or under asyncio where the block
                          names it. A program that calls ``serve_stdio`` is held a conversation with
``console``               ``$`` lines are commands, what follows each is its output; ``...`` stands for anything
``sh``                    commands; every one must succeed
``json``                  one JSON value, or one on each line
``nginx``                 a configuration that a test of its own runs
``toml``                  a TOML document
``text``                  nothing to run

A comment line directly before a block says more: ``<!-- not run: why -->``, ``<!-- continues -->`` (a program that
goes on where the page's program before it stopped), ``<!-- output -->`` (a ``text`` block: what the program before it
prints) and ``<!-- command: name -->`` (a command that CI runs by itself).
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from doctest import ELLIPSIS, OutputChecker
from pathlib import Path
from typing import Any, NamedTuple

from tree import PYTHON

LANGUAGES = {"python", "console", "sh", "js", "json", "nginx", "toml", "text"}
SECONDS = 30

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?P<info>[^`]*)$")
_COMMENT = re.compile(r"^ *<!-- (?P<word>not run|continues|output|command)(?:: (?P<value>.+))? -->$")
_UNDER_A_LOOP = """
import ast, pathlib, sys, types
code = compile(pathlib.Path(sys.argv[1]).read_text(), sys.argv[1], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
main = types.FunctionType(code, {"__name__": "__main__"})
if "asyncio" in code.co_names:
    import asyncio
    asyncio.run(main())
else:
    import trio
    trio.run(main)
"""


class Block(NamedTuple):
    """One code block."""

    line: int
    """Where its text begins in the page, counted from 1."""
    language: str
    text: str
    notes: dict[str, str]
    """The comments before it: word -> value."""

    @property
    def is_session(self) -> bool:
        """Whether it shows a REPL."""
        return self.language == "python" and re.search(r"^>>> ", self.text, re.MULTILINE) is not None

    @property
    def is_program(self) -> bool:
        """Whether it is a program to run."""
        return self.language == "python" and not self.is_session

    @property
    def file_name(self) -> str:
        """What its file is called."""
        named = re.match(r"# ([\w-]+\.py)\b", self.text)
        return named[1] if named else f"block_{self.line}.py"


def blocks(page: str) -> Iterator[Block]:
    """Yield the code blocks of a page, those inside directives too."""
    yield from _blocks(page.splitlines(), 1)


def _blocks(lines: list[str], first: int) -> Iterator[Block]:
    notes: dict[str, str] = {}
    index = 0
    while index < len(lines):
        fence, comment = _FENCE.match(lines[index]), _COMMENT.match(lines[index])
        if fence:
            end = _closing(lines, index, fence["ticks"])
            body = [line.removeprefix(fence["indent"]) for line in lines[index + 1 : end]]
            yield from _fenced(body, first + index + 1, fence["info"].strip(), notes)
            index = end
        elif comment:
            notes[comment["word"]] = comment["value"] or ""
        if not comment:
            notes = {}
        index += 1


def _closing(lines: list[str], opening: int, ticks: str) -> int:
    for index in range(opening + 1, len(lines)):
        if lines[index].strip().startswith(ticks) and not lines[index].strip().strip(ticks[0]):
            return index
    raise ValueError(f"the block of line {opening + 1} has no end")


def _fenced(body: list[str], line: int, info: str, notes: dict[str, str]) -> Iterator[Block]:
    if info.startswith("{"):
        yield from _blocks(body, line)
    else:
        yield Block(line, info, "\n".join(body) + "\n", dict(notes))


def fault(block: Block) -> str | None:
    """Return what is wrong with the way a block is written, or ``None``."""
    if block.language not in LANGUAGES:
        return f"its language {block.language!r} is none of {', '.join(sorted(LANGUAGES))}"
    if len(block.notes.get("not run", "" if block.language == "js" else "This block runs.")) < 10:
        return "it is not run and does not say why"
    if block.language == "json" and not _is_json(block.text):
        return "it is no JSON"
    if block.is_program and "Server(" in block.text and re.search(r"^\w+\.run\(", block.text, re.MULTILINE):
        return "it runs a loop when mcpio serve imports it: guard that with if __name__ == '__main__'"
    return None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        try:
            return all(json.loads(line) is not None for line in text.splitlines() if line.strip())
        except ValueError:
            return False
    return True


def joined(programs: Iterable[Block]) -> dict[int, str]:
    """Return each program's whole text by its line: one that continues has the text before it in front."""
    texts: dict[int, str] = {}
    before = ""
    for block in programs:
        before = texts[block.line] = before + block.text if "continues" in block.notes else block.text
    return texts


def environment() -> dict[str, str]:
    """Return the environment for a reader's commands: ``python`` and ``mcpio`` are those of the interpreter tested."""
    path = os.pathsep.join([str(Path(PYTHON).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "PYTHONWARNINGS": "error", "COLUMNS": "100", "NO_COLOR": "1"}


def run_program(file: Path) -> str:
    """Run a program as its author would, and return what it printed. It must succeed and keep stderr empty."""
    source = file.read_text(encoding="utf-8")
    if is_server(source):
        return converse(file)
    code = compile(source, str(file), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    loop = ["-c", _UNDER_A_LOOP] if code.co_flags & inspect.CO_COROUTINE else []
    run = _run([PYTHON, *loop, file.name], file.parent, "")
    assert run.returncode == 0, f"exit code {run.returncode}: {run.stderr}"
    assert not run.stderr
    return run.stdout


def is_server(source: str) -> bool:
    """Tell whether a program waits for a client on its standard input."""
    return re.search(r"\bserve_stdio\(", source) is not None and "open_stdio" not in source


def converse(file: Path) -> str:
    """Hold a whole conversation with a server: handshake, everything it lists, a ping, the end of its input."""
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "docs", "version": "1"}}
    features = ["tools", "resources", "prompts"]
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        {"id": "ping", "method": "ping"},
        *({"id": feature, "method": f"{feature}/list"} for feature in features),
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)
    run = _run([PYTHON, file.name], file.parent, lines)
    assert run.returncode == 0, f"exit code {run.returncode}: {run.stderr}"
    assert not run.stderr
    answers = {answer.get("id"): answer for answer in map(json.loads, run.stdout.splitlines())}
    assert answers["ping"]["result"] == {}
    declared = answers[1]["result"]["capabilities"]
    for feature in features:
        if feature in declared:
            assert answers[feature]["result"][feature] is not None
    return run.stdout


def run_commands(text: str, folder: Path) -> None:
    """Run the commands of a ``console`` block and compare what each prints with what the block shows."""
    for command, shown in _commands(text):
        run = _run(["bash", "-c", command], folder, "", merged=True)
        assert OutputChecker().check_output(shown, run.stdout, ELLIPSIS), f"$ {command}\n{run.stdout}"
        assert run.returncode == 0 or shown, f"$ {command}\nexits with {run.returncode}"


def _commands(text: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def run_script(text: str, folder: Path) -> None:
    """Run an ``sh`` block."""
    run = _run(["bash", "-euo", "pipefail", "-c", text], folder, "", merged=True)
    assert run.returncode == 0, run.stdout


def _run(command: list[str], folder: Path, typed: str, *, merged: bool = False) -> subprocess.CompletedProcess[str]:
    stderr = subprocess.STDOUT if merged else subprocess.PIPE
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        input=typed,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=SECONDS,
        check=False,
    )
