"""Kills, stops and starves real processes at random moments: ``python tests/systems/kills.py --points 200 [--seed N]``.

At each point a server and a client run, each in a process of its own, on Trio or asyncio, and the client adds numbers,
several at once. The server answers when a number is on the disk. Then one of them is killed; or it is stopped for a
moment, with small messages or with large ones that fill the pipes; or it may open no more files; or the disk of the
server, which keeps its sessions, is full. These promises are checked: each call ended once, with an answer or an error
of the library, and without an error where the harm passed by; the server goes on for other clients and ends by SIGTERM,
or with its client on standard output; and every number that was answered is on the disk. It needs Linux.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import attrs

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from eachloop import EachLoop, Here

from mcpio import McpError, Server
from mcpio.stores import SqliteStore

CALLERS: Final = 4
PATIENCE: Final = 20.0
"""Seconds after which something hangs, on a machine however busy."""
HARM: Final = 0.15
"""Seconds for which a process is stopped or starved."""
LARGE: Final = 1_000_000
"""Bytes that fill pipes and the buffers of sockets, several times over."""
LOOPS: Final = ("trio", "asyncio")
SOCKETS: Final = ("tcp", "http", "websocket")
KINDS: Final = [
    *((each, victim, how) for how in ("killed", "stopped", "stopped, full pipes") for victim in ("server", "client")
      for each in (*SOCKETS, "stdio")),
    *((each, victim, "out of files") for victim in ("server", "client") for each in SOCKETS),
    ("http", "server", "full disk"),
]  # fmt: skip


class Broken(Exception):
    """A promise was broken."""


# The processes


def fork(loop: str, run: Callable[..., Any], log: Path, *args: Any) -> int:
    """Run an asynchronous function in a process, whose output goes to a file; return its id."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(output, 1)
            os.dup2(output, 2)
            EachLoop(loop).run(partial(run, *args), limit=3 * PATIENCE)
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    return process


async def serve(transport: str, folder: Path, ready: int, how: str, here: Here) -> None:
    """Serve a tool that answers when its number is on the disk."""
    server = Server("kept")
    disk = os.open(folder / "disk", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @server.tool(blocking=True)
    def add(number: int, text: str) -> str:
        os.write(disk, b"%d\n" % number)
        os.fsync(disk)
        return text

    if transport == "stdio":
        (folder / "server").write_text(str(os.getpid()))
        await here.drivers.serve_stdio(server)
        return
    options = {"store": SqliteStore(folder / "sessions.db")} if how == "full disk" else {}
    async with here.listening(transport, server, port=0, **options) as (listening, _):
        os.write(ready, b"%d\n" % listening.port)
        await here.forever()


async def call(
    transport: str, loop: str, port: int, folder: Path, ready: int, most: int, first: int, text: str, here: Here
) -> None:
    """Add numbers until ``most`` are added or a call fails; note what was answered, and how each caller ended."""
    # Both files are opened at once: the harm may be that no file can be opened, and it may outlast the calls.
    answered = os.open(folder / "answered", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    noted = os.open(folder / f"noted-{first}", os.O_WRONLY | os.O_CREAT)
    numbers = iter(range(first, first + most))
    ends: Counter[str] = Counter()
    drivers = here.drivers
    opens: dict[str, Callable[[], Any]] = {
        "tcp": lambda: drivers.open_tcp("127.0.0.1", port),
        "http": lambda: drivers.open_http(f"http://127.0.0.1:{port}/mcp"),
        "websocket": lambda: drivers.open_websocket(f"ws://127.0.0.1:{port}/mcp"),
        "stdio": lambda: drivers.open_stdio([sys.executable, __file__, "--serve", folder, "--loop", loop]),
    }

    async def caller(client: Any) -> None:
        try:
            for number in numbers:
                result = await client.call_tool("add", {"number": number, "text": text})
                if result.is_error:
                    ends["tool failed"] += 1
                    return
                assert result.text == text
                os.write(answered, b"%d\n" % number)
                if number == first:
                    os.write(ready, b"1\n")
        except McpError as error:
            ends[type(error).__name__] += 1
        else:
            ends["done"] += 1

    with here.scope(PATIENCE):
        try:
            async with opens[transport]() as client, here.tasks() as tasks:
                for _ in range(CALLERS):
                    tasks.spawn(caller(client))
        except McpError as error:
            ends[type(error).__name__] += not ends
        os.write(noted, repr(dict(ends)).encode())
        os.rename(folder / f"noted-{first}", folder / f"ends-{first}")
        return
    raise Broken("a client hangs")


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

    loop: str
    transport: str
    victim: str
    how: str
    delay: float

    def run(self, folder: Path) -> dict[str, int]:
        """Return how the callers ended. Raises Broken."""
        log, running = folder / "log", list[int]()
        from_server, server_ready = os.pipe()
        from_client, client_ready = os.pipe()
        is_killed, has_own_server = self.how == "killed", self.transport == "stdio"
        try:
            server = port = other = 0
            if not has_own_server:
                server = fork(self.loop, serve, log, self.transport, folder, server_ready, self.how)
                running.append(server)
                port = read_line(from_server, "the server")
            most, text = (16, "x" * LARGE) if "full pipes" in self.how else (10_000 if is_killed else 60, "x")
            arguments: Any = (self.transport, self.loop, port, folder, client_ready)
            client = fork(self.loop, call, log, *arguments, most, 0, text)
            running.append(client)
            read_line(from_client, "the client")
            if has_own_server:
                server = int((folder / "server").read_text())
            time.sleep(self.delay)
            with self._harm(client if self.victim == "client" else server):
                if not has_own_server and not is_killed:
                    other = fork(self.loop, call, log, *arguments, 1, 1_000_000, "x")
                    running.append(other)
                    if self.victim == "client":
                        self._check_other(other, folder)
                    time.sleep(HARM)
            if not (is_killed and self.victim == "client") and (status := wait_for(client, "the client")):
                raise Broken(f"the client ended with {status}")
            if has_own_server:
                wait_until_gone(server)
            elif not (is_killed and self.victim == "server"):
                if self.victim == "server" and self.how != "full disk":
                    self._check_other(other, folder)
                another = fork(self.loop, call, log, *arguments, 1, 2_000_000, "x")
                running.append(another)
                self._check_other(another, folder, 2_000_000)
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

    @contextmanager
    def _harm(self, victim: int) -> Iterator[None]:
        """Do to a process what is to be done, for the length of the block if it is not killed."""
        if self.how in ("out of files", "full disk"):
            kind = resource.RLIMIT_NOFILE if self.how == "out of files" else resource.RLIMIT_FSIZE
            before = resource.prlimit(victim, kind)
            used = {*map(int, os.listdir(f"/proc/{victim}/fd"))} if self.how == "out of files" else set()
            resource.prlimit(victim, kind, (next(each for each in count() if each not in used), before[1]))
            yield
            resource.prlimit(victim, kind, before)
        else:
            os.kill(victim, signal.SIGKILL if self.how == "killed" else signal.SIGSTOP)
            yield
            if self.how != "killed":
                os.kill(victim, signal.SIGCONT)

    def _check_other(self, process: int, folder: Path, first: int = 1_000_000) -> None:
        if wait_for(process, "another client") or "done" not in (ends := (folder / f"ends-{first}").read_text()):
            raise Broken(f"another client is not served: {ends}")

    def _check(self, folder: Path) -> None:
        kept = set((folder / "disk").read_text().split())
        # The last line of a process that was killed may be torn; numbers that were answered end in a newline.
        answered = (folder / "answered").read_text().split("\n")[:-1]
        if lost := set(answered) - kept:
            raise Broken(f"answered, and not on the disk: {sorted(lost)}")
        ends = folder / "ends-0"
        if ends.exists() and sum(eval(ends.read_text()).values()) != CALLERS:
            raise Broken(f"{CALLERS} callers had {ends.read_text()}")
        passes_by = "stopped" in self.how or (self.victim, self.how) == ("server", "out of files")
        if passes_by and set(eval(ends.read_text())) != {"done"}:
            raise Broken(f"{HARM} s cost a call: {ends.read_text()}")


def wait_until_gone(process: int) -> None:
    """Wait until a process has ended that is no child of this one."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":
            return
        time.sleep(0.002)
    raise Broken("the server of a client that has ended hangs")


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
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--loop", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve is not None:  # as the child of a client
        EachLoop(chosen.loop).run(partial(serve, "stdio", chosen.serve, 0, ""), limit=3 * PATIENCE)
        return 0
    chance = random.Random(chosen.seed)
    kinds = [(loop, *kind) for kind in KINDS for loop in LOOPS]
    chance.shuffle(kinds)
    counts: Counter[str] = Counter()
    failures = 0
    for number in range(chosen.points):
        point = Point(*kinds[number % len(kinds)], delay=chance.random() ** 2 * 0.08)
        with tempfile.TemporaryDirectory() as folder:
            try:
                counts.update(point.run(Path(folder)))
            except Broken as error:
                failures += 1
                print(f"point {number}: {point}: {error}\n{Path(folder, 'log').read_text()[-3000:]}", flush=True)
    print(f"how callers ended: {dict(counts)}")
    print(f"verdict: {failures} of {chosen.points} points broke a promise")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
