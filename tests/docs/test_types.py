"""The programs in the documentation pass a strict type check, as those of users who copy them must."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tree import ROOT

EXAMPLES = ROOT / "docs" / "examples"
SHORT = ["no-untyped-def", "no-untyped-call", "untyped-decorator", "var-annotated", "import-not-found"]
"""What the pages may do for brevity: leave out annotations, and import a file that the page shows elsewhere."""


def programs(page: Path) -> list[str]:
    """Return the blocks of Python on a page that are programs.

    Sessions with an interpreter are not, nor are parts of the files in docs/examples, which are checked as files. A
    block that continues the one before it is checked with it.
    """
    found: list[str] = []
    for mark, block in re.findall(_BLOCK, page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        if mark.startswith("<!-- continues"):
            found[-1] += block
        elif not mark and not block.startswith(">>>"):
            found.append(block)
    return found


_BLOCK = r"(^<!-- (?:not run: examples/|continues)[^\n]*\n)?^```python\n(.*?)^```"


@pytest.mark.timeout(300)  # without its cache, on a busy machine, mypy takes more than a minute
def test_programs_on_the_pages_pass_a_strict_type_check(tmp_path: Path) -> None:
    for page in [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]:
        for number, program in enumerate(programs(page)):
            name = f"{page.stem.replace('-', '_').lower()}_{number}.py"
            (tmp_path / name).write_text(
                f"async def main() -> None:\n{textwrap.indent(program, '    ')}", encoding="utf-8"
            )
    options = ["--strict", "--no-error-summary", "--config-file=", f"--cache-dir={ROOT / '.mypy_cache' / 'docs'}"]
    options += [f"--disable-error-code={code}" for code in SHORT]
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "."],
        cwd=tmp_path,
        env={"MYPYPATH": str(EXAMPLES), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout + run.stderr == ""
