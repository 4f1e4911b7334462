"""Servers on standard input and output: calls a second, and processor time a call.

    python benchmarks/stdio_server.py

The bare Trio loop shows what could be reached. With ``--pin`` the server and what drives it each have a processor of
their own: less noise, but one call at a time then mostly measures how long it takes to wake the other processor.

The SDK for TypeScript is there where ``MCPIO_PEERS_DIR`` names the directory in which npm has installed what
``tests/peers/package.json`` names.
"""

from __future__ import annotations

import sys
from typing import Any

from harness import (
    LOW_LEVEL,
    ON_ASYNCIO,
    SERVERS,
    Figures,
    Rounds,
    StdioServer,
    arguments,
    call_of_echo,
    pinned,
    typescript_servers,
)

TOOLS = 100
ALONE, MANY, LIST = "one at a time", "64 in flight", f"list of {TOOLS}"
TEXTS = {ALONE: "hello", MANY: "hello", "4 KiB": "0123456789abcdef" * 256, "1 MiB": "0123456789abcdef" * 65536}
LOADS = (*TEXTS, LIST)
TARGETS = {ALONE: 3.0, MANY: 15.0, LIST: 5.0}
ASYNCIO_TARGETS = {MANY: 12.0}


def main() -> int:
    """Measure and print."""
    parser = arguments(__doc__, rounds=5, seconds=0.7)
    parser.add_argument("--pin", action="store_true", help="run the server and this process on a processor each")
    options = parser.parse_args()
    cpu = pinned() if options.pin else None
    servers = SERVERS | typescript_servers()
    rounds = Rounds()
    for _ in range(options.rounds):
        for name, argv in servers.items():
            with StdioServer(argv, tools=TOOLS, cpu=cpu) as server:
                server.initialize()
                figures: Figures = {}
                for load in LOADS:
                    drive(server, load, options.seconds / 7)  # to warm up
                    figures[f"{load}/s"], figures[f"{load} CPU"] = drive(server, load, options.seconds)
                rounds.add(name, figures)
    rounds.show("calls a second", {load: f"{load}/s" for load in LOADS})
    rounds.show("server's CPU, us a call", {load: f"{load} CPU" for load in LOADS})
    for load, target in TARGETS.items():
        rounds.compare(load, LOW_LEVEL, f"{load}/s", target, witness=f"{load} CPU")
    for load, target in ASYNCIO_TARGETS.items():
        rounds.compare(f"{load}, asyncio", LOW_LEVEL, f"{load}/s", target, name=ON_ASYNCIO, witness=f"{load} CPU")
    return rounds.verdict(options)


def drive(server: StdioServer, load: str, seconds: float) -> tuple[float, float]:
    """Put one kind of load on a server; return calls a second, and processor time a call."""
    if load == LIST:
        return server.drive("tools/list", {}, seconds, is_right=_lists_all)
    text = TEXTS[load]
    return server.drive(
        "tools/call",
        call_of_echo(text),
        seconds,
        window=64 if load == MANY else 1,
        is_right=lambda result: bool(result["content"][0]["text"] == text),
    )


def _lists_all(result: dict[str, Any]) -> bool:
    return len(result["tools"]) == TOOLS and result.get("nextCursor") is None


if __name__ == "__main__":
    sys.exit(main())
