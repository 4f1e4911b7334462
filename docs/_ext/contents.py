"""The tables of contents, made from the lists of links on the pages themselves, which a forge shows too.

Under the heading "All pages" each item is a caption and links; elsewhere, on the pages that ``contents_pages`` in
``conf.py`` names, each item is a link.
"""

from __future__ import annotations

import re
from typing import Final

from sphinx.application import Sphinx

__all__ = ["parts", "toctrees"]

_LINK: Final = re.compile(r"\[([^\]]+)\]\((?!\.\.)([\w/-]+)\.md\)")


def parts(text: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the parts of a page's table of contents: a caption, and the titles and names of pages under it."""
    _, heading, listed = text.partition("\n## All pages\n")
    if heading:
        found = re.findall(r"^\* \*\*(.+?)\*\*: ((?:.|\n  )+)", listed, re.MULTILINE)
        return [(caption, _LINK.findall(links)) for caption, links in found]
    return [("", [link for line in text.splitlines() if line.startswith("* [") for link in _LINK.findall(line)])]


def toctrees(text: str) -> str:
    """Return the directives for the links of a page."""
    return "".join(
        "\n".join(["", "```{toctree}", *([f":caption: {caption}"] if caption else []), ":hidden:", *pages, "```", ""])
        for caption, pages in ((caption, [page for _, page in links]) for caption, links in parts(text))
    )


def add_toctrees(app: Sphinx, docname: str, source: list[str]) -> None:
    """Add the table of contents to a page that has one."""
    if docname in app.config.contents_pages:
        source[0] += toctrees(source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the table of contents."""
    app.add_config_value("contents_pages", [], "env", types=frozenset({list}))
    app.connect("source-read", add_toctrees)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
