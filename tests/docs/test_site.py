"""What a build writes beside its pages: plain Markdown for programs, and a directory for each release."""

from __future__ import annotations

import json
from pathlib import Path

import plain_pages
import pytest
import release_site
from contents import parts
from tree import ROOT, settings

DOCS = ROOT / "docs"
INDEX = (DOCS / "index.md").read_text(encoding="utf-8")


def test_overview_lists_every_page_of_the_contents_with_a_sentence() -> None:
    text = plain_pages.overview(DOCS, "mcpio 1.0")
    assert text.startswith("# mcpio 1.0\n\n> `mcpio` is the Model Context Protocol")
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    assert len(lines) == sum(len(links) for _, links in parts(INDEX))
    assert [line for line in lines if not line.partition("): ")[2]] == []
    assert max(map(len, lines)) < 400


def test_full_text_holds_every_guide_and_no_page_of_the_reference() -> None:
    text = plain_pages.full_text(DOCS)
    assert "{public-names}" not in text
    for _, links in parts(INDEX):
        for _, page in links:
            head = (DOCS / f"{page}.md").read_text(encoding="utf-8").partition("\n")[0]
            assert (f"\n\n{head}\n" in f"\n\n{text}") is not page.startswith("reference/")


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("# T\n\nOne [link](a.md), in `code`. Two.\n", "One link, in `code`."),
        ("# T\n\n![A picture](a.svg)\n\nAfter it:\n\n```sh\n```\n", "After it"),
        ("# T\n", ""),
    ],
)
def test_first_sentence_is_plain(page: str, sentence: str) -> None:
    assert plain_pages.first_sentence(page) == sentence


def test_every_guide_is_in_the_table_of_contents() -> None:
    listed = {page for _, links in parts(INDEX) for _, page in links}
    assert {page.stem for page in DOCS.glob("*.md")} - {"index"} == {page for page in listed if "/" not in page}


def test_names_in_the_table_of_contents_are_those_of_the_pages() -> None:
    links = [link for _, found in parts(INDEX) for link in found if "/" not in link[1]]
    titles = [(DOCS / f"{page}.md").read_text(encoding="utf-8").partition("\n")[0] for _, page in links]
    assert [f"# {name}" for name, _ in links] == titles


def test_site_has_a_directory_for_each_release_and_the_newest_as_latest(tmp_path: Path) -> None:
    built, whole = tmp_path / "built", tmp_path / "site"
    for release in ("0.10.0", "0.9.0", "0.10.0rc1"):
        built.mkdir(exist_ok=True)
        (built / "index.html").write_text(release)
        (built / f"only-in-{release}.html").write_text("")
        release_site.add_release(built, whole, release)
    assert json.loads((whole / "versions.json").read_text()) == ["0.10.0", "0.10.0rc1", "0.9.0"]
    assert (whole / "latest" / "index.html").read_text() == "0.10.0"
    assert (whole / "0.9.0" / "index.html").read_text() == "0.9.0"
    assert "url=latest/" in (whole / "index.html").read_text()


def test_rebuilt_release_replaces_its_directory(tmp_path: Path) -> None:
    for page in ("old", "new"):
        built = tmp_path / page
        built.mkdir()
        (built / "index.html").write_text("")
        (built / f"{page}.html").write_text("")
        release_site.add_release(built, tmp_path / "site", "1.0")
    assert sorted(path.name for path in (tmp_path / "site" / "1.0").iterdir()) == ["index.html", "new.html"]


def test_links_of_the_project_lead_to_pages_of_this_checkout() -> None:
    urls = settings()["project"]["urls"]
    home = urls["Repository"]
    for name, url in urls.items():
        assert url.startswith(home), name
        _, blob, path = url.partition("/blob/main/")
        assert not blob or (ROOT / path).is_file(), name
