"""A client and a server in one process: calls a second with 1 and with 64 callers.

    python benchmarks/in_memory.py

Ours passes real bytes through both engines. The official SDK can do that as well ("with JSON"); left to itself it joins
the two without any, and that is what ours is held against.
"""

from __future__ import annotations

import sys

from harness import HERE, OURS, Rounds, arguments, run_program

SDK = "mcp"
CLIENTS = {OURS: ("mcpio", "memory"), SDK: ("sdk", "direct"), "mcp, with JSON": ("sdk", "memory")}
TARGET = 2.0


def main() -> int:
    """Measure and print."""
    options = arguments(__doc__, rounds=5, seconds=1.0).parse_args()
    rounds = Rounds()
    for _ in range(options.rounds):
        for name, client in CLIENTS.items():
            rounds.add(name, run_program([str(HERE / "clients.py"), *client, "--seconds", str(options.seconds)]))
    rounds.show("calls a second", {f"callers: {callers}": f"{callers}/s" for callers in ("1", "64")})
    rounds.show("CPU, us a call", {f"callers: {callers}": f"{callers} CPU" for callers in ("1", "64")})
    for callers in ("1", "64"):
        rounds.compare(f"callers: {callers}", SDK, f"{callers}/s", TARGET, witness=f"{callers} CPU")
    return rounds.verdict(options)


if __name__ == "__main__":
    sys.exit(main())
