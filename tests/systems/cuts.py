"""Cuts one conversation at every byte, over real sockets and pipes: ``python tests/systems/cuts.py [--every 7]``.

A client talks to a server through a relay that passes on so many bytes of one direction, and then closes or resets its
connections. At each point it checks: every call of the client and every question of the server ends once, with its own
answer or an error of the library, and not by a timeout alone; the client's block ends; the server keeps no session,
serves another client, and has run no call twice; and the library reports no fault of its own. A server on standard
output is a process that exits after so many bytes. ``--loop asyncio`` runs client and server there. Some points are
tried at once, since a point mostly waits; those of a loop that breaks are tried again, one by one.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import logging
import selectors
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final

import attrs

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from eachloop import EachLoop, Here

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
AT_ONCE: Final = 8
"""How many points are tried at once on one loop."""


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


class Switch:
    """A thread that moves the bytes of all relays."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._asked: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._waker, woken = socket.socketpair()
        self._selector.register(woken, selectors.EVENT_READ, self._wake)
        Thread(target=self._run, name="switch", daemon=True).start()

    def ask(self, function: Callable[[], None]) -> None:
        """Have a function called in the thread."""
        self._asked.put(function)
        self._waker.send(b" ")

    def watch(self, readable: socket.socket, function: Callable[[], None]) -> None:
        """Call a function when a socket can be read; in the thread."""
        self._selector.register(readable, selectors.EVENT_READ, function)

    def leave(self, readable: socket.socket) -> None:
        """Watch a socket no longer; in the thread."""
        with suppress(KeyError, ValueError):  # it is watched no more
            self._selector.unregister(readable)

    def close(self, readable: socket.socket) -> None:
        """Watch a socket no longer, and close it; in the thread."""
        self.leave(readable)
        readable.close()

    def _wake(self) -> None:
        while not self._asked.empty():
            self._asked.get()()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data == self._wake:
                    key.fileobj.recv(4096)  # type: ignore[union-attr]  # it is a socket
                if key.fileobj.fileno() != -1:  # type: ignore[union-attr]  # not closed by the one before
                    key.data()


class Relay:
    """Passes on connections until so many bytes of one direction have passed, and then ends those that there are."""

    near: Any
    """The port, or the path of the socket, where it listens."""
    far: Any
    """The port, or the path of the socket, of the server."""

    def __init__(self, switch: Switch, direction: str, at: int, how: str) -> None:
        self.passed: Counter[str] = Counter()
        self._switch = switch
        self._direction, self.left, self._how = direction, at, how
        self._sockets: set[socket.socket] = set()

    @contextmanager
    def listening(self, path: Path | None) -> Iterator[None]:
        """Listen for a block: on a port, or on a socket with that path."""
        listening = socket.socket(socket.AF_INET if path is None else socket.AF_UNIX)
        listening.bind(("127.0.0.1", 0) if path is None else str(path))
        listening.listen(16)
        self.near = listening.getsockname()[1] if path is None else path
        self._switch.ask(partial(self._switch.watch, listening, partial(self._accept, listening)))
        try:
            yield
        finally:
            self._switch.ask(partial(self._end, listening))

    def _end(self, listening: socket.socket) -> None:
        for each in (listening, *self._sockets):
            self._switch.close(each)

    def _accept(self, listening: socket.socket) -> None:
        near, _ = listening.accept()
        far = socket.socket(listening.family)
        try:
            far.connect(("127.0.0.1", self.far) if isinstance(self.far, int) else str(self.far))
        except OSError:
            near.close()
            far.close()
            return
        self._sockets |= {near, far}
        self._switch.watch(near, partial(self._pump, near, far, DIRECTIONS[0]))
        self._switch.watch(far, partial(self._pump, far, near, DIRECTIONS[1]))
        for each in (near, far):
            each.settimeout(PATIENCE)

    def _pump(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        try:
            if data := source.recv(65536):
                self.passed[direction] += len(data)
                if direction == self._direction:
                    data, self.left = data[: self.left], self.left - len(data)
                sink.sendall(data)
                if self.left <= 0:
                    self._cut()
                return
            sink.shutdown(socket.SHUT_WR)
        except OSError:  # one direction has ended: so has the other
            ended = True
        else:
            self._switch.leave(source)
            self._sockets.discard(source)
            ended = sink not in self._sockets
        if ended:
            for each in (source, sink):
                self._sockets.discard(each)
                self._switch.close(each)

    def _cut(self) -> None:
        self.left = NEVER
        for each in self._sockets:
            if self._how == "reset":
                with suppress(OSError):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._switch.close(each)
        self._sockets.clear()


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

    async def run(self, switch: Switch, looks_on: bool, here: Here) -> tuple[Counter[str], Counter[str]]:
        """Return how the calls ended, and the bytes that passed. Raises Broken, or what else went wrong, in a group."""
        ends: Counter[str] = Counter()
        relay = Relay(switch, self.direction, self.at, self.how)
        with here.scope(2 * PATIENCE):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                if self.kind == "stdio":
                    await self._over_stdio(ends, here)
                else:
                    with relay.listening(folder / "near" if self.kind == "unix" else None):
                        await self._over_sockets(ends, relay, folder, looks_on, here)
            return ends, relay.passed
        raise Broken("the conversation does not end")

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
    pause = 0.001
    with here.scope(PATIENCE):
        while not holds():
            await here.sleep(pause)
            pause = min(2 * pause, 0.02)
        return
    raise Broken(otherwise)


KINDS: Final = ("tcp", "tcp again", "unix", "http", "websocket", "stdio")


def points(switch: Switch, kind: str, era: str, every: int) -> list[Point]:
    """Return the cuts of a conversation, whose length is that of a whole one."""
    lengths = dict.fromkeys(DIRECTIONS, 1500)
    if kind != "stdio":
        (whole,) = tried(switch, "trio", [Trial(Point(kind, era, "", "", NEVER))])
        if whole.faults:
            raise Broken(whole.faults[0])
        lengths = {direction: whole.passed[direction] for direction in DIRECTIONS}
    hows = ("closed",) if kind == "stdio" else ("closed", "reset")
    return [
        Point(kind, era, direction, how, at)
        for direction, how in itertools.product(DIRECTIONS, hows)
        for at in range(0 if kind != "stdio" else 1, lengths[direction] + 1, every)
    ]


@attrs.define(eq=False)
class Trial:
    """A point that is tried, and what came of it."""

    point: Point
    looks_on: bool = False
    ends: Counter[str] = attrs.field(factory=Counter)
    passed: Counter[str] = attrs.field(factory=Counter)
    faults: list[str] = attrs.field(factory=list)
    """The broken promise, and the errors that the library logged."""


NOW: ContextVar[Trial] = ContextVar("NOW")
"""The point that the running task belongs to."""


class Faults(logging.Handler):
    """Collects the errors that the library logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.elsewhere: list[str] = []
        """Those that belong to no point."""

    def emit(self, record: logging.LogRecord) -> None:
        if not record.getMessage().startswith("the tool 'ask' failed"):
            trial = NOW.get(None)
            (self.elsewhere if trial is None else trial.faults).append(self.format(record))


FAULTS: Final = Faults()


def tried(switch: Switch, loop: str, trials: Sequence[Trial]) -> Sequence[Trial]:
    """Try points at once on a loop; where that loop itself breaks, try each on a loop of its own."""

    async def try_one(trial: Trial, here: Here) -> None:
        NOW.set(trial)
        try:
            trial.ends, trial.passed = await trial.point.run(switch, trial.looks_on, here)
        except Exception as error:
            trial.faults.insert(0, repr(_first(error)))

    async def main(here: Here) -> None:
        async with here.tasks() as tasks:
            for trial in trials:
                tasks.spawn(try_one(trial, here))

    try:
        EachLoop(loop).run(main, limit=6 * PATIENCE)
    except Exception as error:
        FAULTS.elsewhere.insert(0, repr(_first(error)))
    if FAULTS.elsewhere and len(trials) > 1:
        FAULTS.elsewhere.clear()
        return [each for trial in trials for each in tried(switch, loop, [Trial(trial.point, trial.looks_on)])]
    trials[0].faults += FAULTS.elsewhere
    FAULTS.elsewhere.clear()
    return trials


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def main() -> int:
    """Try the points, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--every", type=int, default=1, help="try every n-th byte alone")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--eras", nargs="*", choices=ERAS, default=ERAS)
    parser.add_argument("--loop", choices=("trio", "asyncio"), default="trio")
    chosen = parser.parse_args()
    logger = logging.getLogger("mcpio")
    logger.addHandler(FAULTS)
    logger.propagate = False
    gc.freeze()  # collections would look at much that stays, and take a fifth of the time
    gc.set_threshold(20_000)
    switch = Switch()
    total = failures = 0
    for kind, era in itertools.product(chosen.kinds, chosen.eras):
        if kind == "stdio" and era == "stateless":
            continue  # the child speaks in sessions
        began, ends = time.monotonic(), Counter[str]()
        trials = [Trial(point, n % 10 == 0) for n, point in enumerate(points(switch, kind, era, chosen.every), 1)]
        for first in range(0, len(trials), AT_ONCE):
            for trial in tried(switch, chosen.loop, trials[first : first + AT_ONCE]):
                ends.update(trial.ends)
                if trial.faults:
                    failures += 1
                    print(f"{trial.point}: {trial.faults[0]}", flush=True)
        total += len(trials)
        print(
            f"{kind}, {era}: {len(trials)} points in {time.monotonic() - began:.0f} s; calls ended {dict(ends)}",
            flush=True,
        )
    print(f"verdict: {failures} of {total} points broke a promise on {chosen.loop}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
