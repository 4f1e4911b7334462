"""Load of every kind for a long time: ``python benchmarks/soak.py --seconds 3600``.

A server over HTTP, with WebSockets, runs in a process of its own, and holds 10,000 sessions and 1,000 WebSockets, of
which some call a tool in each round. Beside them, clients come and go: they open sessions, ask in both eras, and talk
over WebSockets, while hostile ones send broken bytes, half a head, half a body, a body that is too long, frames without
a mask, half a handshake, a reset in the middle of a call, and read nothing. After each round, with the latter gone, the
memory, descriptors, threads, tasks and processor time of the server are read. The verdict compares the second quarter
of the rounds with the last: nothing may grow. The 99th percentile of the time for a call is printed for both: it
depends on what else the machine does, and the processor time does less.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import http.client
import json
import os
import random
import resource
import signal
import socket
import struct
import sys
import time
from functools import partial
from statistics import median, quantiles
from typing import Any, Final

import attrs
import trio
from harness import resident_mib

import mcpio.asyncio
from mcpio import Client, Server
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.http import HttpOptions
from mcpio.revisions import LATEST_HANDSHAKE, REV_2026_07_28
from mcpio.trio import connect_websocket, open_http, open_websocket, serve_http
from mcpio.websocket import WebSocketOptions

CLIENTS: Final = 6
CALLS: Final = 10
CALLED: Final = 20
"""How many of the sessions, and of the WebSockets, that are held call a tool in a round."""
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


def serve(loop: str, ready: int, sessions: int, websockets: int) -> None:
    """Serve on an event loop, and write the port."""
    server = Server("soak", options=Options(limits=Limits(sessions=sessions + 1000)))

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def tasks(collect: bool) -> str:
        if collect:
            gc.collect()
        on_trio = loop == "trio"
        return str(trio.lowlevel.current_statistics().tasks_living if on_trio else len(asyncio.all_tasks()))

    options: Any = {
        "options": HttpOptions(session_idle=None),
        "websocket": WebSocketOptions(),
        "max_connections": websockets + 500,
    }

    async def on_trio() -> None:
        async with trio.open_nursery() as nursery:
            listening: Any = await nursery.start(partial(serve_http, server, 0, **options))
            os.write(ready, b"%d" % listening.port)

    async def on_asyncio() -> None:
        started = asyncio.get_running_loop().create_future()
        started.add_done_callback(lambda future: os.write(ready, b"%d" % future.result().port))
        await mcpio.asyncio.serve_http(server, 0, started=started, **options)

    if loop == "trio":
        trio.run(on_trio)
    else:
        asyncio.run(on_asyncio())


def start(loop: str, sessions: int, websockets: int) -> tuple[int, int]:
    """Start the server; return its process and its port."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what it logs of hostile clients
        try:
            serve(loop, writing, sessions, websockets)
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


class Sessions:
    """The sessions that the server holds, without a connection of theirs."""

    def __init__(self, port: int, count: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._ids: list[str] = []
        info = {"name": "soak", "version": "1"}
        first = {"protocolVersion": LATEST_HANDSHAKE.name, "capabilities": {}, "clientInfo": info}
        for _ in range(count):
            id = self._post({"id": 1, "method": "initialize", "params": first})[0]
            assert id is not None
            self._post({"method": "notifications/initialized"}, id)
            self._ids.append(id)
            self._call(id)  # for what the first call of a session keeps

    def call_some(self, times: list[float]) -> None:
        """Call a tool in some of the sessions."""
        for id in random.sample(self._ids, min(CALLED, len(self._ids))):
            start = time.perf_counter()
            self._call(id)
            times.append(time.perf_counter() - start)

    def _call(self, id: str) -> None:
        params = {"name": "echo", "arguments": {"text": "x" * 500}}
        answer = self._post({"id": 2, "method": "tools/call", "params": params}, id)[1]
        if b'"result"' not in answer:
            raise RuntimeError(f"a session is lost: {answer!r}")

    def _post(self, message: dict[str, Any], id: str | None = None) -> tuple[str | None, bytes]:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if id is not None:
            headers |= {"Mcp-Session-Id": id, "MCP-Protocol-Version": LATEST_HANDSHAKE.name}
        self._connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", **message}), headers)
        response = self._connection.getresponse()
        return response.headers.get("mcp-session-id"), response.read()


async def call(client: Client, calls: int, times: list[float]) -> None:
    """Call a tool some times."""
    for _ in range(calls):
        start = time.perf_counter()
        result = await client.call_tool("echo", {"text": "x" * 500})
        times.append(time.perf_counter() - start)
        if result.is_error:
            raise RuntimeError(f"a call failed: {result}")


async def come_and_go(port: int, kind: int, times: list[float]) -> None:
    """Call a tool some times: in a session, without one, or over a WebSocket."""
    era = Options(revisions=(REV_2026_07_28 if kind % 3 == 1 else LATEST_HANDSHAKE,))
    address = f"127.0.0.1:{port}/mcp"
    opening = (
        open_websocket(f"ws://{address}", options=era) if kind % 3 == 2 else open_http(f"http://{address}", options=era)
    )
    async with opening as client:
        await call(client, CALLS, times)


@attrs.frozen
class Round:
    """What the server holds after a round, and what the round took."""

    mib: float | None
    """Only where garbage was collected before."""
    descriptors: int
    threads: int
    tasks: int
    processor_ms: float
    times: list[float]


GROWTH: Final = {"mib": 4.0, "descriptors": 2, "threads": 1, "tasks": 2}
"""How much more the last rounds may hold than earlier ones: allocators keep some memory."""
COLLECTING: Final = 4
"""In one of so many rounds the server collects its garbage before its memory is read. Beside 10,000 sessions Python
does so by itself only when a quarter as many objects have come, and the memory grows until then."""
SLOWER: Final = 2.0
"""How much more processor time the last rounds may take."""


async def one_round(process: int, port: int, sessions: Sessions, held: list[Client], *, collects: bool) -> Round:
    """Let clients of each kind come and go, and some of those that stay call. ``collects`` reads the memory, too."""
    times: list[float] = []
    began = processor_ms(process)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for kind in range(CLIENTS):
                nursery.start_soon(come_and_go, port, kind, times)
            for name in HOSTILE:
                nursery.start_soon(attack, port, name)
            for client in random.sample(held, min(CALLED, len(held))):
                nursery.start_soon(call, client, 1, times)
        sessions.call_some(times)
        took = processor_ms(process) - began
        await trio.sleep(0.05)  # for the server to see that they are gone
        async with open_websocket(f"ws://127.0.0.1:{port}/mcp") as client:
            tasks = int((await client.call_tool("tasks", {"collect": collects})).text)
    await trio.sleep(0.02)
    folder = f"/proc/{process}"
    descriptors, threads = (len(os.listdir(f"{folder}/{each}")) for each in ("fd", "task"))
    return Round(resident_mib(process) if collects else None, descriptors, threads, tasks, took, times)


def processor_ms(process: int) -> float:
    """Return the processor time that a process has used."""
    with open(f"/proc/{process}/stat") as file:
        user, system = file.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) * 1000 / os.sysconf("SC_CLK_TCK")


async def soak(process: int, port: int, seconds: float, sessions: int, websockets: int) -> list[Round]:
    """Open what is held, and go round until the time is over."""
    rounds: list[Round] = []
    holding = Sessions(port, sessions)
    async with trio.open_nursery() as nursery:
        url = f"ws://127.0.0.1:{port}/mcp"
        held = [await connect_websocket(url, nursery=nursery) for _ in range(websockets)]
        print(f"{sessions} sessions and {websockets} WebSockets are open", flush=True)
        end = trio.current_time() + seconds
        while trio.current_time() < end or len(rounds) < 4 * COLLECTING:
            collects = len(rounds) % COLLECTING == 0
            rounds.append(await one_round(process, port, holding, held, collects=collects))
        nursery.cancel_scope.cancel()
    return rounds


def main() -> int:
    """Run, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--websockets", type=int, default=1000)
    parser.add_argument("--loop", choices=("trio", "asyncio"), default="trio", help="of the server")
    chosen = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    process, port = start(chosen.loop, chosen.sessions, chosen.websockets)
    try:
        rounds = trio.run(soak, process, port, chosen.seconds, chosen.sessions, chosen.websockets)
    finally:
        os.kill(process, signal.SIGTERM)
        os.waitpid(process, 0)
    quarter = len(rounds) // 4
    quarters = rounds[quarter : 2 * quarter], rounds[-quarter:]
    print(
        f"{len(rounds)} rounds: {len(rounds) * CLIENTS} clients that came and went, "
        f"{len(rounds) * len(HOSTILE)} hostile ones"
    )
    grown = []
    for name, allowed in (*GROWTH.items(), ("processor_ms", None)):
        values = ([getattr(each, name) for each in rows] for rows in quarters)
        first, last = (median(value for value in each if value is not None) for each in values)
        print(f"{name:12} {first:8.1f} in the second quarter, {last:8.1f} in the last")
        if last > (first * SLOWER if allowed is None else first + allowed):
            grown.append(name)
    for which, rows in zip(("second", "last"), quarters, strict=True):
        times = [time for row in rows for time in row.times]
        p99 = quantiles(times, n=100)[98]
        print(f"a call takes {median(times) * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms, in the {which} quarter")
    print(f"verdict: {', '.join(grown) or 'nothing'} grew")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
