"""Every code block of README and of its sister pages runs, and every session at a prompt, wherever one is shown."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from blocks import Block
from pages import PAGES, check_block
from tree import modules, settings

BLOCKS = [(page, block) for page, found in PAGES.items() for block in found if "/" not in page]


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=[f"{page}:{block.line}" for page, block in BLOCKS])
def test_block_does_what_it_shows(page: str, block: Block, tmp_path: Path) -> None:
    check_block(page, block, tmp_path)


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
