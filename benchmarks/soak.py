"""Load of every kind for a long time: ``python benchmarks/soak.py --seconds 3600``.

A server over HTTP, with WebSockets, runs in a process of its own. Clients open sessions, ask in both eras, and talk
over WebSockets, while hostile ones send broken bytes, half a head, half a body, a body that is too long, frames without
a mask, half a handshake, a reset in the middle of a call, and read nothing. After each round, with all clients gone,
the memory, descriptors and threads of the server are read. The verdict compares the second quarter of the rounds with
the last: nothing may grow. The 99th percentile of the time for a call is printed.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import struct
import sys
import time
from statistics import median, quantiles
from typing import Final

import trio
from harness import resident_mib

from mcpio import Server
from mcpio.engine.options import Options
from mcpio.revisions import LATEST_HANDSHAKE, REV_2026_07_28
from mcpio.trio import open_http, open_websocket, serve_http
from mcpio.websocket import WebSocketOptions

CLIENTS: Final = 6
CALLS: Final = 10
GROWTH_MIB: Final = 4.0
"""The memory that the last rounds may take beyond earlier ones: allocators keep some."""
_HEAD: Final = b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
_HANDSHAKE: Final = (
    b"GET /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-protocol: mcp\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
_CALL: Final = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}'
_ACCEPT: Final = b"accept: application/json, text/event-stream\r\n"
HOSTILE: Final[dict[str, bytes]] = {
    "broken bytes": os.urandom(300) + b"\r\n\r\n",
    "half a head": _HEAD,
    "half a body": _HEAD + _ACCEPT + b"content-length: 500\r\n\r\n" + _CALL,
    "a body too long": _HEAD + _ACCEPT + b"content-length: 99999999999\r\n\r\n" + _CALL,
    "frames without a mask": _HANDSHAKE + b"\r\n\x81\x05hello",
    "half a handshake": _HANDSHAKE,
    "a reset in a call": _HEAD + _ACCEPT + b"content-length: %d\r\n\r\n" % len(_CALL) + _CALL,
    "a reader of nothing": (_HEAD + _ACCEPT + b"content-length: 1\r\n\r\n{") * 40,
}


async def serve(ready: int) -> None:
    """Serve, and write the port."""
    server = Server("soak")

    @server.tool
    def echo(text: str) -> str:
        return text

    async with trio.open_nursery() as nursery:
        listening = await nursery.start(lambda task_status: serve_http(
            server, 0, websocket=WebSocketOptions(), task_status=task_status
        ))  # fmt: skip
        os.write(ready, b"%d" % listening.port)


def start() -> tuple[int, int]:
    """Start the server; return its process and its port."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what it logs of hostile clients
        try:
            trio.run(serve, writing)
        finally:
            os._exit(0)
    os.close(writing)
    port = int(os.read(reading, 10))
    os.close(reading)
    return process, port


async def attack(port: int, name: str) -> None:
    """Send what a hostile client sends, wait a moment, and be gone."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    try:
        await stream.send_all(HOSTILE[name])
        await trio.sleep(0.02)
    except trio.BrokenResourceError:
        pass
    if name == "a reset in a call":
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await stream.aclose()


async def call(port: int, kind: int, times: list[float]) -> None:
    """Call a tool some times: in a session, without one, or over a WebSocket."""
    era = Options(revisions=(REV_2026_07_28 if kind % 3 == 1 else LATEST_HANDSHAKE,))
    address = f"127.0.0.1:{port}/mcp"
    opening = (
        open_websocket(f"ws://{address}", options=era) if kind % 3 == 2 else open_http(f"http://{address}", options=era)
    )
    async with opening as client:
        for _ in range(CALLS):
            start = time.perf_counter()
            result = await client.call_tool("echo", {"text": "x" * 500})
            times.append(time.perf_counter() - start)
            if result.is_error:
                raise RuntimeError(f"a call failed: {result}")


async def one_round(port: int, times: list[float]) -> None:
    """Let clients of each kind come and go."""
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for kind in range(CLIENTS):
                nursery.start_soon(call, port, kind, times)
            for name in HOSTILE:
                nursery.start_soon(attack, port, name)
    await trio.sleep(0.05)  # for the server to see that they are gone


def held(process: int) -> tuple[float, int, int]:
    """Return the memory in MiB, the descriptors and the threads of a process."""
    folder = f"/proc/{process}"
    return resident_mib(process), len(os.listdir(f"{folder}/fd")), len(os.listdir(f"{folder}/task"))


def main() -> int:
    """Run, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3600.0)
    chosen = parser.parse_args()
    process, port = start()
    times: list[float] = []
    rounds: list[tuple[float, int, int]] = []
    end = time.monotonic() + chosen.seconds
    try:
        while time.monotonic() < end or len(rounds) < 8:
            del times[:-50_000]  # what this process keeps is bounded too
            trio.run(one_round, port, times)
            rounds.append(held(process))
    finally:
        os.kill(process, signal.SIGTERM)
        os.waitpid(process, 0)
    quarter = len(rounds) // 4
    before, after = rounds[quarter : 2 * quarter], rounds[-quarter:]
    names = ("MiB", "descriptors", "threads")
    medians = [(median(row[each] for row in before), median(row[each] for row in after)) for each in range(3)]
    print(f"{len(rounds)} rounds: {len(rounds) * CLIENTS} clients, {len(rounds) * len(HOSTILE)} hostile ones")
    for name, (first, last) in zip(names, medians, strict=True):
        print(f"{name:12} {first:8.1f} in the second quarter, {last:8.1f} in the last")
    print(f"a call takes {median(times) * 1e3:.1f} ms, p99 {quantiles(times, n=100)[98] * 1e3:.1f} ms")
    grown = [
        name
        for name, (first, last), allowed in zip(names, medians, (GROWTH_MIB, 2, 1), strict=True)
        if last > first + allowed
    ]
    print(f"verdict: {', '.join(grown) or 'nothing'} grew")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
