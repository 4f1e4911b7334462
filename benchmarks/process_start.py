"""From the start of a server's process to its first answers, and what it then holds of memory.

python benchmarks/process_start.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from harness import LOW_LEVEL, SERVERS, Figures, Rounds, StdioServer, arguments, call_of_echo

TARGET = 2.5


def main() -> int:
    """Measure and print."""
    options = arguments(__doc__, rounds=9).parse_args()
    rounds = Rounds()
    for _ in range(options.rounds):
        for name, argv in SERVERS.items():
            rounds.add(name, start(argv))
    rounds.show(
        "from the start", {f"{what}, ms": what for what in ("initialize", "first call", "CPU")} | {"MiB": "MiB"}
    )
    for what in ("initialize", "first call"):
        rounds.compare(f"process start to the answer to {what}", LOW_LEVEL, what, TARGET, witness="CPU")
    return rounds.verdict(options)


def start(argv: Sequence[str]) -> Figures:
    """Start a server, shake hands, call its tool; return milliseconds and MiB."""
    with StdioServer(argv) as server:
        server.initialize()
        initialized = time.perf_counter()
        server.request("tools/call", call_of_echo("hello"))
        called = time.perf_counter()
        return {
            "initialize": (initialized - server.began) * 1000,
            "first call": (called - server.began) * 1000,
            "CPU": server.cpu_seconds * 1000,
            "MiB": server.resident_mib,
        }


if __name__ == "__main__":
    sys.exit(main())
