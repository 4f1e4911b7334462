"""The tests and figures of the promises, from what ``tests/promises/promise_figures.py`` records."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

__all__ = ["INVARIANTS_OF", "PROMISES", "model_rows", "promise_rows", "world_rows"]

PROMISES: Final = Path(__file__).parents[2] / "tests" / "promises"
INVARIANTS_OF: Final[dict[str, tuple[str, ...]]] = {
    "P2": ("no crash", "no faults of ours"),
    "P4": ("one outcome", "nothing after the end", "deadline"),
    "P6": ("ledger",),
    "P7": ("ids", "own answers"),
    "P9": ("nothing is left",),
    "P10": ("errors",),
    "P11": ("changes",),
    "P12": ("acknowledged",),
    "P14": ("order", "liveness"),
}
"""The invariants of simulated worlds that check a promise, by name (``mcpio.testing.simulation.INVARIANTS``)."""


def promise_rows() -> Iterator[list[str]]:
    """Yield a row for each promise: the results of its tests in the last run, and the invariants that check it."""
    for promise, record in _records().items():
        if re.fullmatch(r"P\d+", promise):
            failed = f", {record['failed']:,} failed" if record["failed"] else ""
            examples = f"; {record['examples']:,} examples" if record["examples"] else ""
            yield [
                promise,
                f"{record['tests']:,}{failed}{examples}",
                _caught(record),
                ", ".join(INVARIANTS_OF.get(promise, ())),
            ]


def model_rows() -> Iterator[list[str]]:
    """Yield a row for each machine that is compared with a model: how many pairs of a state and an input were tried."""
    for machine, pairs in _records()["models"]["pairs"].items():
        yield [machine, f"{pairs:,}"]


def world_rows() -> Iterator[list[str]]:
    """Yield the figures of the simulated worlds, and those of all promises together."""
    records = _records()
    dates = sorted({record["date"] for record in records.values()})
    worlds, systems = records.pop("worlds"), records.pop("systems")
    models = records.pop("models")
    rooms = records.pop("mutants", {"rooms": {}})["rooms"]
    broken = [record for record in records.values() if "breakages" in record]
    caught = sum(record["breakages"] - len(record["survive"]) for record in broken)
    yield ["run on", " to ".join(dict.fromkeys((dates[0], dates[-1])))]
    yield ["tests that passed", f"{sum(record['tests'] for record in records.values()):,}"]
    yield ["examples drawn", f"{sum(record['examples'] for record in records.values()):,}"]
    yield ["breakages caught", f"{caught} of the {sum(record['breakages'] for record in broken)} that were tried"]
    for room, mutants in rooms.items():
        yield [f"mutants of `{room}/` killed", _killed(**mutants)]
    pairs = models["pairs"]
    yield [
        "machines and models: pairs of a state and an input",
        f"{sum(pairs.values()):,}: all of {len(pairs)} machines",
    ]
    yield ["machines and models: orders of inputs drawn", f"{models['examples']:,}"]
    yield ["simulated worlds", f"{worlds['worlds']:,}, in {worlds['seconds']} s of processor time"]
    yield ["steps in them", f"{worlds['steps']:,}"]
    yield ["faults injected", f"{worlds['faults']:,}"]
    yield ["invariants asked", f"{worlds['asked']:,}"]
    yield ["worlds that broke one", f"{worlds['failed']:,}"]
    yield ["conversations cut at a byte", f"{systems['cuts']:,}, on Trio and asyncio"]
    yield ["processes killed, stopped or starved", f"{systems['kills']:,}"]
    yield ["servers soaked, on Trio and asyncio", f"for {systems['soak seconds']:,} s"]
    yield ["held at them", f"{systems['sessions']:,} sessions and {systems['WebSockets']:,} WebSockets"]
    yield ["came and went beside", f"{systems['clients']:,} clients and {systems['hostile ones']:,} hostile ones"]
    yield ["machines that differ from their model", f"{models['failed']:,}"]
    yield ["cuts, processes and soaks that broke a promise", f"{systems['failed']:,}"]


def _killed(of: int, tried: int, killed: int, failed: int) -> str:
    """Tell how many mutants were killed: of all, or with the share for which a sample stands (Wilson's, of 95 %)."""
    unlisted = f"; {failed} survive unlisted" if failed else ""
    if tried == of:
        return f"{killed:,} of {of:,}, which are all: {100 * killed / of:.1f} %{unlisted}"
    z, share = 1.96, killed / tried
    middle, spread = share + z * z / (2 * tried), z * math.sqrt(share * (1 - share) / tried + (z / tried / 2) ** 2)
    low, high = (100 * (middle + sign * spread) / (1 + z * z / tried) for sign in (-1, 1))
    return f"{killed:,} of the {tried:,} that were tried, of {of:,}: {low:.0f} to {high:.0f} % of all{unlisted}"


def _caught(record: dict[str, Any]) -> str:
    if "breakages" not in record:
        return "not tried"
    survive = record["survive"]
    left = f"; not {', '.join(map(str, survive))}" if survive else ""
    return f"{record['breakages'] - len(survive)} of {record['breakages']}{left}"


def _records() -> dict[str, Any]:
    records: dict[str, Any] = json.loads((PROMISES / "results.json").read_text(encoding="utf-8"))
    return records
