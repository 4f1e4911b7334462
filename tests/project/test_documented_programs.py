"""Every code block of the docs runs and does what it shows, and every example runs: a process each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from blocks import Block, run_program
from pages import EXAMPLES, PAGES, check_block

BLOCKS = [(page, block) for page, found in PAGES.items() for block in found if "/" in page]
FOREIGN = {
    "aiohttp_server.py",
    "balanced_server.py",
    "gevent_sockets.py",
    "memory.py",
    "mqtt_channel.py",
    "smart_home.py",
    "twisted_protocol.py",
}
"""Examples that need what only developers install: tests/docs and tests/interop run them."""
PROGRAMS = sorted(str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py") if path.name not in FOREIGN)


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=[f"{page}:{block.line}" for page, block in BLOCKS])
def test_block_does_what_it_shows(page: str, block: Block, tmp_path: Path) -> None:
    check_block(page, block, tmp_path)


@pytest.mark.parametrize("example", PROGRAMS)
def test_example_runs(example: str, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    run_program(tmp_path / example)
