"""A server of a module that ``mcpio serve`` serves in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["serving", "written"]

SERVER = """
from mcpio import Server

server = Server("workshop", "1")

@server.tool
def add(a: int, b: int) -> int:
    return a + b
"""


def written(path: Path) -> str:
    """Write a module with a server there, and return its path."""
    module = path / "workshop.py"
    module.write_text(SERVER)
    return str(module)


@contextmanager
def serving(module: str, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve in another process; give it and where it says that it listens."""
    argv = [sys.executable, "-m", "mcpio", "serve", module, *words]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        try:
            assert said.startswith("mcpio: serving 'workshop' at "), said
            yield process, said.partition(" at ")[2].strip()
        finally:
            process.kill()
