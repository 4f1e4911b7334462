"""Pictures in the built pages, in the colour scheme of the page: a file follows the system's, which may be another.

A drawing is put into the page itself, in its colours, and without the card of the file. A photograph ``name.png`` that
has a ``name-dark.png`` beside it is replaced by that one in the dark scheme.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path, PurePosixPath

from docutils import nodes
from picture import CARD, STYLE
from sphinx.application import Sphinx

__all__ = ["inlined", "show_dark", "show_drawings"]


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


def show_dark(app: Sphinx, doctree: nodes.document) -> None:
    """Add the dark variant of each photograph that has one, before Sphinx collects the files of the images."""
    for image in list(doctree.findall(nodes.image)):
        path = PurePosixPath(image["uri"])
        dark = path.with_name(f"{path.stem}-dark{path.suffix}")
        if Path(app.srcdir, dark).is_file():
            image["classes"].append("only-light")  # classes of the theme
            other = nodes.image(uri=str(dark), alt=image.get("alt", ""), classes=["only-dark"])
            image.parent.insert(image.parent.index(image) + 1, other)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the replacements."""
    app.connect("doctree-read", show_dark, priority=400)
    app.connect("doctree-resolved", show_drawings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
