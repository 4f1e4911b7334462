"""Kills, stops and starves real processes at random moments: ``python tests/systems/kills.py --points 200 [--seed N]``.

At each point a server and a client run, each in a process of its own, and the client adds numbers, several at once. The
server answers when a number is on the disk. Then one of them gets SIGKILL, or SIGSTOP and later SIGCONT, and what must
hold is asked: each call ended once, with an answer or an error of the library; the server goes on for other clients and
ends by SIGTERM; and every number that was answered is on the disk.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from mcpio import McpError, Server
from mcpio.trio import open_http, open_tcp, open_websocket, serve_http, serve_tcp, serve_websocket

CALLERS: Final = 4
PATIENCE: Final = 20.0
"""Seconds after which something hangs, on a machine however busy."""
STOPPED: Final = 0.15
TRANSPORTS: Final[dict[str, tuple[Callable[..., Awaitable[None]], Callable[[int], Any]]]] = {
    "tcp": (serve_tcp, lambda port: open_tcp("127.0.0.1", port)),
    "http": (serve_http, lambda port: open_http(f"http://127.0.0.1:{port}/mcp")),
    "websocket": (serve_websocket, lambda port: open_websocket(f"ws://127.0.0.1:{port}/mcp")),
}


class Broken(Exception):
    """A promise was broken."""


# The processes


def fork(run: Callable[[], None], log: Path) -> int:
    """Run a function in a process, whose output goes to a file; return its id."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(output, 1)
            os.dup2(output, 2)
            run()
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    return process


async def serve(transport: str, folder: Path, ready: int) -> None:
    """Serve a tool that answers when its number is on the disk."""
    server = Server("kept")
    disk = os.open(folder / "disk", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @server.tool(blocking=True)
    def add(number: int) -> int:
        os.write(disk, b"%d\n" % number)
        os.fsync(disk)
        return number

    async with trio.open_nursery() as nursery:
        listening = await nursery.start(TRANSPORTS[transport][0], server, 0)
        os.write(ready, b"%d\n" % listening.port)


async def call(transport: str, port: int, folder: Path, ready: int, most: int, first: int) -> None:
    """Add numbers until ``most`` are added or a call fails; note what was answered, and how each caller ended."""
    answered = os.open(folder / "answered", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    numbers = iter(range(first, first + most))
    ends: Counter[str] = Counter()

    async def caller(client: Any) -> None:
        try:
            for number in numbers:
                result = await client.call_tool("add", {"number": number})
                os.write(answered, b"%d\n" % number)
                if number == first:
                    os.write(ready, b"1\n")
                assert not result.is_error, result
        except McpError as error:
            ends[type(error).__name__] += 1
        else:
            ends["done"] += 1

    with trio.fail_after(PATIENCE):
        try:
            async with TRANSPORTS[transport][1](port) as client, trio.open_nursery() as nursery:
                for _ in range(CALLERS):
                    nursery.start_soon(caller, client)
        except McpError as error:
            ends[type(error).__name__] += not ends
    (folder / f"ends-{first}").write_text(repr(dict(ends)))


def wait_for(process: int, what: str) -> int:
    """Return the status of a process that ends."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return status
        time.sleep(0.002)
    raise Broken(f"{what} hangs")


def read_line(descriptor: int, what: str) -> int:
    """Return the number that a process writes."""
    if not select.select([descriptor], [], [], PATIENCE)[0] or not (line := os.read(descriptor, 20)):
        raise Broken(f"{what} does not begin")
    return int(line.split()[0])


# The points


@attrs.frozen
class Point:
    """One moment at which something happens to a process."""

    transport: str
    victim: str
    how: str
    delay: float

    def run(self, folder: Path) -> dict[str, int]:
        """Return how the callers ended. Raises Broken."""
        running: set[int] = set()
        from_server, server_ready = os.pipe()
        from_client, client_ready = os.pipe()
        try:
            server = fork(lambda: trio.run(serve, self.transport, folder, server_ready), folder / "log")
            running.add(server)
            port = read_line(from_server, "the server")
            most = 10_000 if self.how == "killed" else 60
            client = fork(lambda: trio.run(call, self.transport, port, folder, client_ready, most, 0), folder / "log")
            running.add(client)
            read_line(from_client, "the client")
            time.sleep(self.delay)
            victim = client if self.victim == "client" else server
            if self.how == "killed":
                os.kill(victim, signal.SIGKILL)
            else:
                os.kill(victim, signal.SIGSTOP)
                time.sleep(STOPPED)
                if self.victim == "client":
                    self._another_client(port, folder, client_ready)
                os.kill(victim, signal.SIGCONT)
            if (self.victim, self.how) != ("client", "killed") and (status := wait_for(client, "the client")):
                raise Broken(f"the client ended with {status}")
            if (self.victim, self.how) != ("server", "killed"):
                self._another_client(port, folder, client_ready)
                os.kill(server, signal.SIGTERM)
                if (status := wait_for(server, "the server")) not in (0, signal.SIGTERM):
                    raise Broken(f"the server ended with {status}")
            self._check(folder)
        finally:
            for process in running:
                _end(process)
            for descriptor in (from_server, server_ready, from_client, client_ready):
                os.close(descriptor)
        path = folder / "ends-0"
        return eval(path.read_text()) if path.exists() else {}

    def _another_client(self, port: int, folder: Path, ready: int) -> None:
        other = fork(lambda: trio.run(call, self.transport, port, folder, ready, 1, 1_000_000), folder / "log")
        if wait_for(other, "another client"):
            raise Broken("another client is not served")
        if "done" not in (folder / "ends-1000000").read_text():
            raise Broken(f"another client is not served: {(folder / 'ends-1000000').read_text()}")

    def _check(self, folder: Path) -> None:
        kept = set((folder / "disk").read_text().split())
        # The last line of a process that was killed may be torn; numbers that were answered end in a newline.
        answered = (folder / "answered").read_text().split("\n")[:-1]
        if lost := set(answered) - kept:
            raise Broken(f"answered, and not on the disk: {sorted(lost)}")
        ends = folder / "ends-0"
        if ends.exists() and sum(eval(ends.read_text()).values()) != CALLERS:
            raise Broken(f"{CALLERS} callers had {ends.read_text()}")
        if self.how == "stopped" and set(eval(ends.read_text())) != {"done"}:
            raise Broken(f"a stop of {STOPPED} s cost a call: {ends.read_text()}")


def _end(process: int) -> None:
    """Kill a process that may have ended."""
    try:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def main() -> int:
    """Run the points, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    chance = random.Random(chosen.seed)
    kinds = [
        (each, victim, how) for how in ("killed", "stopped") for victim in ("server", "client") for each in TRANSPORTS
    ]
    counts: Counter[str] = Counter()
    failures = 0
    for number in range(chosen.points):
        point = Point(*kinds[number % len(kinds)], delay=chance.random() ** 2 * 0.08)
        with tempfile.TemporaryDirectory() as folder:
            try:
                counts.update(point.run(Path(folder)))
            except Broken as error:
                failures += 1
                print(f"point {number}: {point}: {error}\n{Path(folder, 'log').read_text()[-3000:]}")
    print(f"how callers ended: {dict(counts)}")
    print(f"verdict: {failures} of {chosen.points} points broke a promise")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
