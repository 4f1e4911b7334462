"""Every page reads whole on a forge: relative links lead somewhere, and no markup is left that only Sphinx knows."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from tree import ROOT, project_files

PAGES = [path for path in project_files() if path.suffix == ".md" and "templates" not in str(path).lower()]
REFERENCE = ROOT / "docs" / "reference"
"""Pages that a forge shows without their names: they say so, and directives make them when the site is built."""

LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^()\s]*(?:\([^()\s]*\))?[^()\s]*)\)")
BLOCK = re.compile(r"^( *)(`{3,})(?!\{)[^`]*?\n.*?^\1\2$", re.MULTILINE | re.DOTALL)
RUBBLE = {
    "a directive": re.compile(r"^ *(?:`{3,}|:{3,})\{\w", re.MULTILINE),
    "a role": re.compile(r"\{[\w:-]+\}`"),
    "a label": re.compile(r"^\([\w-]+\)=$", re.MULTILINE),
    "a comment of MyST": re.compile(r"^% ", re.MULTILINE),
}


@cache
def prose(page: Path) -> str:
    """Return the text of a page without its blocks of code, and with a word in place of each span of code."""
    text = re.sub(BLOCK, "", page.read_text(encoding="utf-8"))
    return re.sub(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", r"\1code\1", text, flags=re.DOTALL)


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors that a forge gives the headings of a page."""
    text = re.sub(BLOCK, "", page.read_text(encoding="utf-8"))
    titles = [re.sub(r"\]\([^)]*\)", "]", title) for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
    slugs = [re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles]
    return {
        slug if slugs[:at].count(slug) == 0 else f"{slug}-{slugs[:at].count(slug)}" for at, slug in enumerate(slugs)
    }


def fault(page: Path, link: str) -> str | None:
    """Return what is wrong with a link, or ``None``. Other sites are not asked."""
    if re.match(r"[a-z]+:", link):
        return None
    path, _, anchor = link.partition("#")
    goal = (page.parent / path).resolve() if path else page
    if path.startswith("/") or not goal.is_relative_to(ROOT) or not goal.exists():
        return f"{link}: no such file"
    if anchor and (goal.suffix != ".md" or anchor not in anchors(goal)):
        return f"{link}: no such heading"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    assert [found for link in LINK.findall(prose(page)) if (found := fault(page, link))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_has_no_markup_that_a_forge_shows_as_text(page: Path) -> None:
    found = {kind for kind, pattern in RUBBLE.items() if pattern.search(prose(page))}
    assert found <= ({"a directive"} if page.parent == REFERENCE else set())


def test_faults_of_links_are_found(tmp_path: Path) -> None:
    page = ROOT / "docs" / "http.md"
    assert fault(page, "nowhere.md") == "nowhere.md: no such file"
    assert fault(page, "http-durable") == "http-durable: no such file"
    assert fault(page, "../README.md#nothing") == "../README.md#nothing: no such heading"
    assert fault(page, "#nothing") == "#nothing: no such heading"
    assert fault(page, "../README.md#what-it-promises") is None
    assert fault(page, "https://example.com/nowhere") is None
    (tmp_path / "page.md").write_text("# A `b` c\n\n```sh\n# no\n```\n## A b c\n\n{class}`x` [`a`](b.md#c) `[x](y)`\n")
    assert anchors(page := tmp_path / "page.md") == {"a-b-c", "a-b-c-1"}
    assert LINK.findall(prose(tmp_path / "page.md")) == ["b.md#c"]
    assert RUBBLE["a role"].search(prose(tmp_path / "page.md"))
