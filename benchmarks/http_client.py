"""Clients over HTTP: calls a second with 1, 16 and 64 callers, against the same bare server.

    python benchmarks/http_client.py

Each client runs in a process of its own, in one session. The server answers with JSON, or with events.
"""

from __future__ import annotations

import itertools
import sys

from harness import (
    FASTMCP,
    HERE,
    ON_ASYNCIO,
    OURS,
    TYPESCRIPT_2,
    Figures,
    Rounds,
    arguments,
    run_command,
    run_program,
    typescript,
)
from http_load import HttpServer

SDK = "mcp"
CLIENTS = {OURS: "mcpio", ON_ASYNCIO: "mcpio-asyncio", SDK: "sdk", FASTMCP: "fastmcp"}
SERVERS = {"JSON": ["bare_http.py"], "SSE": ["bare_http.py", "--sse"]}
LOADS = list(itertools.product(SERVERS, (1, 16, 64)))
TARGETS = {OURS: 2.5, ON_ASYNCIO: 3.0}


def main() -> int:
    """Measure and print."""
    options = arguments(__doc__, rounds=5, seconds=1.0).parse_args()
    others = typescript(TYPESCRIPT_2, "@modelcontextprotocol/client", "typescript_client.mjs")
    rounds = Rounds()
    for _ in range(options.rounds):
        for name in [*CLIENTS, *others]:
            figures: Figures = {}
            for mode, argv in SERVERS.items():
                with HttpServer(argv) as server:
                    url = f"http://127.0.0.1:{server.port}/mcp"
                    if name in others:
                        found = run_command([*others[name], str(options.seconds), "1,16,64", url])
                    else:
                        command = [str(HERE / "clients.py"), CLIENTS[name], "http", "--url", url]
                        found = run_program([*command, "--seconds", str(options.seconds)])
                figures |= {f"{mode}, {key}": figure for key, figure in found.items()}
            rounds.add(name, figures)
    rounds.show("calls a second", {f"{mode}, {callers}": f"{mode}, {callers}/s" for mode, callers in LOADS})
    rounds.show("client's CPU, us a call", {f"{mode}, {callers}": f"{mode}, {callers} CPU" for mode, callers in LOADS})
    for mode, callers in LOADS:
        load = f"{mode}, {callers}"
        for name, target in TARGETS.items():
            rounds.compare(f"{load}, {name}", SDK, f"{load}/s", target, name=name, witness=f"{load} CPU")
    return rounds.verdict(options)


if __name__ == "__main__":
    sys.exit(main())
