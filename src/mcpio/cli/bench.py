"""``mcpio bench``: measure a server, or compare two in interleaved rounds."""

from __future__ import annotations

import argparse
import copy
import math
import os
import statistics
import sys
import time
from array import array
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import attrs
import trio

from mcpio._drivers.setup import ConnectOptions
from mcpio._drivers.stdio import StderrSink
from mcpio.app.client import Client
from mcpio.cli import answers, connect, targets
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.output import Console, codec_of, is_terminal, result_texts
from mcpio.cli.use import find
from mcpio.errors import ConnectionLost, McpError, NoBackChannel
from mcpio.framing import json
from mcpio.revisions import Era
from mcpio.trio import run_until_signalled

WARM_UP: Final = 0.1
"""The share of a measurement that precedes it, and is not part of it."""

BAR: Final = 24
"""Characters of the progress bar."""

Call = Callable[[Client], Awaitable[str | None]]
"""Calls the server once, and returns the error if the result is one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    connect.add_options(parser)
    connect.add_words(parser)
    parser.add_argument("--tool", metavar="NAME", help="the tool to call (default: list the tools, or ping)")
    parser.add_argument("--arguments", metavar="JSON", help="the tool's arguments, as a JSON object")
    parser.add_argument(
        "--era",
        choices=["auto", "stateless", "handshake"],
        help="how to talk: 2026-07-28 without a session, or in one (default: auto, as the server prefers)",
    )
    parser.add_argument("--connections", type=_count, default=1, metavar="N", help="clients, each with a connection")
    parser.add_argument("--callers", type=_count, default=1, metavar="N", help="calls in flight on each connection")
    parser.add_argument("--seconds", type=_time, metavar="N", help="how long to measure in a round (default: 5, or 2)")
    parser.add_argument("--calls", type=_count, metavar="N", help="how many calls to make in a round, instead")
    parser.add_argument("--against", metavar="SERVER", help="compare with another server, in rounds that alternate")
    parser.add_argument("--rounds", type=_count, metavar="N", help="how many rounds (default: 1; with --against: 5)")


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    chosen = [_Target(options, None)]
    if options.against is not None:
        chosen.append(_Target(options, options.against))
    connect.no_more_words(chosen[0].options)
    if options.arguments is not None and options.tool is None:
        raise Failure(Exit.USAGE, "--arguments needs --tool")
    if options.calls is not None and options.seconds is not None:
        raise Failure(Exit.USAGE, "give --seconds or --calls, not both")
    if options.record is not None:
        raise Failure(Exit.USAGE, "mcpio bench cannot record, since it would measure that too: use mcpio call --record")
    if options.sampling == "ask":
        raise Failure(Exit.USAGE, "--sampling must be a file, not ask: your own time would be measured")
    return run_until_signalled(partial(_run, options, chosen), timeout=None)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r:.100}")
    return int(text)


def _time(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {text!r:.100}")
    return seconds


class _Target:
    """One server, its clients, and the call to measure."""

    def __init__(self, options: argparse.Namespace, word: str | None) -> None:
        """``word`` names the server; ``None`` takes it from the command line."""
        self.options = copy.deepcopy(options)
        if word is not None:
            self.options.words, self.options.after = [word], None
        if options.against is not None:
            # Of two servers, options of programs are for those, and options of URLs for those.
            words = self.options.words
            by_url = self.options.after is None and words and targets.resolve(words[0]).entry.url is not None
            for name, value in _OF_PROGRAMS if by_url else _OF_URLS:
                setattr(self.options, name, value)
        connect.choose_server(self.options)
        self.name: str = self.options.target
        self.clients: list[Client] = []
        self.what = ""
        self.call: Call = _discover

    async def open(self, stack: AsyncExitStack, console: Console) -> None:
        """Open the connections, and make one call. Raises Failure, and McpError."""
        stderr: StderrSink = console.server_said if self.options.verbose else "capture"
        # To show log messages would be measured too.
        client_options: ConnectOptions = {"on_log": lambda message: None}
        client_options.update(answers.without_terminal(self.options))  # type: ignore[typeddict-item]  # a part of these
        if self.options.era is not None:
            client_options["era"] = self.options.era
        for _ in range(self.options.connections):
            context = connect.open_client(self.options, stderr=stderr, **client_options)
            self.clients.append(await stack.enter_async_context(context))
        client = self.clients[0]
        self.what, self.call = await _chosen_call(client, self.options)
        fault = await self.call(client)
        if fault is not None:
            raise Failure(Exit.TOOL_FAILED, f"nothing was measured: {self.what}: {fault}")

    @property
    def pids(self) -> list[int]:
        """The processes that were started."""
        return [client.child.pid for client in self.clients if hasattr(client, "child")]

    @property
    def revision(self) -> str:
        """The revision that is spoken."""
        return codec_of(self.clients[0]).revision.name


_OF_PROGRAMS: Final[Sequence[tuple[str, Any]]] = (("env", ()), ("cwd", None), ("inherit_env", False))
_OF_URLS: Final[Sequence[tuple[str, Any]]] = (("header", ()), ("auth", None))


async def _chosen_call(client: Client, options: argparse.Namespace) -> tuple[str, Call]:
    """Return the call to measure, as a text and a function. Raises Failure for an unknown tool or unfit arguments."""
    if options.tool is None:
        if getattr(client.server.capabilities, "tools", None) is not None:
            return "tools/list", _list_tools
        return ("server/discover", _discover) if client.era is Era.STATELESS else ("ping", _ping)
    try:
        arguments = json.loads(options.arguments or "{}")
    except json.JsonError as error:
        raise Failure(Exit.USAGE, f"--arguments must be JSON, not {options.arguments!r:.100}: {error.reason}") from None
    if not isinstance(arguments, dict):
        reason = f'--arguments must be a JSON object, such as \'{{"text": "hello"}}\', not {options.arguments!r:.100}'
        raise Failure(Exit.USAGE, reason)
    await find(client, "tool", options.tool)
    return f"tools/call {options.tool}", partial(_call_tool, options.tool, arguments)


async def _call_tool(name: str, arguments: Mapping[str, Any], client: Client) -> str | None:
    result = await client.call_tool(name, arguments)
    return "the tool reports an error: " + " ".join(result_texts(result))[:200] if result.is_error else None


async def _list_tools(client: Client) -> None:
    await client.list_tools()


async def _discover(client: Client) -> None:
    await client.discover(fresh=True)


async def _ping(client: Client) -> None:
    await client.ping()


# ---------------------------------------------------------------------------------------------------------- measurement


@attrs.frozen
class _Usage:
    """What processes have used."""

    cpu: float
    """Seconds of processor time, all threads together."""
    mib: float
    """Memory that they hold."""
    processes: int


@attrs.frozen(kw_only=True)
class _Figures:
    """The result of one measurement."""

    seconds: float
    latencies: Sequence[float]
    """Of calls without an error, in seconds, sorted."""
    errors: Mapping[str, int]
    server: _Usage | None
    """Of the processes that were started; the processor time is that of the measurement."""
    client_cpu: float

    @property
    def calls(self) -> int:
        return len(self.latencies)

    def percentile(self, share: float) -> float:
        """Return the latency in milliseconds that so many calls kept to."""
        if not self.latencies:
            return math.nan
        return self.latencies[max(math.ceil(share * self.calls) - 1, 0)] * 1000

    def values(self) -> dict[str, float]:
        """Return the figures that are shown and compared."""
        done = self.calls or math.nan
        values = {
            "calls/s": self.calls / self.seconds,
            "p50 ms": self.percentile(0.5),
            "p90 ms": self.percentile(0.9),
            "p99 ms": self.percentile(0.99),
            "max ms": self.percentile(1),
        }
        if self.server is not None:
            values |= {"server us/call": self.server.cpu / done * 1e6, "server MiB": self.server.mib}
        return values | {"client us/call": self.client_cpu / done * 1e6, "client busy": self.client_cpu / self.seconds}


async def _measure(
    target: _Target, seconds: float, calls: int | None, progress: Callable[[float], None] | None = None
) -> _Figures:
    """Call for so many seconds, or so often. Raises McpError if a connection is lost."""
    clock, calls_left = time.perf_counter, math.inf if calls is None else calls
    latencies, errors = array("d"), Counter[str]()
    lost: list[McpError] = []
    before, cpu, began = _usage(target.pids), time.process_time(), clock()
    end = began + seconds if calls is None else math.inf

    async def call_on(client: Client) -> None:
        nonlocal calls_left
        call = target.call
        while calls_left > 0 and (start := clock()) < end:
            calls_left -= 1
            fault: str | None
            try:
                fault = await call(client)
            except (ConnectionLost, NoBackChannel) as error:
                lost.append(error)
                nursery.cancel_scope.cancel()
                return
            except McpError as error:
                fault = f"{type(error).__name__}: {error}"
            if fault is None:
                latencies.append(clock() - start)
            else:
                errors[fault[:200]] += 1

    async def show(progress: Callable[[float], None]) -> None:
        while True:
            progress((clock() - began) / seconds if calls is None else 1 - calls_left / calls)
            await trio.sleep(0.2)

    async with trio.open_nursery() as nursery:
        if progress is not None:
            nursery.start_soon(show, progress)
        async with trio.open_nursery() as callers:
            for client in target.clients:
                for _ in range(target.options.callers):
                    callers.start_soon(call_on, client)
        nursery.cancel_scope.cancel()
    elapsed, cpu = clock() - began, time.process_time() - cpu
    if lost:
        raise lost[0]
    after = _usage(target.pids)
    used = None if before is None or after is None else attrs.evolve(after, cpu=after.cpu - before.cpu)
    return _Figures(seconds=elapsed, latencies=sorted(latencies), errors=errors, server=used, client_cpu=cpu)


def _usage(pids: Sequence[int]) -> _Usage | None:
    """Return what processes and their groups have used; ``None`` where that cannot be known."""
    if sys.platform != "linux" or not pids:
        return None
    cpu, pages, count = 0.0, 0, 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # "pid (command) state parent group ...", and the command may hold anything.
                fields = file.read().rpartition(b")")[2].split()
            if int(fields[2]) not in pids:
                continue
            cpu += time.clock_gettime(~int(name) << 3 | 2)  # how Linux numbers the clock of another process
        except OSError:
            continue  # it has ended
        pages, count = pages + int(fields[21]), count + 1
    return _Usage(cpu, pages * os.sysconf("SC_PAGE_SIZE") / 1024**2, count)


def _clock_seconds() -> float:
    """Return what reading the clock twice takes."""
    clock = time.perf_counter
    return statistics.median(-(clock() - clock()) for _ in range(1001))


# --------------------------------------------------------------------------------------------------------------- rounds


async def _run(options: argparse.Namespace, chosen: Sequence[_Target]) -> int:
    console = Console(quiet=options.quiet)
    rounds = options.rounds or (5 if options.against else 1)
    seconds = options.seconds or (2.0 if options.against else 5.0)
    results: list[list[_Figures]] = [[] for _ in chosen]
    at = chosen[0]
    bar = _Bar(rounds * len(chosen)) if is_terminal(sys.stderr) and not options.quiet else None
    async with AsyncExitStack() as stack:
        try:
            for at in chosen:
                await at.open(stack, console)
            for at in chosen:
                warm = None if options.calls is None else max(int(options.calls * WARM_UP), 1)
                await _measure(at, max(seconds * WARM_UP, 0.2), warm)
            for number in range(rounds):
                # The order alternates, so that neither always has the warmer machine.
                pairs = list(zip(chosen, results, strict=True))
                for at, figures in pairs if number % 2 == 0 else reversed(pairs):
                    progress = None if bar is None else bar.progress
                    figures.append(await _measure(at, seconds, options.calls, progress))
                    if bar is not None:
                        bar.next()
        except (McpError, Failure) as error:
            if bar is not None:
                bar.remove()
            failure = error if isinstance(error, Failure) else connect.explained(error, at.options)
            which = f"{at.name}: " if len(chosen) > 1 else ""
            raise Failure(failure.status, f"{which}{failure.message}") from error
    if options.json:
        console.result(_as_json(options, chosen, results))
    elif len(chosen) == 1:
        console.result("\n".join(_report(chosen[0], results[0])))
    else:
        console.result("\n".join(_comparison(chosen, results)))
    return Exit.REFUSED if any(each.errors for figures in results for each in figures) else Exit.DONE


class _Bar:
    """A progress bar on one line of the terminal."""

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._done = 0

    def progress(self, share: float) -> None:
        """Show the share of the current part."""
        share = (self._done + min(share, 1.0)) / self._parts
        filled = int(share * BAR)
        print(f"\r[{'#' * filled}{'-' * (BAR - filled)}] {share:4.0%}", end="", file=sys.stderr, flush=True)

    def next(self) -> None:
        """Begin the next part, or remove the bar after the last one."""
        self._done += 1
        if self._done == self._parts:
            self.remove()

    def remove(self) -> None:
        """Remove the bar."""
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _medians(figures: Sequence[_Figures]) -> dict[str, float]:
    values = [each.values() for each in figures]
    return {name: statistics.median(each[name] for each in values) for name in values[0]}


def _heading(target: _Target) -> str:
    options = target.options
    connections = f"{options.connections} connection{'s' if options.connections > 1 else ''}"
    callers = f"{options.callers} caller{'s' if options.callers > 1 else ''}"
    return f"{target.name}: {target.what}, {target.revision}, {connections}, {callers} on each"


def _report(target: _Target, figures: Sequence[_Figures]) -> Iterator[str]:
    """Yield the lines on one server."""
    medians, last = _medians(figures), figures[-1]
    yield _heading(target)
    calls, seconds = sum(each.calls for each in figures), sum(each.seconds for each in figures)
    rounds = f" in {len(figures)} rounds" if len(figures) > 1 else ""
    yield f"  {medians['calls/s']:,.0f} calls/s: {calls:,} calls in {seconds:.1f} s{rounds}, after a warm-up"
    yield "  latency  " + "  ".join(f"{name} {medians[f'{name} ms']:.2f} ms" for name in ("p50", "p90", "p99", "max"))
    if last.server is not None:
        count = last.server.processes
        processes = f"{count} process{'es' if count > 1 else ''}"
        cpu, mib = medians["server us/call"], medians["server MiB"]
        yield f"  server   {cpu:,.0f} us of processor time a call; {mib:.1f} MiB in {processes}"
    yield (
        f"  client   {medians['client us/call']:,.0f} us of processor time a call, {medians['client busy']:.2f} of a "
        f"processor; its clock takes {_clock_seconds() * 1e6:.2f} us"
    )
    yield from _notes([(target, figures)])


def _comparison(chosen: Sequence[_Target], results: Sequence[Sequence[_Figures]]) -> Iterator[str]:
    """Yield the table of two servers: medians, and the ratios within the rounds."""
    for letter, target in zip("AB", chosen, strict=True):
        yield f"{letter}  {_heading(target)}"
    yield f"{'':16}{'A':>12}{'B':>12}{'A/B':>9}   spread of A/B in {len(results[0])} rounds"
    first, second = map(_medians, results)
    for name in [name for name in first if name in second]:
        ratios = _ratios(results, name)
        middle = f"{statistics.median(ratios):>9.2f}   {min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""
        digits = 0 if name.endswith(("/s", "/call")) else 2
        yield f"{name:16}{first[name]:>12,.{digits}f}{second[name]:>12,.{digits}f}{middle}"
    yield from _notes(list(zip(chosen, results, strict=True)))


def _ratios(results: Sequence[Sequence[_Figures]], name: str) -> list[float]:
    """Return a figure of A divided by that of B, for each round."""
    pairs = [(a.values()[name], b.values()[name]) for a, b in zip(*results, strict=True)]
    return [a / b for a, b in pairs if b and not math.isnan(a / b)]


def _notes(results: Sequence[tuple[_Target, Sequence[_Figures]]]) -> Iterator[str]:
    """Yield errors, and what makes the figures doubtful."""
    for target, figures in results:
        errors = sum((Counter(each.errors) for each in figures), Counter[str]())
        if errors:
            yield f"{target.name}: {errors.total():,} calls failed, which no other figure counts:"
            yield from (f"  {count:,} times {fault}" for fault, count in errors.most_common(5))
        if _medians(figures)["client busy"] > 0.9:
            yield f"{target.name}: the client itself was busy, so a faster server would hardly show"


def _as_json(options: argparse.Namespace, chosen: Sequence[_Target], results: Sequence[Sequence[_Figures]]) -> str:
    servers = [
        {
            "server": target.name,
            "call": target.what,
            "protocolVersion": target.revision,
            "medians": _named(_medians(figures)),
            "rounds": [
                {"seconds": each.seconds, "calls": each.calls, "errors": dict(each.errors), **_named(each.values())}
                for each in figures
            ],
        }
        for target, figures in zip(chosen, results, strict=True)
    ]
    value: dict[str, Any] = {
        "connections": options.connections,
        "callers": options.callers,
        "clockSeconds": _clock_seconds(),
        "servers": servers,
    }
    if len(results) == 2:
        ratios = {name: _ratios(results, name) for name in results[0][0].values()}
        value["ratios"] = _named({name: statistics.median(each) for name, each in ratios.items() if each})
    return json.dumps(value).decode()


def _named(values: Mapping[str, float]) -> dict[str, float | None]:
    """Return figures under names for programs. JSON has no NaN."""
    return {_NAMES[name]: None if math.isnan(value) else value for name, value in values.items()}


_NAMES: Final = {
    "calls/s": "callsPerSecond",
    "p50 ms": "p50Milliseconds",
    "p90 ms": "p90Milliseconds",
    "p99 ms": "p99Milliseconds",
    "max ms": "maxMilliseconds",
    "server us/call": "serverMicrosecondsPerCall",
    "server MiB": "serverMebibytes",
    "client us/call": "clientMicrosecondsPerCall",
    "client busy": "clientBusy",
}
