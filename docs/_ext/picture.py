"""The frame that every drawing of the docs has, and its text.

A drawing is a file of its own, on a card whose colours follow the reader's scheme, so that a forge or a package index
can show it anywhere. ``pictures.py`` puts it into the built pages without the card, in the colours of the page.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

__all__ = ["CARD", "STYLE", "picture", "text"]

STYLE: Final = (
    "<style>svg{color:#24292f}.card{fill:#fff}.ours{fill:#2f81f7}.theirs{fill:currentColor;opacity:.4}"
    "@media (prefers-color-scheme:dark){svg{color:#e6edf3}.card{fill:#0d1117}}</style>"
)
CARD: Final = '<rect class="card" width="100%" height="100%" rx="6"/>'


def picture(title: str, width: int, height: int, body: Iterable[str]) -> str:
    """Return an ``<svg>`` element. Lengths are in SVG's user units, which a browser takes for pixels."""
    return (
        f'<svg role="img" viewBox="0 0 {width} {height}" width="{width}" style="max-width: 100%; height: auto" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>{STYLE}{CARD}'
        '<g fill="none" stroke="currentColor" stroke-width="1.2" font-size="13" font-family="sans-serif">'
        f"{''.join(body)}</g></svg>\n"
    )


def text(words: str, x: int, y: int, anchor: str = "start", *, bold: bool = False) -> str:
    """Return one line of text; ``anchor`` says which part of it stands at ``x``: its start, middle or end."""
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}"{weight} fill="currentColor" stroke="none">{escape(words)}</text>'
    )
