"""Drawing who sends what to whom: lifelines side by side, arrows between them, notes across.

The drawings are narrow, so that a phone shows them whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

import attrs
from picture import picture, text

__all__ = ["Arrow", "Note", "Row", "draw_sequence"]

WIDTH: Final = 420
MARGIN: Final = 60
"""From the edge to the first lifeline. All lengths are in SVG's user units, which a browser takes for pixels."""
LINE: Final = 16


@attrs.frozen
class Arrow:
    """What one side sends to another: lines of text above an arrow."""

    source: str
    goal: str
    lines: tuple[str, ...]


@attrs.frozen
class Note:
    """A line of text across the lifelines, for what happens between two arrows."""

    words: str


Row: TypeAlias = Arrow | Note


def draw_sequence(sides: Sequence[str], rows: Iterable[Row], title: str, width: int = WIDTH) -> str:
    """Return an ``<svg>`` element with a lifeline for each of ``sides``, whose names may have several lines."""
    gap = (width - 2 * MARGIN) // (len(sides) - 1)
    lifelines = {side: MARGIN + gap * number for number, side in enumerate(sides)}
    top = 14 + LINE * max(side.count("\n") + 1 for side in sides)
    body, y = [_head(side, x, top) for side, x in lifelines.items()], top + 10
    hidden: dict[int, list[int]] = {x: [] for x in lifelines.values()}
    for row in rows:
        lines = (row.words,) if isinstance(row, Note) else row.lines
        ends = [0, width] if isinstance(row, Note) else sorted([lifelines[row.source], lifelines[row.goal]])
        height = LINE * len(lines)
        y += 10 + height if isinstance(row, Note) else 20 + height
        last = y if isinstance(row, Note) else y - 7
        words = [text(line, sum(ends) // 2, last - LINE * up, "middle") for up, line in enumerate(reversed(lines))]
        body += _italic(words) if isinstance(row, Note) else [*words, _arrow(lifelines, row, y)]
        for x in list(lifelines.values())[1:-1]:
            if ends[0] < x < ends[1]:  # a lifeline between them would strike the text through
                hidden[x] += [last - height + 2, last + 5]
    height = y + 22
    body += [_dashes(x, start, end) for x, gaps in hidden.items() for start, end in _pieces([top, *gaps, height])]
    return picture(title, width, height, body)


def _pieces(ends: Sequence[int]) -> Iterable[tuple[int, int]]:
    return list(pairwise(ends))[::2]


def _head(side: str, x: int, bottom: int) -> str:
    width, lines = 2 * MARGIN - 6, side.split("\n")
    first = (bottom + 6) // 2 + 5 - LINE * (len(lines) - 1) // 2
    words = [text(line, x, first + LINE * number, "middle", bold=True) for number, line in enumerate(lines)]
    return f'<rect x="{x - width // 2}" y="4" width="{width}" height="{bottom - 4}" rx="7"/>{"".join(words)}'


def _dashes(x: int, top: int, bottom: int) -> str:
    return f'<path stroke-dasharray="3 4" stroke-opacity=".6" d="M{x} {top} V{bottom}"/>'


def _italic(words: Sequence[str]) -> list[str]:
    return [f'<g font-style="italic">{"".join(words)}</g>']


def _arrow(lifelines: dict[str, int], arrow: Arrow, y: int) -> str:
    start, end = lifelines[arrow.source], lifelines[arrow.goal]
    back = 8 if start > end else -8
    return f'<path d="M{start} {y} H{end} M{end + back} {y - 5} L{end} {y} L{end + back} {y + 5}"/>'
