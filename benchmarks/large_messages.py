"""Many calls at once with large results, and with large arguments: none may be lost, and memory stays bounded.

    python benchmarks/large_messages.py
    python benchmarks/large_messages.py --calls 100 --size 100000

Client and server run in separate processes, on each transport in turn. Both are ours, except the client of HTTP/2, a
plain h2 client (the extra http2): one connection, as many streams at once as the server allows.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import trio
from harness import Figures, Rounds, arguments, run_program

from mcpio import Client, McpError, Server

TRANSPORTS = ("HTTP", "HTTP/2", "WebSocket", "TCP", "stdio")
HERE = str(Path(__file__))


def main() -> int:
    """Measure and print."""
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
        return 0
    if sys.argv[1:2] == ["--call"]:
        print(json.dumps(trio.run(call, sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
        return 0
    parser = arguments(__doc__, rounds=1)
    parser.add_argument("--calls", type=int, default=500, help="how many calls there are at once")
    parser.add_argument("--size", type=int, default=1_000_000, help="bytes of each result, and of each argument")
    options = parser.parse_args()
    rounds = Rounds()
    for _ in range(options.rounds):
        for transport in TRANSPORTS:
            found: Figures = run_program([HERE, "--call", transport, str(options.calls), str(options.size)], limit=300)
            rounds.add(transport, found)
    for what in ("results", "arguments"):
        rounds.show(
            f"large {what}",
            {
                "calls lost": f"{what} lost",
                "MB a second": f"{what}/s",
                "client, MiB": f"{what}, client",
                "server, MiB": f"{what}, server",
            },
        )
    lost = sum(rounds.median(each, f"{what} lost") for each in TRANSPORTS for what in ("results", "arguments"))
    print(f"verdict: {lost:g} calls lost")
    return 1 if options.check and lost else 0


def serve(transport: str) -> None:
    """Serve until the process is ended; say where on standard output, but for stdio."""
    from mcpio.trio import serve_http, serve_stdio, serve_tcp, serve_websocket

    server = Server("large", "1.0")

    @server.tool
    def give(size: int) -> str:
        return "x" * size

    @server.tool
    def take(text: str) -> str:
        return str(len(text))

    async def listen(start: Any) -> None:
        async with trio.open_nursery() as nursery:
            listening = await nursery.start(start)
            print(json.dumps([listening.host, listening.port] if transport == "TCP" else [listening.url]), flush=True)

    if transport == "stdio":
        trio.run(serve_stdio, server)
    elif transport in ("HTTP", "HTTP/2"):
        trio.run(listen, partial(serve_http, server, port=0, http2=transport == "HTTP/2"))
    elif transport == "WebSocket":
        trio.run(listen, partial(serve_websocket, server, port=0))
    else:
        trio.run(listen, partial(serve_tcp, server))


async def call(transport: str, calls: int, size: int) -> Figures:
    """Make all calls at once, with large results and then with large arguments, each time with a fresh server."""
    figures: Figures = {}
    for what, tool, given in (("results", "give", {"size": size}), ("arguments", "take", {"text": "x" * size})):
        expected = size if what == "results" else len(str(size))
        outcomes: list[bool] = []

        async def ask(client: Client, tool: str, given: dict[str, Any], expected: int, outcomes: list[bool]) -> None:
            try:
                result = await client.call_tool(tool, given, timeout=None)
            except McpError as error:
                print(f"lost: {error!r:.200}", file=sys.stderr)
                outcomes.append(False)
            else:
                outcomes.append(len(result.text) == expected)

        began = time.perf_counter()
        if transport == "stdio":
            from mcpio.trio import open_stdio

            argv = [sys.executable, HERE, "--serve", transport]
            async with open_stdio(argv, era="handshake") as client:
                await _all_at_once(calls, partial(ask, client, tool, given, expected, outcomes))
                server = _peak(client.child.pid)
        else:
            async with trio.open_nursery() as nursery:
                argv = [sys.executable, HERE, "--serve", transport]
                process = await nursery.start(partial(trio.run_process, argv, stdout=-1, capture_stdout=False))
                place = json.loads(await process.stdout.receive_some())
                async with _opened(transport, place) as opened:
                    await _all_at_once(calls, partial(ask, opened, tool, given, expected, outcomes))
                    server = _peak(process.pid)
                nursery.cancel_scope.cancel()
        seconds = time.perf_counter() - began
        figures |= {
            f"{what} lost": outcomes.count(False),
            f"{what}/s": calls * size / 1e6 / seconds,
            f"{what}, client": _peak("self"),
            f"{what}, server": server,
        }
    return figures


def _opened(transport: str, place: list[Any]) -> AbstractAsyncContextManager[Any]:
    from http2_client import open_http2

    from mcpio.trio import open_http, open_tcp, open_websocket

    openers: dict[str, Any] = {"HTTP": open_http, "HTTP/2": open_http2, "WebSocket": open_websocket, "TCP": open_tcp}
    opened: AbstractAsyncContextManager[Any] = openers[transport](*place)
    return opened


async def _all_at_once(calls: int, ask: Any) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(calls):
            nursery.start_soon(ask)


def _peak(pid: int | str) -> float:
    """Return the most memory that a process has held, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    sys.exit(main())
