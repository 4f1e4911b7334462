"""Plain Markdown beside the pages of a built site, for programs that read documentation.

``llms.txt`` lists the guides with what each covers, as https://llmstxt.org describes it; ``llms-full.txt`` holds all of
them; and ``PAGE.md`` lies beside each ``PAGE.html``. The pages show everything they are about, so these are copies.
Sphinx makes only the reference, so ``llms.txt`` links to its HTML.
"""

from __future__ import annotations

import re
from pathlib import Path

from contents import parts
from sphinx.application import Sphinx

__all__ = ["first_sentence", "full_text", "overview"]


def overview(docs: Path, title: str) -> str:
    """Return ``llms.txt`` for the folder with the pages."""
    index = (docs / "index.md").read_text(encoding="utf-8")
    lines = [
        f"# {title}",
        "",
        f"> {first_sentence(index)}",
        "",
        "All of the guides in one file: [llms-full.txt](llms-full.txt)",
    ]
    _, _, listed = index.partition("\n## All pages\n")
    items = re.sub(r"^\* ", "- ", re.sub(r"^#(## .+)$", r"\1", listed, flags=re.MULTILINE), flags=re.MULTILINE)
    lines += [re.sub(r"\((reference/[\w/]+)\.md\)", r"(\1.html)", re.sub(r"\n  +", " ", items))]
    return "\n".join(lines)


def full_text(docs: Path) -> str:
    """Return ``llms-full.txt``: all guides, in the order of the table of contents."""
    index = (docs / "index.md").read_text(encoding="utf-8")
    pages = ["index", *(page for _, links in parts(index) for _, page in links if not page.startswith("reference/"))]
    return (
        "\n\n".join((docs / f"{page}.md").read_text(encoding="utf-8").strip() for page in dict.fromkeys(pages)) + "\n"
    )


def first_sentence(text: str) -> str:
    """Return the first sentence of a page below its title, without links."""
    paragraph = next((part for part in text.split("\n\n")[1:] if re.match(r"[\w`*\[]", part)), "")
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
    return re.split(r"(?<=[.:]) (?=[A-Z`])", plain, maxsplit=1)[0].rstrip(":")


def write_plain_pages(app: Sphinx, error: Exception | None) -> None:
    """Write the files beside the HTML."""
    if error is not None or app.builder.name != "html":
        return
    docs, site = Path(app.srcdir), Path(app.outdir)
    (site / "llms.txt").write_text(overview(docs, app.config.html_title), encoding="utf-8")
    (site / "llms-full.txt").write_text(full_text(docs), encoding="utf-8")
    for page in app.env.found_docs:
        if not page.startswith("reference/"):
            (site / f"{page}.md").write_bytes(Path(app.env.doc2path(page)).read_bytes())


def show_change_log(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace the page ``changes`` by CHANGELOG.md, which is outside the folder of the docs."""
    if docname == "changes":
        changes = Path(app.srcdir).parent / "CHANGELOG.md"
        app.env.note_dependency(str(changes))
        source[0] = changes.read_text(encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what is written after a build, and the change log."""
    app.connect("build-finished", write_plain_pages)
    app.connect("source-read", show_change_log)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
