"""Servers on sockets: calls a second on one connection, beside standard input and output and a bare Trio loop.

    python benchmarks/socket_server.py

One message a line on these, so that only the transport differs. WebSocket has frames, and is compared with a bare loop
of Trio and wsproto.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from pathlib import Path

from harness import (
    BARE_TRIO,
    OURS,
    SERVERS,
    Figures,
    Rounds,
    SocketServer,
    StdioServer,
    WebSocketServer,
    arguments,
    call_of_echo,
    free_port,
)

STDIO, TCP, UNIX, WEBSOCKET = "stdio", "TCP", "Unix", "WebSocket"
ALONE, MANY = "one at a time", "64 in flight"
LOADS = {(load, size): 64 if load == MANY else 1 for load in (ALONE, MANY) for size in (64, 4096)}
AS_STDIO, OF_BARE, OF_BARE_FRAMES = 0.95, 0.6, {ALONE: 0.6, MANY: 0.5}
"""Targets. Within a twentieth, two figures are the same: the noise is as large."""


def main() -> int:
    """Measure and print."""
    options = arguments(__doc__, rounds=5, seconds=0.7).parse_args()
    rounds, above = Rounds(), Rounds()
    with tempfile.TemporaryDirectory() as directory:
        for number, kind in itertools.product(range(options.rounds), (STDIO, TCP, UNIX, WEBSOCKET)):
            found: dict[str, Figures] = {}
            for name in (OURS, BARE_TRIO):
                with _server(name, kind, Path(directory, f"{name[0]}{number}")) as server:
                    found[name] = _figures(server, options.seconds)
                rounds.add(f"{name}, {kind}", found[name])
            above.add(kind, {key: figure - found[BARE_TRIO][key] for key, figure in found[OURS].items()})
    rounds.show("calls a second", _columns("/s"))
    rounds.show("server's CPU, us a call", _columns(" CPU"))
    # A socket costs the system more than a pipe, whoever reads it: what is ours to answer for is the difference.
    above.show(f"{OURS} above the bare loop, us a call", _columns(" CPU"))
    for load, size in LOADS:
        key = f"{load} {size}"
        for kind in (TCP, UNIX):
            name, title = f"{OURS}, {kind}", f"{kind}, {load}, {size} B"
            rounds.compare(title, f"{OURS}, {STDIO}", f"{key}/s", AS_STDIO, name=name, witness=f"{key} CPU")
            if load == ALONE:
                rounds.compare(title, f"{BARE_TRIO}, {kind}", f"{key}/s", OF_BARE, name=name, witness=f"{key} CPU")
        name, title = f"{OURS}, {WEBSOCKET}", f"{WEBSOCKET}, {load}, {size} B"
        peer, target = f"{BARE_TRIO}, {WEBSOCKET}", OF_BARE_FRAMES[load]
        rounds.compare(title, peer, f"{key}/s", target, name=name, witness=f"{key} CPU")
    return rounds.verdict(options)


def _columns(unit: str) -> dict[str, str]:
    return {f"{load[:6]}, {size} B": f"{load} {size}{unit}" for load, size in LOADS}


def _server(name: str, kind: str, path: Path) -> StdioServer:
    argv = [each for each in SERVERS[name] if each != "--stdio"]
    if kind == STDIO:
        server = StdioServer(SERVERS[name])
        server.widen(1 << 20)
        return server
    if kind == UNIX:
        return SocketServer([*argv, "--unix", str(path)], str(path))
    port = free_port()
    if kind == WEBSOCKET:
        return WebSocketServer([*argv, "--websocket", str(port)], ("127.0.0.1", port))
    return SocketServer([*argv, "--tcp", str(port)], ("127.0.0.1", port))


def _figures(server: StdioServer, seconds: float) -> Figures:
    server.initialize()
    figures: Figures = {}
    for (load, size), window in LOADS.items():
        text = os.urandom(size // 2).hex()

        def is_right(result: dict[str, object], text: str = text) -> bool:
            return result["content"] == [{"type": "text", "text": text}]

        for part in (seconds / 7, seconds):  # first to warm up
            figures[f"{load} {size}/s"], figures[f"{load} {size} CPU"] = server.drive(
                "tools/call", call_of_echo(text), part, window=window, is_right=is_right
            )
    return figures


if __name__ == "__main__":
    sys.exit(main())
