"""The pages of Markdown, and what each code block of them is held to; how a block is run, blocks.py tells."""

from __future__ import annotations

import doctest
import shutil
import tomllib
from pathlib import Path

from blocks import Block, blocks, fault, joined, run_commands, run_program, run_script
from tree import ROOT, project_files

DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"
PAGES = {
    path.relative_to(ROOT).as_posix(): list(blocks(path.read_text(encoding="utf-8")))
    for path in project_files()
    if path.suffix == ".md" and (path.parent == ROOT or DOCS in path.parents)
}
"""The blocks of each page, by the path of the page from the project's root."""


def check_block(page: str, block: Block, folder: Path) -> None:
    """Run a block as a reader would, in an empty folder, and assert that it does what it shows."""
    assert fault(block) is None
    if {"not run", "command"} & block.notes.keys():
        return
    match block.language:
        case "python" if block.is_program:
            if not any(_program_of(page, other) is block for other in PAGES[page]):  # else its output's check runs it
                run_program(_desk(page, folder) / block.file_name)
        case "console":
            run_commands(block.text, _desk(page, folder))
        case "sh":
            run_script(block.text, _desk(page, folder))
        case "toml":
            tomllib.loads(block.text)
        case "text" if "output" in block.notes:
            program = _program_of(page, block)
            assert program is not None
            printed = run_program(_desk(page, folder) / program.file_name)
            assert doctest.OutputChecker().check_output(block.text, printed, doctest.ELLIPSIS), printed


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
