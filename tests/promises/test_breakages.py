"""The list of deliberate breakages fits the code, and a few of them are tried; ``breakages.py`` tries all."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from breakages import breakages, own_tests

pytestmark = pytest.mark.long

QUICK = ("P1:1", "P11:1")
"""Breakages of promises whose tests take a second or two."""


def test_each_promise_has_twelve_breakages_of_the_code_as_it_is() -> None:
    broken: dict[str, set[str]] = {}
    for breakage in breakages():
        text = breakage.applied()
        ast.parse(text, breakage.path)
        assert breakage.new != breakage.old
        broken.setdefault(breakage.promise, set()).add(text)
    assert list(broken) == [f"P{number}" for number in range(1, 17)]
    assert {promise: len(texts) for promise, texts in broken.items() if len(texts) < 12} == {}
    assert all(own_tests(promise) for promise in broken)


@pytest.mark.timeout(300)
def test_some_breakages_are_caught_by_the_tests_of_their_promises() -> None:
    program = Path(__file__).with_name("breakages.py")
    ran = subprocess.run([sys.executable, str(program), *QUICK], capture_output=True, text=True, check=False)
    assert ran.stdout.endswith(f"{len(QUICK)} breakages, {len(QUICK)} caught, 0 survive\n"), ran.stdout + ran.stderr
    assert ran.returncode == 0


UNIMPORTABLE = """
from pathlib import Path
from breakages import Breakage, Copy

text = "from __future__ import annotations"
print(Copy(Path({folder!r})).outcome(Breakage("P1", 0, "errors.py", text, text + "\\nimport nothing_of_this_name")))
"""


def test_library_that_cannot_be_imported_counts_as_no_breakage(tmp_path: Path) -> None:
    program = UNIMPORTABLE.format(folder=str(tmp_path))
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith("NO VERDICT (exit code "), ran.stdout
