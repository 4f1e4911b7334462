"""The index of the site's search."""

from __future__ import annotations

from typing import Any

import pytest
from docutils import nodes
from search_index import Link, Place, adjacent, make_index, places_of, words
from sphinx.addnodes import desc, desc_content, desc_signature


@pytest.mark.parametrize(
    ("text", "stems"),
    [
        ("is_error isError", ["iserror", "error", "iserror", "error"]),
        ("the server's requests", ["server", "request"]),
        ("-32042", ["32042"]),
        ("tools/list_changed", ["toolslistchang", "tool", "list", "chang"]),
        ("JWTVerifier HTTP/2", ["jwtverifi", "jwt", "verifi", "http2", "http", "2"]),
        ("cancels cancelling", ["cancel", "cancel"]),
    ],
)
def test_words_are_stems_of_compounds_and_their_parts(text: str, stems: list[str]) -> None:
    assert words(text) == stems


def test_adjacent_words_are_one_word() -> None:
    assert adjacent("VS Code here") == ["vscode", "codeher"]


def test_places_are_pages_sections_and_names() -> None:
    inner = nodes.section("", nodes.title("", "Inner"), nodes.paragraph("", "First. Second."), ids=["inner"])
    inner += nodes.literal_block("", "code()")
    row = nodes.row("", *(nodes.entry("", nodes.paragraph("", text)) for text in ("-32601", "in a cell")))
    signature = desc_signature("", "class X", ids=["m.X"], fullname="X")
    name = desc("", signature, desc_content("", nodes.paragraph("", "What X is.")), objtype="class")
    tree = nodes.document("", "")  # type: ignore[arg-type]  # settings and a reporter, for parsers
    tree += nodes.section("", nodes.title("", "Top"), row, nodes.comment("", "hidden"), inner, name, ids=["top"])
    assert places_of("p", tree) == [
        Place("p", "", "Top", "page", body="-32601\nin a cell\n", names="-32601\n"),
        Place("p", "inner", "Inner", "section", "Top", "First.", "First. Second.\n", "code()\n"),
        Place("p", "m.X", "X", "class", "Top", "What X is.", "X class X\nWhat X is.\n"),
    ]
    assert places_of("p", nodes.document("", "")) == []  # type: ignore[arg-type]  # as above


def ranked(word: str, *places: Place, links: tuple[Link, ...] = (), **weights: float) -> list[str]:
    """Return the pages that have a word, those with the highest sum of its weights first."""
    made: dict[str, Any] = make_index(places, links, weights)
    _, in_places, in_pages = made["words"][word]
    scores = dict.fromkeys((page for page, _ in made["pages"]), 0)
    for place, score in zip(in_places[::2], in_places[1::2], strict=True):
        scores[made["pages"][made["places"][place][0]][0]] += score
    for page, score in zip(in_pages[::2], in_pages[1::2], strict=True):
        scores[made["pages"][page][0]] += score
    return sorted((page for page, score in scores.items() if score), key=lambda page: -scores[page])


def test_titles_weigh_more_than_first_sentences_and_these_more_than_text() -> None:
    body = Place("body", "", "A", "page", lead="b", body="b. Apple")
    lead = Place("lead", "", "A", "page", lead="Apple", body="Apple")
    title = Place("title", "", "Apples", "page", lead="b", body="b")
    assert ranked("appl", body, lead, title) == ["title", "lead", "body"]


def test_texts_of_links_count_for_where_they_lead() -> None:
    linked, other = (Place(page, "", "A", "page", body="b") for page in ("linked", "other"))
    links = (Link("linked", "", "Apples"), Link("linked", "gone", "pears"), Link("nowhere", "", "plums"))
    assert ranked("appl", linked, other, links=links) == ["linked"]
    assert ranked("pear", linked, other, links=links) == ["linked"]


def test_pages_and_members_weigh_what_their_kind_does() -> None:
    guide, reference = (Place(page, "", "Apples", "page") for page in ("guide", "reference"))
    assert ranked("appl", reference, guide, reference=0.5) == ["guide", "reference"]
    top = Place("member", "", "A", "page")
    member, function = (Place(kind, "x", "apple", kind) for kind in ("method", "function"))
    assert ranked("appl", top, member, function) == ["function", "method"]


def test_exact_names_of_the_reference_weigh_as_those_of_guides() -> None:
    top = Place("reference", "", "A", "page")
    name = Place("reference", "m.OpenDoor", "OpenDoor", "class")
    guide = Place("guide", "", "A", "page", body="OpenDoor")
    assert ranked("opendoor", top, name, guide, reference=0.3) == ["reference", "guide"]
    assert ranked("door", top, name, guide, reference=0.05) == ["guide", "reference"]
