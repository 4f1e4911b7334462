"""Drawing a table of states and transitions as SVG, with nothing but strings.

Where one state leads to several final ones, these stand beside it (a star). Otherwise a layout says where each state
stands and along which line each transition runs; the words come from the table. A transition that several states share
is one line, or leaves a frame around them. A transition that has no line raises ValueError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import attrs
from picture import picture, text

__all__ = ["Edge", "Layout", "Transition", "draw"]

LINE = 17
"""Height of a line of text. All lengths are in SVG's user units, which a browser takes for pixels."""
LETTER = 7
MARGIN = 10
BOX = 150
HEIGHT = 34
STAR_GAP = 190

Point: TypeAlias = tuple[int, int]


class Transition(NamedTuple):
    """One row of a table."""

    source: str
    label: str
    goal: str


@attrs.frozen
class Edge:
    """One arrow: from states that share transitions, to their goal."""

    sources: tuple[str, ...]
    goal: str
    lines: tuple[tuple[Point, ...], ...]
    """Lines through these points. The first one ends at the goal, with an arrowhead."""
    label: Point
    """Where the first line of its text begins."""
    letters: int
    """How many letters of its text fit on a line."""


@attrs.frozen
class Layout:
    """Where the states stand, with their left, top and width, and how the arrows run: those of most states first."""

    width: int
    places: Mapping[str, tuple[int, int, int]]
    edges: tuple[Edge, ...]
    frames: tuple[tuple[int, int, int, int], ...] = ()
    """Left, top, width and height of frames around states that share a transition."""


def draw(states: Sequence[str], transitions: Iterable[Transition], title: str, layout: Layout | None = None) -> str:
    """Return an ``<svg>`` element. Without a layout it is a star around the first of ``states``."""
    rows = list(transitions)
    layout = layout or _star(states, rows)
    undrawn = {row for row in rows if row.source != row.goal}
    body = [f'<rect x="{x}" y="{y}" width="{w}" height="{h}" stroke-dasharray="6 5"/>' for x, y, w, h in layout.frames]
    bottom = max((y + h for _, y, _, h in layout.frames), default=0)
    for state in states:
        stays = [row.label for row in rows if row.source == row.goal == state]
        lower, drawn = _box(state, stays, *layout.places[state])
        bottom = max(bottom, lower)
        body += drawn
    for edge in layout.edges:
        mine = [row for row in rows if row in undrawn and row.source == edge.sources[0] and row.goal == edge.goal]
        shared = [row.label for row in mine if undrawn >= {row._replace(source=source) for source in edge.sources}]
        undrawn -= {Transition(source, label, edge.goal) for source in edge.sources for label in shared}
        body += _arrow(edge, shared)
    if undrawn:
        raise ValueError(f"the layout has no line for {sorted(undrawn)}")
    return picture(title, layout.width, bottom + MARGIN, body)


def _star(states: Sequence[str], rows: Sequence[Transition]) -> Layout:
    first, goals = states[0], states[1:]
    step, right = HEIGHT + 20, MARGIN + BOX + STAR_GAP
    middle = MARGIN + (step * (len(goals) - 1) + HEIGHT) // 2
    places = {first: (MARGIN, middle - HEIGHT // 2, BOX)}
    edges = []
    for number, goal in enumerate(goals):
        y, start = MARGIN + step * number + HEIGHT // 2, MARGIN + BOX
        places[goal] = (right, y - HEIGHT // 2, BOX)
        bend = start + 20
        line = ((start, middle), (bend, middle), (bend, y), (right, y))
        edges.append(Edge((first,), goal, (line,), (bend + 8, y - 6), STAR_GAP // LETTER))
    return Layout(right + BOX + MARGIN, places, tuple(edges))


def _box(state: str, stays: Sequence[str], x: int, y: int, width: int) -> tuple[int, list[str]]:
    """Return where a state's box ends, and the box."""
    lines = _wrapped("stays: " + ", ".join(stays), (width - 20) // LETTER) if stays else []
    height = HEIGHT + (LINE * len(lines) + 4 if lines else 0)
    words = [text(line, x + 12, y + 41 + LINE * number) for number, line in enumerate(lines)]
    return y + height, [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="7"/>',
        text(state, x + 12, y + 22, bold=True),
        *words,
    ]


def _arrow(edge: Edge, labels: Sequence[str]) -> list[str]:
    paths = " ".join("M" + " L".join(f"{x} {y}" for x, y in line) for line in edge.lines)
    *_, (before, end) = pairwise(edge.lines[0])
    x, y = edge.label
    lines = _wrapped(", ".join(labels), edge.letters)
    return [
        f'<path d="{paths} {_head(before, end)}"/>',
        *(text(line, x, y + LINE * number) for number, line in enumerate(lines)),
    ]


def _head(before: Point, end: Point) -> str:
    (x, y), back = end, 8
    if before[0] == x:
        back = -back if before[1] < y else back
        return f"M{x - 5} {y + back} L{x} {y} L{x + 5} {y + back}"
    back = -back if before[0] < x else back
    return f"M{x + back} {y - 5} L{x} {y} L{x + back} {y + 5}"


def _wrapped(words: str, letters: int) -> list[str]:
    """Break a text into lines, at commas where it can."""
    lines: list[str] = []
    for item in words.split(", "):
        joined = f"{lines[-1]}, {item}" if lines else item
        if lines and len(joined) <= letters:
            lines[-1] = joined
            continue
        if lines:
            lines[-1] += ","
        lines.append("")
        for word in item.split():
            if lines[-1] and len(lines[-1]) + 1 + len(word) > letters:
                lines.append(word)
            else:
                lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
