"""The command: ``python -m mcpio.testing.simulation``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from mcpio.testing.simulation.exploring import explore, smallest
from mcpio.testing.simulation.plan import Faults

_FAULTS: Final = {"none": Faults.none, "mild": Faults.mild, "harsh": Faults.harsh}
_MOST_SHOWN: Final = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run worlds, print what was found, and return the exit code: 1 if an invariant was broken."""
    parser = argparse.ArgumentParser(
        prog="python -m mcpio.testing.simulation",
        description="Run clients and servers of this library in simulated worlds, and look for broken invariants.",
    )
    parser.add_argument("--seconds", type=_seconds, default=60.0, help="for how much processor time to look")
    parser.add_argument("--seed", type=int, default=None, help="run the world of this seed only")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--era", choices=("handshake", "stateless", "auto"), help="the era of all clients")
    parser.add_argument("--carrier", choices=("pipe", "http"), help="how all clients connect")
    parser.add_argument("--level", choices=("machines", "programs"), default="machines", help="what of it runs")
    parser.add_argument("--faults", choices=_FAULTS, default="harsh", help="the harm that is done")
    options = parser.parse_args(arguments)
    report = explore(
        seconds=options.seconds,
        worlds=None if options.seed is None else 1,
        seed=options.first if options.seed is None else options.seed,
        faults=_FAULTS[options.faults](),
        era=options.era,
        carrier=options.carrier,
        level=options.level,
    )
    print(report)
    for failure in report.failures[:_MOST_SHOWN]:
        smaller = smallest(failure)
        print(f"\n# seed {failure.plan.seed}: {smaller.violation}\n{smaller.plan.program()}")
    return 1 if report.failures else 0


def _seconds(text: str) -> float:
    seconds = float(text)
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text}")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
