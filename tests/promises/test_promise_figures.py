"""The page of the promises names what there is, and the command that records their figures runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import promise_tables
import pytest
from breakages import ROOT
from promise_figures import MODELLED

from mcpio.testing.simulation import INVARIANTS

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
PAGE = ROOT / "docs" / "promises.md"
PROMISES = [f"P{number}" for number in range(1, 17)]


def test_page_has_each_promise_once_and_each_has_tests() -> None:
    page = PAGE.read_text("utf-8")
    assert re.findall(r"^## (P\d+)\. ", page, re.MULTILINE) == PROMISES
    assert re.findall(r"^\| (P\d+) \|", page, re.MULTILINE) == PROMISES
    assert sorted({path.name[5:8] for path in HERE.glob("test_p[0-9]*.py")}) == [f"p{n:02}" for n in range(1, 17)]


def test_programs_and_folders_that_the_page_names_exist() -> None:
    named = re.findall(r"(?:tests|docs)/[\w/]+(?:\.\w+)?(?![\w/*])", PAGE.read_text("utf-8"))
    assert len(set(named)) >= 4
    assert [name for name in named if not ROOT.joinpath(name).exists()] == []


def test_invariants_of_the_page_are_those_of_the_simulation() -> None:
    asked = [name for names in promise_tables.INVARIANTS_OF.values() for name in names]
    assert sorted([*asked, "program", "valid requests"]) == sorted(INVARIANTS)


def test_each_model_of_a_machine_is_counted() -> None:
    models = {path.relative_to(ROOT / "tests").as_posix() for path in ROOT.glob("tests/**/test_*_model.py")}
    assert models == {path for path in MODELLED if path.endswith("_model.py")}
    assert list(json.loads((HERE / "results.json").read_text("utf-8"))["models"]["pairs"]) == [*MODELLED.values()]
    assert all(ROOT.joinpath("tests", path).exists() for path in MODELLED)


def test_command_records_what_it_ran_and_keeps_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text('{"P1": {"tests": 0, "breakages": 3, "survive": [2]}, "P2": {"tests": 1}}', "utf-8")
    program = [sys.executable, str(HERE / "promise_figures.py"), "P1", "worlds"]
    options = ["--quick", "--seconds", "0.2", "--file", str(file)]
    ran = subprocess.run([*program, *options], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    records = json.loads(file.read_text("utf-8"))
    assert records["P1"]["tests"] >= 7
    assert records["P1"]["failed"] == 0
    assert records["P1"]["examples"] >= 100
    assert (records["P1"]["breakages"], records["P1"]["survive"]) == (3, [2])
    assert records["P2"] == {"tests": 1}
    assert records["worlds"]["steps"] > records["worlds"]["worlds"] > 0
