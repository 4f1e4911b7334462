"""Clients on standard input and output: calls a second with 1 and with 64 callers, against the same bare server.

    python benchmarks/stdio_client.py

Each client runs in a process of its own and starts the server by its own means.
"""

from __future__ import annotations

import sys

from harness import (
    BARE_BLOCKING,
    FASTMCP,
    HERE,
    ON_ASYNCIO,
    OURS,
    TYPESCRIPT_2,
    Rounds,
    arguments,
    run_command,
    run_program,
    typescript,
)

SDK = "mcp"
CLIENTS = {OURS: "mcpio", ON_ASYNCIO: "mcpio-asyncio", SDK: "sdk", FASTMCP: "fastmcp"}
TARGETS = {"1": 2.0, "64": 5.0}


def main() -> int:
    """Measure and print."""
    options = arguments(__doc__, rounds=5, seconds=1.0).parse_args()
    rounds = Rounds()
    others = typescript(TYPESCRIPT_2, "@modelcontextprotocol/client", "typescript_client.mjs")
    for _ in range(options.rounds):
        for name, client in CLIENTS.items():
            rounds.add(
                name, run_program([str(HERE / "clients.py"), client, "stdio", "--seconds", str(options.seconds)])
            )
        for name, argv in others.items():
            rounds.add(name, run_command([*argv, str(options.seconds), "1,64", *BARE_BLOCKING]))
    rounds.show("calls a second", {f"callers: {callers}": f"{callers}/s" for callers in TARGETS})
    rounds.show("client's CPU, us a call", {f"callers: {callers}": f"{callers} CPU" for callers in TARGETS})
    for callers, target in TARGETS.items():
        for name in (OURS, ON_ASYNCIO):
            title = f"callers: {callers}, {name}"
            rounds.compare(title, SDK, f"{callers}/s", target, name=name, witness=f"{callers} CPU")
    return rounds.verdict(options)


if __name__ == "__main__":
    sys.exit(main())
