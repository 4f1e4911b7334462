"""What the official conformance suite found, held against what must pass: ``score.py server|client DIRECTORY``.

The suite's own verdict is too kind: a scenario in which nothing was checked passes, and so do one with warnings and a
client that ended in an error. Here a scenario passes when something succeeded in it, nothing failed, nothing was warned
of, and the client, if there is one, had nothing to complain about. All that must pass has to, and what is left out must
not, or it no longer belongs there; a scenario that nobody has heard of is a fault as well.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Final

EXPECTED: Final = Path(__file__).with_name("expected_2025_11_25.toml")

TRAFFIC: Final = ("incoming-", "outgoing-")
"""How the ids of those entries begin that are no checks: they record what was said."""


def main() -> int:
    """Print a line for each scenario, and return 1 if any is not as it must be."""
    parser = argparse.ArgumentParser(description="Score the results of the conformance suite.")
    parser.add_argument("leg", choices=("server", "client"))
    parser.add_argument("results", type=Path, help="what the suite was given with -o")
    parser.add_argument("--expected", type=Path, default=EXPECTED, help="what must pass, and what is left out")
    arguments = parser.parse_args()
    expected = tomllib.loads(arguments.expected.read_text())[arguments.leg]
    found = {scenario_of(path, arguments): path for path in sorted(arguments.results.rglob("checks.json"))}
    left_out: dict[str, str] = expected.get("left_out", {})
    checks: dict[str, int] = expected.get("checks", {})
    faults = 0
    for name in sorted({*expected["passes"], *left_out, *found}, key=lambda name: (name in left_out, name)):
        passed, seen = verdict(found.get(name), checks.get(name, 1))
        fault = fault_of(passed, name in expected["passes"], left_out.get(name))
        faults += fault is not None
        status = fault or ("passed" if passed else f"left out: {left_out[name]}")
        print(f"{name:40} {seen:24} {status}")
    print(f"{len(expected['passes'])} must pass, {len(left_out)} are left out, {faults} are not as they must be")
    return 1 if faults else 0


def scenario_of(checks: Path, arguments: argparse.Namespace) -> str:
    """Return which scenario a file is about: the name of its directory says it, and when."""
    directory = checks.parent.relative_to(arguments.results).as_posix()
    name = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", directory)
    return name.removeprefix("server-") if arguments.leg == "server" else name


def verdict(checks: Path | None, least: int = 1) -> tuple[bool | None, str]:
    """Return whether a scenario passed, ``None`` for one that did not run, and what was seen in it.

    ``least`` is how many checks have to succeed.
    """
    if checks is None:
        return None, "nothing"
    entries = [entry for entry in json.loads(checks.read_text()) if not entry["id"].startswith(TRAFFIC)]
    counts = Counter(entry["status"] for entry in entries)
    seen = [f"{count} {status.lower()}" for status, count in sorted(counts.items())]
    complaints = checks.with_name("stderr.txt")
    is_quiet = not complaints.exists() or not complaints.read_text().strip()
    if not is_quiet:
        seen.append("complaints")
    return counts["SUCCESS"] >= least and not counts["FAILURE"] and not counts["WARNING"] and is_quiet, ", ".join(seen)


def fault_of(passed: bool | None, must_pass: bool, reason: str | None) -> str | None:
    """Return what is wrong with that, ``None`` for nothing."""
    if passed is None:
        return "DID NOT RUN: the suite may have another name for it"
    if must_pass:
        return None if passed else "FAILED"
    if reason is None:
        return "NOT LISTED: say whether it must pass"
    return f"PASSES, but is left out: {reason}" if passed else None


if __name__ == "__main__":
    sys.exit(main())
