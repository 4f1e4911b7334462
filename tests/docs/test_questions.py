"""The page of questions: short answers, whose code is that of the pages they lead to."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from tree import ROOT

import mcpio
from mcpio.app.client import Client
from mcpio.app.context import Context

DOCS = ROOT / "docs"
ENTRY = re.compile(r"^\* \[(.+)\]\(([\w/-]+\.md)(?:#[\w-]+)?\)\\\n((?:  .+\n)+)", re.MULTILINE)


class Entry(NamedTuple):
    question: str
    page: str
    answer: str

    @property
    def code(self) -> list[str]:
        return re.findall(r"`([^`]+)`", self.answer)


ENTRIES = [Entry(*found) for found in ENTRY.findall((DOCS / "questions.md").read_text(encoding="utf-8"))]


def test_every_item_is_a_question_with_a_short_answer() -> None:
    page = (DOCS / "questions.md").read_text(encoding="utf-8")
    assert page.count("\n* ") == len(ENTRIES) > 120
    assert [entry.question for entry in ENTRIES if not entry.question.endswith("?")] == []
    assert [entry.question for entry in ENTRIES if len(entry.answer.split()) > 50] == []
    assert len({entry.question for entry in ENTRIES}) == len(ENTRIES)


def test_code_of_an_answer_is_on_the_pages_that_it_links() -> None:
    for entry in ENTRIES:
        linked = [entry.page, *re.findall(r"\]\(([\w/-]+\.md)", entry.answer)]
        words = {word for page in linked for word in re.findall(r"\w+", (DOCS / page).read_text(encoding="utf-8"))}
        assert [code for code in entry.code if set(re.findall(r"[A-Za-z_]\w{2,}", code)) - words] == [], entry.question


def test_methods_in_an_answer_exist() -> None:
    known = {"server": mcpio.Server("x"), "client": Client, "ctx": Context}
    for entry in ENTRIES:
        for owner, name in re.findall(r"\b(server|client|ctx)\.(\w+)", " ".join(entry.code)):
            assert hasattr(known[owner], name) or name in known[owner].__annotations__, entry.question


def test_code_of_answers_parses() -> None:
    for entry in ENTRIES:
        for code in entry.code:
            if re.fullmatch(r"[\w.]+\(.*\)", code):
                ast.parse(code.replace("…", "..."))
