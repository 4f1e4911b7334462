"""Drawing who sends what to whom: lifelines side by side, arrows between them, notes across.

The drawings are narrow, so that a phone shows them whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import attrs
from picture import picture, text

__all__ = ["Arrow", "Note", "Row", "draw_sequence"]

WIDTH: Final = 420
MARGIN: Final = 50
"""From the edge to the first lifeline. All lengths are in SVG's user units, which a browser takes for pixels."""
ROW: Final = 44
LINE: Final = 16


@attrs.frozen
class Arrow:
    """What one side sends to another: lines of text above the arrow. One that ``breaks`` does not arrive."""

    source: str
    goal: str
    lines: tuple[str, ...]
    breaks: bool = False


@attrs.frozen
class Note:
    """A line of text across the lifelines, for what happens between two arrows."""

    words: str


Row: TypeAlias = Arrow | Note


def draw_sequence(sides: Sequence[str], rows: Sequence[Row], title: str, *, width: int = WIDTH) -> str:
    """Return an ``<svg>`` element with a lifeline for each of ``sides``."""
    gap = (width - 2 * MARGIN) // (len(sides) - 1)
    lifelines = {side: MARGIN + gap * number for number, side in enumerate(sides)}
    body, y = [], 44
    for row in rows:
        if isinstance(row, Note):
            y += 26
            body.append(f'<g font-style="italic">{text(row.words, width // 2, y, "middle")}</g>')
        else:
            y += 20 + LINE * len(row.lines)
            body += _arrow(row, lifelines[row.source], lifelines[row.goal], y)
    height = y + 22
    dashes = [_dashes(x, 34, height) for x in lifelines.values()]
    return picture(title, width, height, [*map(_head, lifelines, lifelines.values()), *dashes, *body])


def _head(side: str, x: int) -> str:
    width = 90
    return f'<rect x="{x - width // 2}" y="6" width="{width}" height="28" rx="7"/>' + text(
        side, x, 25, "middle", bold=True
    )


def _dashes(x: int, top: int, bottom: int) -> str:
    return f'<path stroke-dasharray="3 4" stroke-opacity=".6" d="M{x} {top} V{bottom}"/>'


def _arrow(arrow: Arrow, start: int, end: int, y: int) -> list[str]:
    back = 8 if start > end else -8
    if arrow.breaks:
        end = (start + 3 * end) // 4
        head = f"M{end - 5} {y - 5} L{end + 5} {y + 5} M{end - 5} {y + 5} L{end + 5} {y - 5}"
    else:
        head = f"M{end + back} {y - 5} L{end} {y} L{end + back} {y + 5}"
    middle, first = (start + end) // 2, y - 7 - LINE * (len(arrow.lines) - 1)
    lines = [text(line, middle, first + LINE * number, "middle") for number, line in enumerate(arrow.lines)]
    return [f'<path d="M{start} {y} H{end} {head}"/>', *lines]
