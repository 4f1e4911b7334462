"""``score.py``: a scenario counts only when there is every reason to count it."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

SCORE = Path(__file__).with_name("score.py")
LEFT_OUT = """
[client]
passes = ["initialize", "tools_call", "sse-retry"]

[client.left_out]
"auth/dpop" = "there is a reason"
"""
EXPECTED = tomllib.loads(LEFT_OUT)["client"]
GOOD = [{"id": "a", "status": "SUCCESS"}, {"id": "b", "status": "INFO"}, {"id": "incoming-1", "status": "FAILURE"}]
BAD = [{"id": "a", "status": "FAILURE"}]


def results(directory: Path) -> dict[str, Path]:
    """Write results that are just as expected, and return where each scenario's are."""
    found = {}
    (directory / "expected.toml").write_text(LEFT_OUT)
    for name in (*EXPECTED["passes"], *EXPECTED["left_out"]):
        found[name] = directory / f"{name}-2026-01-02T03-04-05-678Z"
        found[name].mkdir(parents=True)
        write(found[name], GOOD if name in EXPECTED["passes"] else BAD)
        (found[name] / "stderr.txt").write_text("\n")
    return found


def write(scenario: Path, checks: list[dict[str, Any]]) -> None:
    (scenario / "checks.json").write_text(json.dumps(checks))


def score(directory: Path) -> tuple[int, str]:
    words = ["client", str(directory), "--expected", str(directory / "expected.toml")]
    done = subprocess.run([sys.executable, str(SCORE), *words], capture_output=True, text=True)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_expected_results_pass(tmp_path: Path) -> None:
    results(tmp_path)
    code, report = score(tmp_path)
    assert report.endswith(" 0 are not as they must be\n")
    assert code == 0


@pytest.mark.parametrize(
    "checks",
    [
        [],
        [{"id": "a", "status": "SKIPPED"}],
        [{"id": "outgoing-1", "status": "SUCCESS"}],
        [*GOOD, {"id": "c", "status": "WARNING"}],
        [*GOOD, *BAD],
    ],
)
def test_scenario_without_success_fails(checks: list[dict[str, Any]], tmp_path: Path) -> None:
    write(results(tmp_path)["sse-retry"], checks)
    code, report = score(tmp_path)
    assert code == 1
    assert "FAILED" in line(report, "sse-retry")


def test_client_with_errors_fails(tmp_path: Path) -> None:
    (results(tmp_path)["initialize"] / "stderr.txt").write_text("Traceback")
    code, report = score(tmp_path)
    assert code == 1
    assert "complaints FAILED" in line(report, "initialize")


def test_passing_excluded_scenario_fails(tmp_path: Path) -> None:
    write(results(tmp_path)["auth/dpop"], GOOD)
    code, report = score(tmp_path)
    assert code == 1
    assert "PASSES, but is left out: " in line(report, "auth/dpop")


@pytest.mark.parametrize("name", ["tools_call", "auth/dpop"])
def test_missing_scenario_fails(name: str, tmp_path: Path) -> None:
    (results(tmp_path)[name] / "checks.json").unlink()
    code, report = score(tmp_path)
    assert code == 1
    assert "DID NOT RUN" in line(report, name)


def test_unlisted_scenario_fails(tmp_path: Path) -> None:
    scenario = results(tmp_path)["initialize"].with_name("new-one-2026-01-02T03-04-05-678Z")
    scenario.mkdir()
    write(scenario, GOOD)
    code, report = score(tmp_path)
    assert code == 1
    assert "NOT LISTED" in line(report, "new-one")


@pytest.mark.parametrize("file", sorted(SCORE.parent.glob("expected_*.toml")), ids=lambda file: file.stem)
def test_every_exclusion_has_a_reason(file: Path) -> None:
    for leg in tomllib.loads(file.read_text()).values():
        left_out = leg.get("left_out", {})
        assert all(left_out.values())
        assert not set(left_out) & set(leg["passes"])


def line(report: str, name: str) -> str:
    (found,) = [line for line in report.splitlines() if line.startswith(f"{name} ")]
    return found
