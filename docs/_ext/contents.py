"""The tables of contents, made from the lists of links on the pages themselves, which a forge shows too.

Each item of a list begins with the link of a page. Under the heading "All pages" the lists have headings, which are the
captions; the other pages that ``contents_pages`` in ``conf.py`` names have one list.

For each page the theme asks Sphinx for the tree of all titles. Sphinx would copy the names of all sections, and of all
that the reference documents, only to drop them again: for that call each page's own contents are its title alone.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

__all__ = ["parts", "toctrees"]

_ITEM: Final = re.compile(r"^\* \[([^\]]+)\]\((?!\.\.)([\w/-]+)\.md\)", re.MULTILINE)


def parts(text: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the parts of a page's table of contents: a caption, and the titles and names of pages under it."""
    _, heading, listed = text.partition("\n## All pages\n")
    if not heading:
        return [("", _ITEM.findall(text))]
    _, *captioned = re.split(r"^### (.+)$", listed, flags=re.MULTILINE)
    return [(caption, _ITEM.findall(items)) for caption, items in zip(captioned[::2], captioned[1::2], strict=True)]


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


def collect_titles(app: Sphinx, env: BuildEnvironment, titles: dict[str, nodes.bullet_list]) -> None:
    """Copy the title of each page, and the directives for the pages below it."""
    for page, contents in env.tocs.items():
        titles[page] = contents.deepcopy()
        for item in titles[page].children:
            if len(item.children) > 1 and isinstance(below := item.children[1], nodes.Element):
                below[:] = [*item.findall(addnodes.toctree)]


def use_titles(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object, titles: dict[str, nodes.bullet_list]
) -> None:
    """Answer the theme's call for the titles of all pages from ``titles``."""
    if (toctree := context.get("toctree")) is None:
        return

    def of_titles(**options: Any) -> str:
        whole = app.env.tocs
        if options.get("titles_only"):
            app.env.tocs = titles
        try:
            tree: str = toctree(**options)
            return tree
        finally:
            app.env.tocs = whole

    context["toctree"] = of_titles


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the table of contents."""
    app.add_config_value("contents_pages", [], "env", types=frozenset({list}))
    app.connect("source-read", add_toctrees)
    titles: dict[str, nodes.bullet_list] = {}
    app.connect("env-check-consistency", partial(collect_titles, titles=titles))
    app.connect("html-page-context", partial(use_titles, titles=titles), 400)  # before the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}
