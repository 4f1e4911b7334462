"""Two server processes beside one: calls a second in the stateless revision 2026-07-28, whichever process gets them.

    python benchmarks/http_processes.py

Each server shares a processor with the clients that ask it, so that two servers have twice what one has: less than
twice the calls means that one process holds up the other.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack

from harness import ENVIRONMENT, Rounds, arguments
from http_load import HttpServer, RunningServer, drive

ONE, TWO = "one process", "two processes"
CONNECTIONS = 16
TARGET = 1.8


def main() -> int:
    """Measure and print."""
    parser = arguments(__doc__, rounds=7, seconds=1.0)
    parser.add_argument(
        "--load", type=int, nargs=3, metavar=("PORT", "PID", "CPU"), help="ask a server that runs, and print the calls"
    )
    options = parser.parse_args()
    if options.load is not None:
        port, pid, cpu = options.load
        return _load(port, pid, cpu, options.seconds)
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        print("left out: there is one processor")
        return 0
    rounds = Rounds()
    for _ in range(options.rounds):
        alone = [_measure([cpu], options.seconds) for cpu in cpus]
        rounds.add(ONE, {"/s": sum(alone) / len(alone)})
        rounds.add(TWO, {"/s": _measure(cpus, options.seconds)})
    rounds.show("", {"calls a second": "/s"})
    rounds.compare(TWO, ONE, "/s", TARGET, name=TWO)
    return rounds.verdict(options)


def _measure(cpus: list[int], seconds: float) -> float:
    """Start a server on each processor, ask all of them at the same time, and return the calls a second."""
    with ExitStack() as servers:
        loads = []
        for cpu in cpus:
            server = servers.enter_context(HttpServer(["echo_server.py"], cpu=cpu))
            asked = map(str, (server.port, server.pid, cpu))
            argv = [sys.executable, __file__, "--seconds", str(seconds), "--load", *asked]
            loads.append(subprocess.Popen(argv, stdout=subprocess.PIPE, env=ENVIRONMENT))
        return sum(float(load.communicate(timeout=60 + 10 * seconds)[0]) for load in loads)


def _load(port: int, pid: int, cpu: int, seconds: float) -> int:
    os.sched_setaffinity(0, {cpu})
    server = RunningServer(port, pid)
    drive(server, CONNECTIONS, seconds / 5, is_stateless=True)  # to warm up
    print(drive(server, CONNECTIONS, seconds, is_stateless=True).rate)
    return 0


if __name__ == "__main__":
    sys.exit(main())
