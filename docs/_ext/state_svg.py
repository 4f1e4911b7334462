"""Drawing a table of states and transitions as SVG, with nothing but strings.

Two shapes are enough. Where one state leads to several final ones they stand beside it (a star); otherwise the states
stand in a column in their order, an arrow leads from each to the next, and what skips a state runs along a line at the
side that all transitions with the same label and goal share.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from picture import picture

BOX = 250
"""Width of a state's box. All lengths are in SVG's user units, which a browser takes for pixels."""
LINE = 17
GAP = 58
LANE = 190
MARGIN = 12
_CHARACTERS = {"box": 34, "lane": 25, "arrow": 44}
"""How many characters of a label fit on a line, by where it stands."""


class Transition(NamedTuple):
    """One row of a table."""

    source: str
    label: str
    goal: str


class _Box(NamedTuple):
    name: str
    lines: list[str]
    x: int
    y: int
    height: int

    @property
    def middle(self) -> int:
        return self.y + self.height // 2


def draw(states: Sequence[str], transitions: Iterable[Transition], title: str) -> str:
    """Return an ``<svg>`` element. ``states`` are in the order to draw, the first is where everything begins."""
    rows = list(transitions)
    stays = {state: [row.label for row in rows if row.source == row.goal == state] for state in states}
    moves: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.source != row.goal:
            moves.setdefault((row.source, row.goal), []).append(row.label)
    if len({source for source, _ in moves}) == 1:
        body, width, height = _star(states, stays, moves)
    else:
        body, width, height = _column(states, stays, moves)
    return picture(title, width, height, body)


def _star(
    states: Sequence[str], stays: Mapping[str, list[str]], moves: Mapping[tuple[str, str], list[str]]
) -> tuple[list[str], int, int]:
    goals = _stack(list(states[1:]), stays, x=MARGIN + BOX + 210, gap=20)
    height = goals[-1].y + goals[-1].height + MARGIN
    first = _box(states[0], stays, MARGIN, 0)
    first = first._replace(y=(height - first.height) // 2)
    body = [_drawn_box(first)]
    for goal in goals:
        body.append(_drawn_box(goal))
        start = first.x + BOX
        bend = start + 24
        body.append(f'<path d="M{start} {first.middle} H{bend} V{goal.middle} H{goal.x}"/>')
        body.append(_head(goal.x, goal.middle, "right"))
        body += _text(_wrapped(", ".join(moves[first.name, goal.name]), 25), bend + 10, goal.middle - 6, above=True)
    return body, goals[0].x + BOX + MARGIN, height


def _column(
    states: Sequence[str], stays: Mapping[str, list[str]], moves: Mapping[tuple[str, str], list[str]]
) -> tuple[list[str], int, int]:
    boxes = {box.name: box for box in _stack(states, stays, x=MARGIN, gap=GAP)}
    body = [_drawn_box(box) for box in boxes.values()]
    lanes: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    steps = set(itertools.pairwise(states))
    for (source, goal), labels in moves.items():
        shared = [label for label in labels if _is_shared(label, goal, moves)]
        if own := [label for label in labels if label not in shared]:
            if (source, goal) in steps:
                body += _step(boxes[source], boxes[goal], own)
            else:
                lanes.setdefault((goal, tuple(own)), []).append(source)
        if shared:
            lanes.setdefault((goal, tuple(shared)), []).append(source)
    right = MARGIN + BOX
    for number, ((goal, together), sources) in enumerate(lanes.items()):
        line = right + 26 + number * LANE
        body += _lane([boxes[source] for source in sources], boxes[goal], line, 8 * number, ", ".join(together))
    last = boxes[states[-1]]
    return body, right + 20 + max(1, len(lanes)) * LANE, last.y + last.height + MARGIN


def _is_shared(label: str, goal: str, moves: Mapping[tuple[str, str], list[str]]) -> bool:
    """Tell whether the same input leads to the same state from elsewhere too."""
    return sum(label in labels for (_, other), labels in moves.items() if other == goal) > 1


def _step(box: _Box, below: _Box, labels: list[str]) -> list[str]:
    x, end = box.x + 30, box.y + box.height
    lines = _wrapped(", ".join(labels), _CHARACTERS["arrow"])
    middle = (end + below.y) // 2 + 4 - (len(lines) - 1) * LINE // 2
    return [
        f'<path d="M{x} {end} V{below.y}"/>',
        _head(x, below.y, "down"),
        *_text(lines, x + 10, middle),
    ]


def _lane(sources: list[_Box], goal: _Box, line: int, shift: int, label: str) -> list[str]:
    """Draw one line at the side: out of each source, along ``line``, into the goal ``shift`` below its middle."""
    edge = goal.x + BOX
    entry = goal.y + 14 + shift
    exits = [source.y + source.height - 12 - shift for source in sources]
    top, bottom = min([*exits, entry]), max([*exits, entry])
    parts = [f'<path d="M{edge} {y} H{line}"/>' for y in exits]
    parts += [f'<path d="M{line} {top} V{bottom} M{line} {entry} H{edge}"/>', _head(edge, entry, "left")]
    lines = _wrapped(label, _CHARACTERS["lane"])
    return [*parts, *_text(lines, line + 8, (top + bottom) // 2 - (len(lines) - 1) * LINE // 2)]


def _stack(states: Sequence[str], stays: Mapping[str, list[str]], *, x: int, gap: int) -> list[_Box]:
    boxes: list[_Box] = []
    y = MARGIN
    for state in states:
        boxes.append(_box(state, stays, x, y))
        y += boxes[-1].height + gap
    return boxes


def _box(state: str, stays: Mapping[str, list[str]], x: int, y: int) -> _Box:
    lines = _wrapped("stays: " + ", ".join(stays[state]), _CHARACTERS["box"]) if stays[state] else []
    return _Box(state, lines, x, y, 34 + LINE * len(lines) + (6 if lines else 0))


def _drawn_box(box: _Box) -> str:
    name = f'<text x="{box.x + 14}" y="{box.y + 22}" font-weight="bold" fill="currentColor" stroke="none">'
    stays = "".join(_text(box.lines, box.x + 14, box.y + 42))
    return (
        f'<rect x="{box.x}" y="{box.y}" width="{BOX}" height="{box.height}" rx="7"/>'
        f"{name}{escape(box.name)}</text>{stays}"
    )


def _head(x: int, y: int, towards: str) -> str:
    points = {
        "down": f"M{x - 5} {y - 8} L{x} {y} L{x + 5} {y - 8}",
        "right": f"M{x - 8} {y - 5} L{x} {y} L{x - 8} {y + 5}",
        "left": f"M{x + 8} {y - 5} L{x} {y} L{x + 8} {y + 5}",
    }
    return f'<path d="{points[towards]}"/>'


def _text(lines: list[str], x: int, y: int, *, above: bool = False) -> list[str]:
    """Draw lines downwards from ``y``; with ``above``, so that the last stands there."""
    start = y - (len(lines) - 1) * LINE if above else y
    return [
        f'<text x="{x}" y="{start + number * LINE}" fill="currentColor" stroke="none">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]


def _wrapped(text: str, characters: int) -> list[str]:
    """Break a list of labels into lines, at commas where it can."""
    lines: list[str] = []
    for item in text.split(", "):
        if lines and len(lines[-1]) + 2 + len(item) <= characters:
            lines[-1] += ", " + item
        else:
            if lines:
                lines[-1] += ","
            lines.append(item)
    return lines
