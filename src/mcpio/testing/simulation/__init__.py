"""Worlds of clients and servers on one virtual clock, with all the harm that networks and machines do.

``simulate`` runs a server of yours in such worlds, and finds orders of events in which it goes wrong. The command
``python -m mcpio.testing.simulation`` runs this library itself in them. The engines, the HTTP machines, the
application layer, the handlers and the tasks are the real ones; sockets, event loops, clocks and disks are simulated.
What must hold is listed in ``INVARIANTS``.
"""

from mcpio.testing.simulation.exploring import Program, Report, explore, rerun, simulate
from mcpio.testing.simulation.invariants import INVARIANTS, Violation
from mcpio.testing.simulation.plan import Act, Faults, Mishap, Party, Plan
from mcpio.testing.simulation.running import Outcome

__all__ = [
    "INVARIANTS",
    "Act",
    "Faults",
    "Mishap",
    "Outcome",
    "Party",
    "Plan",
    "Program",
    "Report",
    "Violation",
    "explore",
    "rerun",
    "simulate",
]
