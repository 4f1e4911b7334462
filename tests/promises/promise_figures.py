"""Run what holds each promise, print the figures, and keep them in ``results.json``. Takes about two hours.

    python tests/promises/promise_figures.py && python docs/_ext/generated.py

The second command makes the tables of docs/promises.md anew from that file. ``P4`` runs what holds this promise alone,
``models`` compares machines with models, ``worlds`` runs the simulated worlds, ``systems`` real processes, and
``mutants`` tries mutants of the code; the figures of the rest are kept. ``--quick`` leaves out the deliberate breakages
and the mutants. All mutants take more than an hour: ``--record FILE`` writes down those that are killed, and continues
a run that was ended; ``--sample 150 --seed 7`` tries so many.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

from breakages import ROOT, own_tests

from mcpio.testing.simulation import explore

RESULTS: Final = Path(__file__).with_name("results.json")
PROMISES: Final = tuple(f"P{number}" for number in range(1, 17))
MODELS: Final = "models"
MODELLED: Final = {
    "engine/test_table.py": "the phases of a connection",
    "http/server/test_lifecycle_model.py": "requests over HTTP",
    "websocket/test_machine_model.py": "a WebSocket",
    "engine/test_shutdown_model.py": "the shutdown of a child process",
    "auth/test_authorizer_model.py": "the authorization of a client",
    "engine/test_request_model.py": "a request",
    "engine/test_task_model.py": "a task",
}
"""The tests below ``tests`` that compare a machine with a model, and the names of the machines."""
WORLDS: Final = "worlds"
SYSTEMS: Final = "systems"
LOOPS: Final = ("trio", "asyncio")
MUTANTS: Final = "mutants"
MUTATED: Final = ("engine", "http/server")
"""The rooms of ``tests/mutation/mutants.py`` whose mutants are tried."""


def main() -> int:
    """Run what was asked for, and return 1 if a test failed or a world broke an invariant."""
    parser = argparse.ArgumentParser(description="Run what holds each promise, and record the figures.")
    parser.add_argument(
        "which", nargs="*", choices=[[], *PROMISES, MODELS, WORLDS, SYSTEMS, MUTANTS], help="default: everything"
    )
    parser.add_argument("--quick", action="store_true", help="leave out the deliberate breakages and the mutants")
    parser.add_argument("--seconds", type=float, default=60.0, help="processor time for the worlds")
    parser.add_argument("--file", type=Path, default=RESULTS, help="where the figures are kept")
    parser.add_argument("--record", help="a file of killed mutants, which are not tried again")
    parser.add_argument("--sample", help="how many mutants of each room to try, rather than all")
    parser.add_argument("--seed", default="1", help="chooses which: only those of a new seed tell of all")
    given = parser.parse_args()
    records = json.loads(given.file.read_text("utf-8")) if given.file.exists() else {}
    failed = 0
    for name in given.which or [*PROMISES, MODELS, WORLDS, SYSTEMS, *([] if given.quick else [MUTANTS])]:
        if name == MODELS:
            figures = models()
        elif name == WORLDS:
            figures = worlds(given.seconds)
        elif name == SYSTEMS:
            figures = systems()
        elif name == MUTANTS:
            record = ["--record", given.record] if given.record else []
            figures = mutants(
                *record, *(["--sample", given.sample, "--seed", given.seed] if given.sample else ["--all"])
            )
        else:
            figures = tests(own_tests(name)) | ({} if given.quick else broken(name))
        failed += figures["failed"]
        records[name] = records.get(name, {}) | {"date": datetime.now(UTC).date().isoformat()} | figures
        print(f"{name}: {', '.join(f'{value} {key}' for key, value in figures.items())}", flush=True)
        given.file.write_text(json.dumps(records, indent=1) + "\n", "utf-8")
    return 1 if failed else 0


def tests(files: Sequence[str], *options: str) -> dict[str, Any]:
    """Run tests; return how many passed and failed, and how many examples Hypothesis drew for them."""
    always = ["-q", "-p", "no:cacheprovider", "--hypothesis-profile=steady", "--hypothesis-show-statistics"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *always, *options, *files],
        cwd=ROOT,
        env=os.environ | {"MCPIO_LONG_TESTS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        print(ran.stdout, ran.stderr, sep="\n", file=sys.stderr)
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error)", _last_line(ran.stdout))}
    return {
        "tests": counts.get("passed", 0),
        "failed": counts.get("failed", 0) + counts.get("error", 0) or int(ran.returncode != 0),
        "examples": sum(map(int, re.findall(r"- (\d+) passing, \d+ failing", ran.stdout))),
    }


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def models() -> dict[str, Any]:
    """Compare machines with models; return how many pairs of a state and an input were visited in each of them."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        figures = tests(
            [str(ROOT / "tests" / path) for path in MODELLED], f"--junit-xml={report}", "-ojunit_family=xunit1"
        )
        pairs = dict.fromkeys(MODELLED.values(), 0)
        for case in ET.parse(report).iter("testcase"):
            path = case.get("classname", "").removeprefix("tests.").replace(".", "/") + ".py"
            for each in case.iterfind("properties/property[@name='pairs']"):
                pairs[MODELLED[path]] += int(each.get("value", ""))
    return figures | {"pairs": pairs}


def broken(promise: str) -> dict[str, Any]:
    """Break the code in each way that is listed for a promise; return how many there are, and which no test caught."""
    printed = _printed(Path(__file__).with_name("breakages.py"), promise)
    outcomes = re.findall(r"^P\d+:(\d+) .*?: (caught|SURVIVES|NO VERDICT)", printed, re.MULTILINE)
    if not outcomes:
        raise SystemExit(f"the breakages of {promise} were not tried")
    return {
        "breakages": len(outcomes),
        "survive": [int(number) for number, outcome in outcomes if outcome != "caught"],
    }


def mutants(*options: str) -> dict[str, Any]:
    """Try mutants of some rooms; return how many were killed. One that survives unlisted has failed."""
    printed = _printed(ROOT / "tests" / "mutation" / "mutants.py", *MUTATED, *options)
    line = r"^(\S+): (\d+) of (\d+) mutants tried, (\d+) killed, \d+ survive, (\d+) unlisted$"
    rooms = {
        room: {"of": int(total), "tried": int(tried), "killed": int(killed), "failed": int(unlisted)}
        for room, tried, total, killed, unlisted in re.findall(line, printed, re.MULTILINE)
    }
    if len(rooms) < len(MUTATED):
        raise SystemExit("the mutants were not tried")
    return {"rooms": rooms, "failed": sum(room["failed"] for room in rooms.values())}


def _printed(program: Path, *words: str) -> str:
    """Run a program, print what it prints, and return that."""
    lines = []
    with subprocess.Popen([sys.executable, str(program), *words], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return "".join(lines)


def worlds(seconds: float) -> dict[str, Any]:
    """Run simulated worlds for some processor time, and return how much happened in them."""
    report = explore(seconds=seconds)
    return {
        "worlds": report.worlds,
        "steps": report.steps,
        "faults": report.faults.total(),
        "asked": report.asked,
        "failed": len(report.failures),
        "seconds": round(report.seconds),
    }


def systems() -> dict[str, Any]:
    """Cut conversations, harm processes, and soak servers; return how often, and how often a promise was broken."""
    folder = ROOT / "tests" / "systems"
    points = [_printed(folder / "cuts.py", "--every", "13", "--loop", loop) for loop in LOOPS]
    points.append(_printed(folder / "kills.py", "--points", "200"))
    soaks = [_printed(ROOT / "benchmarks" / "soak.py", "--seconds", "60", "--loop", loop) for loop in LOOPS]
    verdicts = re.findall(r"^verdict: (\d+) of (\d+) points", "".join(points), re.MULTILINE)
    *cuts, kills = (int(tried) for _, tried in verdicts)
    failed = sum(int(broken) for broken, _ in verdicts) + sum("verdict: nothing grew" not in soak for soak in soaks)
    figures = {"cuts": sum(cuts), "kills": kills, "failed": failed, "soak seconds": 60 * len(soaks)}
    for name in ("sessions", "WebSockets", "clients", "hostile ones"):
        figures[name] = sum(map(int, re.findall(rf"(\d+) {name}", "".join(soaks))))
    return figures


if __name__ == "__main__":
    sys.exit(main())
