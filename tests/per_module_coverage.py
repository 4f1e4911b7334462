"""Ask every module below the drivers for full branch coverage by its own test file alone.

A test that goes through many modules covers much and shows little. So ``src/mcpio/framing/lines.py`` is measured while
only ``tests/framing/test_lines.py`` runs.

    python tests/per_module_coverage.py                  all modules, as many at a time as there are processors
    python tests/per_module_coverage.py framing/lines    only what the words name
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "mcpio"
UNMEASURED = ("__main__", "_driving", "asgi", "asyncio", "cli", "demo", "stores", "testing", "trio")
"""Layers 3 and 4: their tests need an event loop, or a process, and cross modules."""


class Outcome(NamedTuple):
    """What one run found."""

    module: str
    percent: float
    """Of the lines and branches together."""
    missing: str
    """The lines and branches that did not run, or why nothing could be measured; empty when all is well."""


def measured_modules() -> Iterator[Path]:
    """Yield the modules to measure, relative to the package: those that have something to run."""
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        if relative.parts[0].removesuffix(".py") not in UNMEASURED and _does_something(path):
            yield relative


def _does_something(path: Path) -> bool:
    """Tell whether a file has more than a docstring and imports."""
    idle = (ast.Expr, ast.Import, ast.ImportFrom)
    return any(not isinstance(node, idle) for node in ast.parse(path.read_text(encoding="utf-8")).body)


def own_tests(module: Path) -> list[Path]:
    """Return the test files of a module: for ``framing/lines.py`` it is ``tests/framing/test_lines.py``.

    Where that would be too long, ``test_lines_endless.py`` is another, unless there is a module ``lines_endless``.
    """
    name = module.stem.strip("_")
    others = {path.stem.strip("_") for path in (PACKAGE / module.parent).iterdir()}
    found = (ROOT / "tests" / module.parent).glob(f"test_{name}*.py")
    stems = {path.stem.removeprefix("test_"): path for path in found}
    return [path for stem, path in sorted(stems.items()) if _belongs(stem, name, others)]


def _belongs(stem: str, name: str, modules: set[str]) -> bool:
    """Tell whether of all modules whose names a test file's name begins with, ``name`` is the longest."""
    longest = max((module for module in modules if f"{stem}_".startswith(f"{module}_")), key=len, default="")
    return longest == name


def measure(module: Path) -> Outcome:
    """Run a module's own test file and return what it left uncovered in the module."""
    files = own_tests(module)
    if not files:
        return Outcome(module.as_posix(), 0, f"has no tests/{module.parent.as_posix()}/test_{module.stem}.py")
    with tempfile.TemporaryDirectory() as folder:
        settings, report = Path(folder, "settings"), Path(folder, "report.json")
        settings.write_text(_settings(PACKAGE / module, Path(folder, "data")), encoding="utf-8")
        coverage = [sys.executable, "-m", "coverage"]
        tests = [f"--rcfile={settings}", "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, files)]
        run = subprocess.run([*coverage, "run", *tests], cwd=ROOT, capture_output=True, text=True, check=False)
        if run.returncode:
            return Outcome(module.as_posix(), 0, f"its tests fail:\n{run.stdout[-3000:]}{run.stderr[-2000:]}")
        write = [*coverage, "json", "-q", f"--rcfile={settings}", "-o", str(report)]
        subprocess.run(write, cwd=ROOT, capture_output=True, check=False)
        if not report.exists():
            return Outcome(module.as_posix(), 0, f"{files[0].relative_to(ROOT).as_posix()} does not run any of it")
        (measured,) = json.loads(report.read_text())["files"].values()
    lines = [str(line) for line in measured["missing_lines"]]
    branches = [f"{start}->{'exit' if end < 0 else end}" for start, end in measured["missing_branches"]]
    return Outcome(module.as_posix(), measured["summary"]["percent_covered"], " ".join(lines + branches))


def _settings(module: Path, data: Path) -> str:
    """Return settings that measure one module only, and leave out of it what the project's settings leave out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    report = "".join(
        f"\n{option} =" + "".join(f"\n  {pattern}" for pattern in patterns)
        for option, patterns in project["tool"]["coverage"]["report"].items()
    )
    return f"[run]\nbranch = true\ninclude = {module}\ndata_file = {data}\n[report]{report}\n"


def main() -> int:
    """Measure, print one line for each module, and return 1 when a demand is not met."""
    parser = argparse.ArgumentParser(description="Measure each module by its own test file.")
    parser.add_argument("words", nargs="*", help="measure only the modules whose path has one of these in it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many runs at a time")
    arguments = parser.parse_args()
    wanted = [
        module
        for module in measured_modules()
        if not arguments.words or any(word in module.as_posix() for word in arguments.words)
    ]
    start = time.monotonic()
    failures = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for outcome in pool.map(measure, wanted):
            failures += bool(outcome.missing)
            print(f"{outcome.percent:6.1f} %  {outcome.module}  {outcome.missing}".rstrip(), flush=True)
    print(f"{len(wanted)} modules, {failures} short of full coverage, in {time.monotonic() - start:.0f} s")
    return 1 if failures or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
