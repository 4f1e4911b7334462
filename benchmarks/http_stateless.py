"""Servers over HTTP in the stateless revision 2026-07-28: calls a second, processor time a call, latency.

    python benchmarks/http_stateless.py

Each of N clients has a connection of its own, and asks again as soon as it is answered: no handshake, no session. The
servers have the event loop that they come with, and h11 for a parser unless said otherwise. The bare loop answers by
hand and checks nothing: no server on Trio and h11 is faster. With ``--pin`` the server and its load have a processor
each.

The SDK for TypeScript, version 2, is there where ``MCPIO_PEERS_DIR`` names the directory in which npm has installed
what ``tests/peers/package.json`` names.
"""

from __future__ import annotations

import sys

from harness import FASTMCP, LOW_LEVEL, OURS, TYPESCRIPT_2, Figures, Rounds, arguments, pinned, typescript
from http_load import HttpServer, drive

HTTPTOOLS = f"{OURS}, httptools"
BARE = "bare loop, h11"
CONNECTIONS = (1, 16, 64)
TRACED = "16, traced"
"""A load of 16 connections whose requests differ in a header field, so that no server can know a head again."""
LOADS = (*map(str, CONNECTIONS), TRACED)
SERVERS = {
    OURS: ["echo_server.py"],
    HTTPTOOLS: ["echo_server.py", "--parser", "httptools"],
    LOW_LEVEL: ["peers/sdk_low_level.py"],
    FASTMCP: ["peers/fastmcp_server.py", "--stateless"],
    BARE: ["peers/bare.py"],
}
SDK_TARGET = 3.2
HTTPTOOLS_TARGET = 5.5
TYPESCRIPT_TARGET = 6.5


def main() -> int:
    """Measure and print."""
    parser = arguments(__doc__, rounds=5, seconds=1.0)
    parser.add_argument("--pin", action="store_true", help="run the server and this process on a processor each")
    options = parser.parse_args()
    cpu = pinned() if options.pin else None
    servers = dict(SERVERS)
    servers |= typescript(TYPESCRIPT_2, "@modelcontextprotocol/server", "typescript_sdk_2.mjs")
    rounds = Rounds()
    for _ in range(options.rounds):
        for name, argv in servers.items():
            rounds.add(name, _measure(argv, cpu, options.seconds))
    for title, key in (("calls a second", "/s"), ("server's CPU, us a call", " CPU"), ("median, us", " p50")):
        rounds.show(title, {load: f"{load}{key}" for load in LOADS})
    rounds.show("clients' share of a CPU", {load: f"{load} busy" for load in LOADS})
    rounds.compare("h11, 16", LOW_LEVEL, "16/s", SDK_TARGET, witness="16 CPU")
    rounds.compare("httptools, 16", LOW_LEVEL, "16/s", HTTPTOOLS_TARGET, name=HTTPTOOLS, witness="16 CPU")
    if TYPESCRIPT_2 in servers:
        rounds.compare("h11, 16", TYPESCRIPT_2, "16/s", TYPESCRIPT_TARGET, witness="16 CPU")
    return rounds.verdict(options)


def _measure(argv: list[str], cpu: int | None, seconds: float) -> Figures:
    figures: Figures = {}
    with HttpServer(argv, cpu=cpu) as server:
        for load in LOADS:
            count, is_traced = int(load.partition(",")[0]), load == TRACED
            drive(server, count, seconds / 5, is_stateless=True, is_traced=is_traced)  # to warm up
            run = drive(server, count, seconds, is_stateless=True, is_traced=is_traced)
            figures |= {f"{load}/s": run.rate, f"{load} CPU": run.cpu_us, f"{load} busy": run.busy}
            figures |= {f"{load} p50": run.p50_us}
    return figures


if __name__ == "__main__":
    sys.exit(main())
