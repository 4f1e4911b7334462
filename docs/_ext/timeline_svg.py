"""Drawing the revisions of the protocol as a timeline in two eras, with what each brought and took away."""

from __future__ import annotations

from typing import Final

from picture import picture, text

from mcpio.revisions import HANDSHAKE_REVISIONS, STATELESS_REVISIONS, Revision

__all__ = ["CHANGES", "draw_timeline"]

WIDTH: Final = 560
LINE: Final = 18
CHANGES: Final = {
    "2024-11-05": ["tools, resources, prompts, sampling, roots; stdio, HTTP with a stream of events"],
    "2025-03-26": ["+ Streamable HTTP, authorization, audio, annotations of tools, batches"],
    "2025-06-18": ["+ structured results, elicitation, links to resources", "\u2212 batches"],
    "2025-11-25": ["+ tasks, icons, sampling with tools, addresses to visit"],
    "2026-07-28": [
        "+ requests without a session, server/discover, subscriptions/listen, caching",
        "\u2212 the handshake, sessions, ping; questions of the server are results now",
    ],
}
"""In few words; the tables of the page have every method and member."""


def draw_timeline() -> str:
    """Return an ``<svg>`` element."""
    title = "The five revisions of the protocol, in two eras"
    body, y = [text(title, 12, 26, bold=True)], 44
    eras = {"with a handshake, and sessions": HANDSHAKE_REVISIONS, "stateless": STATELESS_REVISIONS}
    for era, revisions in eras.items():
        body.append(text(era, 12, y + 14))
        y += 26
        for revision in revisions:
            lines = _lines(revision)
            end = y + LINE * len(lines) + 14
            body.append(f'<path d="M24 {y} V{end}"/><circle class="ours" cx="24" cy="{y + 10}" r="6"/>')
            body.append(text(str(revision), 40, y + 15, bold=True))
            body += [text(line, 40, y + 15 + LINE * number) for number, line in enumerate(lines) if number]
            y = end
        y += 10
    return picture(title, WIDTH, y, body)


def _lines(revision: Revision) -> list[str]:
    return [str(revision), *CHANGES[str(revision)]]
