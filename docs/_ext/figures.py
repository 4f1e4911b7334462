"""Tables and plots of speed, made from ``benchmarks/results.json``, which ``benchmarks/record.py`` writes."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from picture import picture, text

__all__ = ["Records", "about_rows", "draw_plots", "figure_rows", "missed_rows", "slower_rows", "speed_rows"]

RESULTS: Final = Path(__file__).parents[2] / "benchmarks" / "results.json"
OURS: Final = "mcpio"
PEERS: Final = {
    "`mcp`": ("mcp, low level", "mcp"),
    "`fastmcp`": ("fastmcp",),
    "TypeScript SDK": ("TypeScript SDK 1", "TypeScript SDK 2"),
}
"""The peers by their headings. Where there are two versions of one, the faster counts."""


class Table(NamedTuple):
    """The figures of one benchmark: its program, and the loads by their headings."""

    program: str
    loads: dict[str, str]


TABLES: Final = {
    "stdio-servers": Table(
        "stdio_server.py",
        {
            "one call at a time": "one at a time",
            "64 in flight": "64 in flight",
            "4 KiB": "4 KiB",
            "1 MiB": "1 MiB",
            "list of 100 tools": "list of 100",
        },
    ),
    "http-servers": Table(
        "http_server.py",
        {"1 connection": "JSON, 1", "16": "JSON, 16", "64": "JSON, 64", "16, answered by events": "SSE, 16"},
    ),
    "stateless-servers": Table(
        "http_stateless.py",
        {"1 connection": "1", "16": "16", "64": "64", "16, a field of the head differs": "16, traced"},
    ),
    "stdio-clients": Table("stdio_client.py", {"1 caller": "1", "64 callers": "64"}),
    "http-clients": Table(
        "http_client.py",
        {
            "1 caller": "JSON, 1",
            "16": "JSON, 16",
            "64": "JSON, 64",
            "1, answered by events": "SSE, 1",
            "16, by events": "SSE, 16",
        },
    ),
    "in-memory": Table("in_memory.py", {"1 caller": "1", "64 callers": "64"}),
    "starts": Table(
        "process_start.py", {"first answer, ms": "initialize", "first call, ms": "first call", "memory, MiB": "MiB"}
    ),
    "imports": Table("import_time.py", {"time, ms": "ms", "memory, MiB": "MiB", "modules": "modules"}),
    "sessions": Table("http_server.py", {"an idle session, KiB": "1000 sessions"}),
}

SUMMARY: Final = {
    "A server on standard input and output, one call at a time": ("stdio_server.py", "one at a time"),
    "The same, 64 calls in flight": ("stdio_server.py", "64 in flight"),
    "A server over HTTP with sessions, 16 connections": ("http_server.py", "JSON, 16"),
    "A server over HTTP without sessions, 16 connections": ("http_stateless.py", "16"),
    "A client on standard input and output, one caller": ("stdio_client.py", "1"),
    "A client over HTTP, 16 callers": ("http_client.py", "JSON, 16"),
}
SHORT: Final = tuple(SUMMARY)[::2]
"""The rows that README shows."""

PLOTS: Final = {
    "speed": (
        "Calls a second of an echo tool, by server",
        "/s",
        {
            "standard input and output, one call at a time": ("stdio_server.py", "one at a time"),
            "standard input and output, 64 in flight": ("stdio_server.py", "64 in flight"),
            "HTTP with sessions, 16 connections": ("http_server.py", "JSON, 16"),
            "HTTP without sessions, 16 connections": ("http_stateless.py", "16"),
        },
    ),
    "processor-time": (
        "Microseconds of the server's processor time for a call",
        " CPU",
        {
            "standard input and output, one call at a time": ("stdio_server.py", "one at a time"),
            "standard input and output, 64 in flight": ("stdio_server.py", "64 in flight"),
            "HTTP with sessions, 16 connections": ("http_server.py", "JSON, 16"),
            "HTTP without sessions, 16 connections": ("http_stateless.py", "16"),
        },
    ),
    "connections": (
        "Calls a second over HTTP, by the number of connections",
        "/s",
        {
            f"{title}, {count} connection{'s' * (count > 1)}": (program, f"{key}{count}")
            for title, program, key in (
                ("with sessions", "http_server.py", "JSON, "),
                ("without sessions", "http_stateless.py", ""),
            )
            for count in (1, 64)
        },
    ),
    "clients": (
        "Calls a second by client, each against the same bare server",
        "/s",
        {
            "standard input and output, one caller": ("stdio_client.py", "1"),
            "standard input and output, 64 callers": ("stdio_client.py", "64"),
            "HTTP, one caller": ("http_client.py", "JSON, 1"),
            "HTTP, 64 callers": ("http_client.py", "JSON, 64"),
        },
    ),
}
"""By the name of the drawing: its title, the figure, and a panel for each load."""


class Records:
    """The figures of one run, in the form in which ``record.py`` stores them."""

    def __init__(self, records: dict[str, Any]) -> None:
        self.about = records["about"]
        self.runs = records["runs"]

    @classmethod
    def read(cls) -> Records:
        """Return those of the repository."""
        return cls(json.loads(RESULTS.read_text(encoding="utf-8")))

    def names(self, program: str, key: str) -> list[str]:
        """Return what has this figure."""
        return [name for name, figures in self.runs[program]["figures"].items() if key in figures]

    def median(self, program: str, name: str, key: str) -> float:
        """Return the median of one figure over the rounds."""
        rounds: list[float] = self.runs[program]["figures"][name][key]
        return statistics.median(rounds)

    def ratio(self, program: str, peer: str, key: str) -> float:
        """Return how many times as fast as a peer ours is: the median of the rounds' ratios."""
        figures: dict[str, dict[str, list[float]]] = self.runs[program]["figures"]
        return statistics.median(mine / its for mine, its in zip(figures[OURS][key], figures[peer][key], strict=True))


def figure_rows(words: str) -> Iterator[list[str]]:
    """Yield the head and the rows of one table: calls a second, and microseconds of processor time a call."""
    records, (program, loads) = Records.read(), TABLES[words]
    yield ["", *loads]
    for name in records.runs[program]["figures"]:
        cells = [_cell(records, program, name, key) for key in loads.values()]
        if any(cells):
            yield [name, *cells]


def _cell(records: Records, program: str, name: str, key: str) -> str:
    figures = records.runs[program]["figures"][name]
    if f"{key}/s" in figures:
        rate, cpu = records.median(program, name, f"{key}/s"), records.median(program, name, f"{key} CPU")
        return f"{_short(rate)} ({_short(cpu)})"
    return _short(records.median(program, name, key)) if key in figures else ""


def speed_rows(words: str) -> Iterator[list[str]]:
    """Yield the head and rows of the summary: our rate, and each peer's with how many times as fast ours is."""
    records = Records.read()
    yield ["Calls a second", "mcpio", *PEERS]
    for title in SHORT if words == "short" else SUMMARY:
        program, load = SUMMARY[title]
        peers = [_beside(records, program, f"{load}/s", names) for names in PEERS.values()]
        yield [title, _short(records.median(program, OURS, f"{load}/s")), *peers]


def _beside(records: Records, program: str, key: str, names: tuple[str, ...]) -> str:
    known = [name for name in names if name in records.names(program, key)]
    if not known:
        return "not measured"
    name = max(known, key=lambda each: records.median(program, each, key))
    return f"{_short(records.median(program, name, key))} ({_times(records.ratio(program, name, key))})"


def slower_rows(_: str) -> Iterator[list[str]]:
    """Yield the loads under which a peer was faster, with how many times as fast it was."""
    records, peers = Records.read(), {name for names in PEERS.values() for name in names}
    for program, loads in TABLES.values():
        for title, load in loads.items():
            for name in records.names(program, f"{load}/s"):
                if name in peers and (ratio := records.ratio(program, name, f"{load}/s")) < 1:
                    yield [f"`{program}`", title, name, f"{1 / ratio:.2f} times as fast as mcpio"]


def missed_rows(_: str) -> Iterator[list[str]]:
    """Yield the targets that were missed."""
    for program, run in Records.read().runs.items():
        for row in run["comparisons"]:
            if row["ratio"] < row["target"]:
                yield [f"`{program}`", row["title"], row["peer"], f"{row['ratio']:.2f}", f"{row['target']:g}"]


def about_rows(_: str) -> Iterator[list[str]]:
    """Yield when, on what and with which versions the figures were measured."""
    about = Records.read().about
    short = "**one short round of each: preliminary figures**; " if about["is_short"] else ""
    yield ["when", f"{short}{about['date']}, with a load of {about['load']} when it began"]
    yield ["machine", f"{about['processors']} processors; {about['python']}; Node {about['node']}"]
    yield ["versions", ", ".join(f"{name} {version}" for name, version in about["versions"].items() if version)]
    needs = about["distributions"]
    yield ["packages that each needs", ", ".join(f"{name} {count}" for name, count in needs.items())]
    yield ["commands", "; ".join(f"`{run['command']}`" for run in Records.read().runs.values())]


def _short(figure: float) -> str:
    if figure >= 1000:
        return f"{float(f'{figure:.3g}'):,.0f}"
    return f"{figure:.0f}" if figure >= 100 else f"{figure:.3g}"


def _times(ratio: float) -> str:
    # Below 1.1 a tenth would hide who is ahead: 0.97 is not "1.0 times".
    decimals = 0 if ratio >= 10 else 1 if ratio >= 1.1 else 2
    return f"{ratio:.{decimals}f} times"


# Plots

WIDTH: Final = 500
"""As wide as a phone shows without making its letters small."""
NAMES: Final = 138
LONGEST: Final = 270
ROW: Final = 22


def draw_plots() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each drawing."""
    records = Records.read()
    for name, (title, figure, panels) in PLOTS.items():
        loads = {heading: (program, f"{load}{figure}") for heading, (program, load) in panels.items()}
        yield name, _draw(records, f"{title} ({'more' if figure == '/s' else 'less'} is better)", loads)


def _draw(records: Records, title: str, panels: dict[str, tuple[str, str]]) -> str:
    body, y = [text(title, 12, 26, bold=True)], 40
    for heading, (program, key) in panels.items():
        body.append(text(heading, 12, y + 18))
        y += 28
        names = [name for name in records.names(program, key) if not name.startswith(("bare", "mcpio, protected"))]
        figures = {name: records.median(program, name, key) for name in names}
        for name, figure in figures.items():
            length = max(2, round(LONGEST * figure / max(figures.values())))
            kind = "ours" if name.startswith(OURS) else "theirs"
            body.append(text(name, NAMES, y + 14, "end"))
            bar = f'x="{NAMES + 8}" y="{y + 3}" width="{length}" height="15"'
            body.append(f'<rect class="{kind}" stroke="none" {bar}/>')
            body.append(text(_short(figure), NAMES + length + 14, y + 14))
            y += ROW
        y += 10
    return picture(title, WIDTH, y + 4, body)
