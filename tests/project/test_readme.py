"""Every code block of README, of its sister pages and of the docs runs, and every example; how, blocks.py tells.

The blocks of the docs take a process each: they are run where ``MCPIO_LONG_TESTS`` is set.
"""

from __future__ import annotations

import doctest
import importlib
import os
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from blocks import Block, blocks, fault, joined, run_commands, run_program, run_script
from tree import ROOT, modules, project_files, settings

DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"
FOREIGN = {"gevent_sockets.py", "memory.py", "mqtt_channel.py", "smart_home.py", "twisted_protocol.py"}
"""Examples that need what only developers install: tests/docs and tests/interop run them."""

PAGES = {
    path.relative_to(ROOT).as_posix(): list(blocks(path.read_text(encoding="utf-8")))
    for path in project_files()
    if path.suffix == ".md" and (path.parent == ROOT or DOCS in path.parents)
}
BLOCKS = [
    (page, block)
    for page, found in PAGES.items()
    for block in found
    if "/" not in page or os.environ.get("MCPIO_LONG_TESTS")
]


def _desk(page: str, folder: Path) -> Path:
    """Return a folder that has the page's programs and the examples, as a reader's would."""
    if EXAMPLES.is_dir():
        shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    programs = [block for block in PAGES[page] if block.is_program]
    texts = joined(programs)
    for block in programs:
        (folder / block.file_name).write_text(texts[block.line], encoding="utf-8")
    return folder


def _program_of(page: str, output: Block) -> Block | None:
    """Return the program whose output a block shows."""
    if output.language != "text" or "output" not in output.notes:
        return None
    return [block for block in PAGES[page] if block.is_program and block.line < output.line][-1]


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=[f"{page}:{block.line}" for page, block in BLOCKS])
def test_block_does_what_it_shows(page: str, block: Block, tmp_path: Path) -> None:
    assert fault(block) is None
    if {"not run", "command"} & block.notes.keys():
        return
    match block.language:
        case "python" if block.is_program:
            if not any(_program_of(page, other) is block for other in PAGES[page]):  # else its output's test runs it
                run_program(_desk(page, tmp_path) / block.file_name)
        case "console":
            run_commands(block.text, _desk(page, tmp_path))
        case "sh":
            run_script(block.text, _desk(page, tmp_path))
        case "toml":
            tomllib.loads(block.text)
        case "text" if "output" in block.notes:
            program = _program_of(page, block)
            assert program is not None
            printed = run_program(_desk(page, tmp_path) / program.file_name)
            assert doctest.OutputChecker().check_output(block.text, printed, doctest.ELLIPSIS), printed


@pytest.mark.parametrize("page", PAGES)
def test_sessions_of_a_page_pass(page: str) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for block in PAGES[page]:
        if block.is_session:
            test = doctest.DocTestParser().get_doctest(block.text, {}, page, page, block.line - 1)
            test.globs = names
            runner.run(test, clear_globs=False)
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize(
    "example", sorted(str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py") if path.name not in FOREIGN)
)
def test_example_runs(example: str, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    run_program(tmp_path / example)


def test_sessions_in_docstrings_pass() -> None:
    for module, path in modules().items():
        if ">>> " in path.read_text(encoding="utf-8"):
            assert doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS).failed == 0, module


def test_commands_of_readme_name_what_exists() -> None:
    commands = {block.notes["command"]: block for block in PAGES["README.md"] if "command" in block.notes}
    assert list(commands) == ["demo", "tests"]
    demo, tests = commands["demo"].text, commands["tests"].text
    for words in ("python3 -m venv .venv", "pip install", "-m mcpio demo"):
        assert words in demo
    assert "-m pytest" in tests
    extras = settings()["project"]["optional-dependencies"]
    assert {name for found in re.findall(r"\[([\w,]+)\]", demo) for name in found.split(",")} <= set(extras)
    assert all(block.language == "sh" and "\n" not in block.text.strip() for block in commands.values())
