"""Cuts one conversation at every byte, over real sockets and pipes: ``python tests/systems/cuts.py [--every 7]``.

A client talks to a server through a relay that passes on so many bytes of one direction, and then closes or resets its
connections. At each point it checks: every call of the client and every question of the server ends once, with its own
answer or an error of the library, and not by a timeout alone; the client's block ends; the server keeps no session,
serves another client, and has run no call twice; and the library reports no fault of its own. A server on standard
output is a process that exits after so many bytes. ``--loop asyncio`` runs client and server there.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from eachloop import EachLoop, Here
from trio_thread import TrioThread

from mcpio import Context, McpError, Server
from mcpio.backoff import Backoff
from mcpio.errors import RequestTimeout
from mcpio.http import HttpClientOptions, HttpOptions
from mcpio.http.model import HostPolicy

PATIENCE: Final = 10.0
"""Seconds until the processes and sockets of a point are gone, also on a busy machine. A whole point has 20."""
TIMEOUT: Final = 5.0
"""Seconds after which a call has lost something: no call may end by this."""
CALLS: Final = ("add", "ask", "add", "large")
ERAS: Final = ("handshake", "stateless")
DIRECTIONS: Final = ("to the server", "to the client")
NEVER: Final = 10**9


class Broken(Exception):
    """A promise was broken."""


@attrs.define
class World:
    """A server, and what happened at it."""

    started: Counter[int] = attrs.field(factory=Counter)
    """How often each call was run, by its number."""
    running: int = 0
    questions: int = 0
    """Questions to the client that have no outcome yet."""
    server: Server = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.server = server = Server("cut")

        @server.tool
        async def add(number: int) -> str:
            return self._ran(number)

        @server.tool
        async def large(number: int) -> str:
            return self._ran(number) * 300

        @server.tool
        async def ask(ctx: Context, number: int) -> str:
            self.running += 1
            try:
                ctx.progress(1)
                self.questions += 1
                try:
                    await ctx.roots()
                finally:
                    self.questions -= 1
                return self._ran(number)
            finally:
                self.running -= 1

    def _ran(self, number: int) -> str:
        self.started[number] += 1
        return str(number)


class Relay:
    """Passes on connections until so many bytes of one direction have passed, and then ends those that there are."""

    near: Any
    """The port, or the path of the socket, where it listens."""
    far: Any
    """The port, or the path of the socket, of the server."""

    def __init__(self, direction: str, at: int, how: str) -> None:
        self.passed: Counter[str] = Counter()
        self._direction, self.left, self._how = direction, at, how
        self._streams: set[trio.SocketStream] = set()

    @asynccontextmanager
    async def listening(self, path: Path | None) -> AsyncIterator[Relay]:
        """Listen for a block: on a port, or on a socket with that path."""
        listening = trio.socket.socket(trio.socket.AF_INET if path is None else trio.socket.AF_UNIX)
        await listening.bind(("127.0.0.1", 0) if path is None else str(path))
        listening.listen(16)
        self.near = listening.getsockname()[1] if path is None else path
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, self.pass_on, [trio.SocketListener(listening)])
            yield self
            nursery.cancel_scope.cancel()

    async def _dial(self) -> trio.SocketStream:
        if isinstance(self.far, int):
            return await trio.open_tcp_stream("127.0.0.1", self.far)
        return await trio.open_unix_socket(self.far)

    async def pass_on(self, near: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            far = await self._dial()
            self._streams |= {near, far}
            async with near, far, trio.open_nursery() as nursery:
                nursery.start_soon(self._pump, near, far, DIRECTIONS[0])
                nursery.start_soon(self._pump, far, near, DIRECTIONS[1])
            self._streams -= {near, far}

    async def _pump(self, source: trio.SocketStream, sink: trio.SocketStream, direction: str) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await source.receive_some(65536):
                self.passed[direction] += len(data)
                if direction == self._direction:
                    data, self.left = data[: self.left], self.left - len(data)
                await sink.send_all(data)
                if self.left <= 0:
                    self._cut()
            await sink.send_eof()
            return
        for stream in (source, sink):  # one direction has ended: so has the other
            await trio.aclose_forcefully(stream)

    def _cut(self) -> None:
        self.left = NEVER
        for stream in self._streams:
            if self._how == "reset":
                with suppress(OSError):
                    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            stream.socket.close()
        self._streams.clear()


HTTP: Final = HttpClientOptions(reconnect_after=0.001)
AGAIN: Final = Backoff(tries=5, base=0.001, cap=0.002)


@asynccontextmanager
async def served(here: Here, kind: str, world: World, folder: Path, relay: Relay) -> AsyncIterator[Any]:
    """Serve for a block; yield what opens a client through the relay."""
    near, drivers = relay.near, here.drivers
    ways: Any = {
        "tcp": ("tcp", {"port": 0, "end_timeout": 0.05}, partial(drivers.open_tcp, "127.0.0.1", near)),
        "unix": ("unix", {"path": folder / "far", "end_timeout": 0.05}, partial(drivers.open_unix, near)),
    }
    if kind in ("http", "websocket"):
        policy, address = HostPolicy.for_address("127.0.0.1", near), f"127.0.0.1:{near}/mcp"
        open_http = partial(drivers.open_http, f"http://{address}", http=HTTP, trust_env=False)
        ways["http"] = "http", {"port": 0, "options": HttpOptions(policy=policy)}, open_http
        ways["websocket"] = (
            "websocket",
            {"port": 0, "policy": policy},
            partial(drivers.open_websocket, f"ws://{address}"),
        )
    name, options, opens = ways[kind.removesuffix(" again")]
    if kind == "tcp again":
        opens = partial(opens, reconnect=AGAIN)
    async with here.listening(name, world.server, **options) as (at, _):
        relay.far = folder / "far" if kind == "unix" else at.port
        yield opens


CHILD: Final = """
import json, os, sys

to_read, to_write = map(int, sys.argv[1:])

def say(**message):
    global to_write
    data = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\\n"
    os.write(1, data[:to_write])
    to_write -= len(data)
    if to_write <= 0:
        os._exit(1)

rest = b""
while data := os.read(0, min(65536, to_read)):
    to_read -= len(data)
    *lines, rest = (rest + data).split(b"\\n")
    for message in map(json.loads, lines):
        id, method, number = message.get("id"), message.get("method"), message.get("params", {}).get("arguments", {})
        if method == "initialize":
            info = {"name": "child", "version": "1"}
            say(id=id, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
        elif method == "server/discover":
            say(id=id, error={"code": -32601, "message": "Method not found"})
        elif method == "tools/call":
            if message["params"]["name"] == "ask":
                say(id=-id, method="roots/list")
            text = str(number["number"]) * (300 if message["params"]["name"] == "large" else 1)
            say(id=id, result={"content": [{"type": "text", "text": text}]})
    if not to_read:
        os._exit(1)
"""
"""A server that reads and writes so many bytes."""


@attrs.frozen
class Point:
    """A cut of the conversation over one transport."""

    kind: str
    era: str
    direction: str
    how: str
    at: int

    def run(self, loop: str, looks_on: bool = True) -> tuple[Counter[str], Counter[str]]:
        """Return how the calls ended, and the bytes that passed. Raises Broken, or what else went wrong, in a group."""
        ends: Counter[str] = Counter()
        relay = Relay(self.direction, self.at, self.how)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if self.kind == "stdio":
                EachLoop(loop).run(partial(self._over_stdio, ends))
            else:
                with TrioThread(partial(relay.listening, folder / "near" if self.kind == "unix" else None)):
                    EachLoop(loop).run(partial(self._over_sockets, ends, relay, folder, looks_on))
        return ends, relay.passed

    async def _over_stdio(self, ends: Counter[str], here: Here) -> None:
        limits = [NEVER, NEVER]
        limits[DIRECTIONS.index(self.direction)] = self.at
        command = [sys.executable, "-S", "-c", CHILD, *map(str, limits)]
        await self._converse(here, partial(here.drivers.open_stdio, command, close_grace=0.2), None, ends)

    async def _over_sockets(self, ends: Counter[str], relay: Relay, folder: Path, looks_on: bool, here: Here) -> None:
        world = World()
        until = partial(wait_until, here)
        async with served(here, self.kind, world, folder, relay) as opens:
            await self._converse(here, opens, world, ends)
            if self.kind != "http":  # where a session outlives its connections
                await until(lambda: not world.server.sessions, "a session is left")
                await until(lambda: not world.running, "a handler is left")
            await until(lambda: not world.questions, "a question of the server has no outcome")
            if any(count > 1 for count in world.started.values()):
                raise Broken(f"calls ran more than once: {dict(world.started)}")
            if looks_on:
                relay.left = NEVER
                async with opens(era=self.era) as client:
                    if (await client.call_tool("add", {"number": 1000})).text != "1000":
                        raise Broken("another client gets a wrong answer")

    async def _converse(self, here: Here, opens: Callable[..., Any], world: World | None, ends: Counter[str]) -> None:
        async def call(client: Any, number: int, name: str) -> None:
            try:
                result = await client.call_tool(name, {"number": number}, timeout=TIMEOUT)
            except RequestTimeout:
                raise Broken(f"{name} ended by its timeout alone") from None
            except McpError as error:
                ends[type(error).__name__] += 1
                return
            ends["answered"] += 1
            if result.is_error or result.text != str(number) * (300 if name == "large" else 1):
                raise Broken(f"{name} was answered with {result!r:.300}")
            if world is not None and world.started[number] != 1:
                raise Broken(f"{name} was answered, and ran {world.started[number]} times")

        try:
            async with opens(era=self.era, roots=()) as client:
                async with here.tasks() as tasks:
                    for number, name in enumerate(CALLS):
                        tasks.spawn(call(client, number, name))
                await call(client, len(CALLS), "ask")
        except McpError as error:
            ends[f"not opened: {type(error).__name__}"] += 1
        if sum(ends.values()) < 1 or (ends.total() != len(CALLS) + 1 and not any("not opened" in end for end in ends)):
            raise Broken(f"{len(CALLS) + 1} calls had {dict(ends)}")


async def wait_until(here: Here, holds: Callable[[], bool], otherwise: str) -> None:
    with here.scope(PATIENCE):
        while not holds():
            await here.sleep(0.001)
        return
    raise Broken(otherwise)


KINDS: Final = ("tcp", "tcp again", "unix", "http", "websocket", "stdio")


def points(kind: str, era: str, every: int) -> list[Point]:
    """Return the cuts of a conversation, whose length is that of a whole one."""
    lengths = dict.fromkeys(DIRECTIONS, 1500)
    if kind != "stdio":
        _, passed = Point(kind, era, "", "", NEVER).run("trio", looks_on=False)
        lengths = {direction: passed[direction] for direction in DIRECTIONS}
    hows = ("closed",) if kind == "stdio" else ("closed", "reset")
    return [
        Point(kind, era, direction, how, at)
        for direction, how in itertools.product(DIRECTIONS, hows)
        for at in range(0 if kind != "stdio" else 1, lengths[direction] + 1, every)
    ]


class Faults(logging.Handler):
    """Collects the errors that the library logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not record.getMessage().startswith("the tool 'ask' failed"):
            self.said.append(self.format(record))


def main() -> int:
    """Try the points, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--every", type=int, default=1, help="try every n-th byte alone")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--loop", choices=("trio", "asyncio"), default="trio")
    chosen = parser.parse_args()
    faults = Faults()
    logger = logging.getLogger("mcpio")
    logger.addHandler(faults)
    logger.propagate = False
    tried = failures = 0
    for kind, era in itertools.product(chosen.kinds, ERAS):
        if kind == "stdio" and era == "stateless":
            continue  # the child speaks in sessions
        began, ends, count = time.monotonic(), Counter[str](), 0
        for point in points(kind, era, chosen.every):
            count += 1
            broken = faults.said
            try:
                ends.update(point.run(chosen.loop, count % 10 == 0)[0])
            except Exception as error:
                fault: BaseException = error
                while isinstance(fault, BaseExceptionGroup):
                    fault = fault.exceptions[0]
                broken.insert(0, repr(fault))
            if broken:
                failures += 1
                print(f"{point}: {broken[0]}", flush=True)
            broken.clear()
        tried += count
        print(
            f"{kind}, {era}: {count} points in {time.monotonic() - began:.0f} s; calls ended {dict(ends)}", flush=True
        )
    print(f"verdict: {failures} of {tried} points broke a promise on {chosen.loop}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
