"""Tables that explain names: on a phone the cells of a row stand below each other, as ``_static/mcpio.css`` says.

A column "Meaning" holds sentences. Beside two columns of names it would be too narrow to be read.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx


def mark_tables(app: Sphinx, doctree: nodes.document) -> None:
    """Give these tables the class that the style sheet knows."""
    for head in doctree.findall(nodes.thead):
        if "Meaning" in [cell.astext() for cell in head.findall(nodes.entry)]:
            head.parent.parent["classes"].append("stacked")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the mark."""
    app.connect("doctree-read", mark_tables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
