"""Where things stand in the checkout, for the tests of the project itself."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"

PYTHON = os.environ.get("MCPIO_PYTHON", sys.executable)
"""The interpreter for the programs of README, docs and examples: CI names one that has nothing but the wheel."""


def settings() -> dict[str, Any]:
    """Return ``pyproject.toml``."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def project_files() -> list[Path]:
    """Return every file that git tracks or would track; in an unpacked archive, every file."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        paths = [ROOT / name for name in listing.split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not {"build", "dist", ".venv"} & set(path.relative_to(ROOT).parts)]
    return sorted(path for path in paths if path.is_file())


def python_files() -> list[Path]:
    """Return the project's Python files."""
    return [path for path in project_files() if path.suffix == ".py"]


def modules() -> dict[str, Path]:
    """Return every module of the library by its dotted name; a package goes by its own name."""
    found = {}
    for path in sorted((SRC / "mcpio").rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found
