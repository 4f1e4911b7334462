"""What share of a bare loop's rate our servers reach: the price of the protocol, the engine and the application layer.

    python benchmarks/shares.py
    python benchmarks/shares.py --guard      # a quick run; fails where a share is far below its target, twice

The bare loops do by hand what an echo server needs and check nothing. Each row is a ratio within one round, with server
and load on a processor each where there are two.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import attrs
from harness import (
    HERE,
    OURS,
    SERVERS,
    Figures,
    Rounds,
    StdioServer,
    WebSocketServer,
    arguments,
    call_of_echo,
    free_port,
)
from http_load import HttpServer
from http_load import drive as drive_http

BARE: Final = "bare loop"
STDIO = {OURS: SERVERS[OURS], BARE: [sys.executable, str(HERE / "peers" / "bare.py")]}
ASYNC = {OURS: [*SERVERS[OURS], "--async"], BARE: [*STDIO[BARE], "--tasks"]}
GUARD: Final = 0.5
"""The part of its target that a share must reach in a guarded run: machines are noisy, and lost speed shows as more."""


@attrs.frozen
class Row:
    """One load on our server and on a bare one."""

    title: str
    target: float
    measure: Callable[[str, float, int | None], float]
    """Returns calls a second, of the server with this name."""
    guard: float = attrs.Factory(lambda row: row.target * GUARD, takes_self=True)
    """The share that a guarded run asks for."""


def main() -> int:
    """Measure and print."""
    parser = arguments(__doc__, rounds=5, seconds=0.7)
    parser.add_argument("--guard", action="store_true", help="a quick run that asks for about half of each target")
    parser.add_argument("--only", default="", help="measure only the rows whose title has this text")
    options = parser.parse_args()
    if options.guard:
        options.check, options.rounds, options.seconds = True, 3, 0.25
    cpu = _pin()
    rows = [row for row in _rows() if options.only in row.title]
    rounds = _measure(rows, options, cpu)
    if options.guard and rounds.missed:
        print("Once more, since something else may have been busy:")
        rounds = _measure([row for row in rows if row.title in rounds.missed], options, cpu)
    return rounds.verdict(options)


def _measure(rows: list[Row], options: argparse.Namespace, cpu: int | None) -> Rounds:
    """Measure rows in turn, and print them."""
    rounds = Rounds()
    for _ in range(options.rounds):
        found: dict[str, Figures] = {OURS: {}, BARE: {}}
        for row in rows:
            for name, figures in found.items():
                figures[f"{row.title}/s"] = row.measure(name, options.seconds, cpu)
        for name, figures in found.items():
            rounds.add(name, figures)
    for row in rows:
        print(f"{rounds.median(OURS, f'{row.title}/s'):>9,.0f} calls a second on ", end="")
        rounds.compare(row.title, BARE, f"{row.title}/s", row.guard if options.guard else row.target)
    return rounds


def _rows() -> Iterator[Row]:
    # The two rows with a guard of their own miss their targets by nearly half, so that half of a target would judge the
    # noise of the machine: they reach 0.15 to 0.18, and 0.18 to 0.28.
    yield Row("stdio, 64 in flight, 64 B", 0.28, partial(_stdio, STDIO, "x" * 64, 64), guard=0.12)
    yield Row("stdio, 64 in flight, 4 KiB", 0.47, partial(_stdio, STDIO, "0123456789abcdef" * 256, 64))
    yield Row("stdio, one at a time", 0.97, partial(_stdio, STDIO, "x" * 64, 1))
    yield Row("stdio, async tool, 64 in flight", 0.4, partial(_stdio, ASYNC, "x" * 64, 64), guard=0.15)
    yield Row("stdio, list of 100 tools", 0.85, _list)
    for connections, target in ((1, 0.9), (16, 0.9), (64, 0.8)):
        yield Row(f"HTTP on h11, JSON, {connections}", target, partial(_http, [], connections))
    yield Row("HTTP on h11, events, 16", 0.8, partial(_http, ["--sse"], 16))
    yield Row("HTTP on httptools, JSON, 16, of a loop on h11", 1.6, partial(_http, ["--parser", "httptools"], 16))
    yield Row("WebSocket, 64 in flight, 5 B", 0.8, partial(_websocket, "hello"))
    yield Row("WebSocket, 64 in flight, 4 KiB", 0.75, partial(_websocket, "0123456789abcdef" * 256))


def _stdio(servers: dict[str, list[str]], text: str, window: int, name: str, seconds: float, cpu: int | None) -> float:
    with StdioServer(servers[name], cpu=cpu) as server:
        server.widen(1 << 20)
        server.initialize()
        return _calls(server, text, window, seconds)


def _list(name: str, seconds: float, cpu: int | None) -> float:
    with StdioServer(STDIO[name], tools=100, cpu=cpu) as server:
        server.initialize()
        drive = partial(server.drive, "tools/list", {}, is_right=lambda result: len(result["tools"]) == 100)
        drive(seconds / 5)  # to warm up
        return drive(seconds)[0]


def _http(options: list[str], connections: int, name: str, seconds: float, cpu: int | None) -> float:
    argv = ["echo_server.py", *options] if name == OURS else ["peers/bare.py", *(["--sse"] * ("--sse" in options))]
    with HttpServer(argv, cpu=cpu) as server:
        drive_http(server, connections, seconds / 5)  # to warm up
        return drive_http(server, connections, seconds).rate


def _websocket(text: str, name: str, seconds: float, cpu: int | None) -> float:
    port = free_port()
    argv = [word for word in STDIO[name] if word != "--stdio"]
    with WebSocketServer([*argv, "--websocket", str(port)], ("127.0.0.1", port), cpu=cpu) as server:
        server.initialize()
        return _calls(server, text, 64, seconds)


def _calls(server: StdioServer, text: str, window: int, seconds: float) -> float:
    def is_right(result: dict[str, Any]) -> bool:
        return bool(result["content"] == [{"type": "text", "text": text}])

    drive = partial(server.drive, "tools/call", call_of_echo(text), window=window, is_right=is_right)
    drive(seconds / 5)  # to warm up
    return drive(seconds)[0]


def _pin() -> int | None:
    """Keep this process on one processor and return another one, if there are two."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        return None
    os.sched_setaffinity(0, {cpus[-1]})
    return cpus[0]


if __name__ == "__main__":
    sys.exit(main())
