"""Runs a plan at its level: machines only, or whole programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpio.testing.simulation.running import Outcome, Running
from mcpio.testing.simulation.workload import ACTS, exercised_server

if TYPE_CHECKING:
    from mcpio.testing.simulation.parties import Acts, MakeServer
    from mcpio.testing.simulation.plan import Plan


def run_plan(plan: Plan, make: MakeServer = exercised_server, acts: Acts = ACTS) -> Outcome:
    """Run a world to its end, or until an invariant is broken."""
    if plan.level == "programs":
        from mcpio.testing.simulation.programs import run_programs  # it loads Trio

        return run_programs(plan, make, acts)
    return Running(plan, make, acts).run()
