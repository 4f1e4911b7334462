"""Drawings in the built pages: put into the page itself, in its colours, and without the card of the file.

A file that is shown as an image follows the system's scheme; the page's own may be another.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from docutils import nodes
from picture import CARD, STYLE
from sphinx.application import Sphinx

__all__ = ["inlined"]


def inlined(svg: str, alternative: str) -> str:
    """Return the HTML for a drawing: narrow screens scroll it, and a reader of screens hears ``alternative``."""
    bare = re.sub(r"<title>.*?</title>", "", svg.replace(STYLE, "").replace(CARD, "").strip())
    labelled = bare.replace("<svg ", f'<svg aria-label="{escape(alternative)}" ', 1)
    return f'<div class="picture">{labelled}</div>'


def show_drawings(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace images of drawings by the drawings."""
    if app.builder.format != "html":
        return
    for image in list(doctree.findall(nodes.image)):
        file = Path(app.srcdir, image["uri"])
        if file.suffix == ".svg" and CARD in (svg := file.read_text(encoding="utf-8")):
            image.replace_self(nodes.raw("", inlined(svg, image.get("alt", "")), format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the replacement."""
    app.connect("doctree-resolved", show_drawings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
