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

from harness import LOW_LEVEL, OURS, Figures, Rounds, arguments, pinned
from http_load import HttpServer, drive, why_not

HTTPTOOLS = f"{OURS}, httptools"
BARE = "bare loop, h11"
TYPESCRIPT = "TypeScript SDK 2"
CONNECTIONS = (1, 16, 64)
SERVERS = {
    OURS: ["echo_server.py"],
    HTTPTOOLS: ["echo_server.py", "--parser", "httptools"],
    LOW_LEVEL: ["peers/sdk_low_level.py"],
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
    if reason := why_not("@modelcontextprotocol/server"):
        print(f"{TYPESCRIPT}: left out, for {reason}\n")
    else:
        servers[TYPESCRIPT] = ["peers/typescript_sdk_2.mjs"]
    rounds = Rounds()
    for _ in range(options.rounds):
        for name, argv in servers.items():
            rounds.add(name, _measure(argv, cpu, options.seconds))
    for title, key in (("calls a second", "/s"), ("server's CPU, us a call", " CPU"), ("median, us", " p50")):
        rounds.show(title, {str(count): f"{count}{key}" for count in CONNECTIONS})
    rounds.show("clients' share of a CPU", {str(count): f"{count} busy" for count in CONNECTIONS})
    rounds.compare("h11, 16", LOW_LEVEL, "16/s", SDK_TARGET, witness="16 CPU")
    rounds.compare("httptools, 16", LOW_LEVEL, "16/s", HTTPTOOLS_TARGET, name=HTTPTOOLS, witness="16 CPU")
    if TYPESCRIPT in servers:
        rounds.compare("h11, 16", TYPESCRIPT, "16/s", TYPESCRIPT_TARGET, witness="16 CPU")
    return rounds.verdict(options)


def _measure(argv: list[str], cpu: int | None, seconds: float) -> Figures:
    figures: Figures = {}
    with HttpServer(argv, cpu=cpu) as server:
        for count in CONNECTIONS:
            drive(server, count, seconds / 5, is_stateless=True)  # to warm up
            run = drive(server, count, seconds, is_stateless=True)
            figures |= {f"{count}/s": run.rate, f"{count} CPU": run.cpu_us, f"{count} busy": run.busy}
            figures |= {f"{count} p50": run.p50_us}
    return figures


if __name__ == "__main__":
    sys.exit(main())
