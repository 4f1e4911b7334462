"""Building a docutils table from rows of text or nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from docutils import nodes

Cell = str | Sequence[nodes.Node]


def plain_table(head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> nodes.table:
    """Return a table with one header row."""
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=1) for _ in head]
    group += nodes.thead("", _row(head))
    group += nodes.tbody("", *(_row(row) for row in rows))
    return nodes.table("", group, classes=["colwidths-auto"])


def _row(cells: Sequence[Cell]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", *_inside(cell))) for cell in cells))


def _inside(cell: Cell) -> Sequence[nodes.Node]:
    return [nodes.Text(cell)] if isinstance(cell, str) else cell
