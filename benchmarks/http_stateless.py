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
from collections.abc import Sequence
from functools import partial
from typing import Final

from harness import FASTMCP, LOW_LEVEL, OURS, TYPESCRIPT_2, Figures, Rounds, arguments, pinned, typescript
from http_load import TEXT, HttpServer, drive

HTTPTOOLS = f"{OURS}, httptools"
UVICORN = f"{OURS}, uvicorn, httptools"
ASYNC_TOOL = f"{OURS}, async tool"
EVENTS = f"{OURS}, events"
LOW_LEVEL_HTTPTOOLS = f"{LOW_LEVEL}, httptools"
BARE = "bare loop, h11"
BARE_HTTPTOOLS = "bare loop, httptools"
CONNECTIONS = (1, 16, 64)
TRACED = "16, traced"
"""A load of 16 connections whose requests differ in a header field, so that no server can know a head again."""
SIZES = {"16, 4 KiB": 4096, "16, 64 KiB": 65536}
"""Loads of 16 connections by the bytes of the text that is echoed."""
LOADS = (*map(str, CONNECTIONS), TRACED, *SIZES)
SERVERS = {
    OURS: ["echo_server.py"],
    HTTPTOOLS: ["echo_server.py", "--parser", "httptools"],
    LOW_LEVEL: ["peers/sdk_low_level.py"],
    FASTMCP: ["peers/fastmcp_server.py", "--stateless"],
    BARE: ["peers/bare.py"],
}
AT_16 = {
    UVICORN: ["echo_server.py", "--uvicorn", "--parser", "httptools"],
    ASYNC_TOOL: ["echo_server.py", "--async"],
    EVENTS: ["echo_server.py", "--sse"],
    LOW_LEVEL_HTTPTOOLS: ["peers/sdk_low_level.py", "--parser", "httptools"],
    BARE_HTTPTOOLS: ["peers/bare.py", "--parser", "httptools"],
}
"""Servers that are measured with 16 connections alone."""
SHARES = (
    ("h11, share of the bare loop", OURS, BARE, 0.8),
    ("httptools, share of the bare loop", HTTPTOOLS, BARE_HTTPTOOLS, 0.4),
    ("async tool, share of the bare loop", ASYNC_TOOL, BARE, 0.65),
    ("events, share of the bare loop", EVENTS, BARE, 0.75),
    ("uvicorn with httptools, both", UVICORN, LOW_LEVEL_HTTPTOOLS, 4.0),
)
"""Ratios of processor time with 16 connections: a title, the server, that with which it is compared, and the target."""
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
            rounds.add(name, _measure(argv, cpu, options.seconds, LOADS))
        for name, argv in AT_16.items():
            rounds.add(name, _measure(argv, cpu, options.seconds, ("16",)))
    for title, key in (("calls a second", "/s"), ("server's CPU, us a call", " CPU"), ("median, us", " p50")):
        rounds.show(title, {load: f"{load}{key}" for load in LOADS})
    rounds.show("clients' share of a CPU", {load: f"{load} busy" for load in LOADS})
    rounds.compare("h11, 16", LOW_LEVEL, "16/s", SDK_TARGET, witness="16 CPU")
    rounds.compare("httptools, 16", LOW_LEVEL, "16/s", HTTPTOOLS_TARGET, name=HTTPTOOLS, witness="16 CPU")
    if TYPESCRIPT_2 in servers:
        rounds.compare("h11, 16", TYPESCRIPT_2, "16/s", TYPESCRIPT_TARGET, witness="16 CPU")
    for title, name, peer, target in SHARES:
        rounds.compare(title, peer, "16 CPU", target, name=name)
    return rounds.verdict(options)


WARM: Final = 1.0
"""Seconds of load before the first figure. Python specializes code as it runs, so a server that has had few calls takes
half as much time again; each server gets the same, whatever loads it is measured with."""


def _measure(argv: list[str], cpu: int | None, seconds: float, loads: Sequence[str]) -> Figures:
    figures: Figures = {}
    with HttpServer(argv, cpu=cpu) as server:
        drive(server, 16, WARM, is_stateless=True)
        for load in loads:
            count, text = int(load.partition(",")[0]), "x" * SIZES[load] if load in SIZES else TEXT
            ask = partial(drive, server, count, is_stateless=True, is_traced=load == TRACED, text=text)
            ask(seconds / 5)  # to warm up
            run = ask(seconds)
            figures |= {f"{load}/s": run.rate, f"{load} CPU": run.cpu_us, f"{load} busy": run.busy}
            figures |= {f"{load} p50": run.p50_us}
    return figures


if __name__ == "__main__":
    sys.exit(main())
