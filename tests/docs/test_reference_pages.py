"""The built reference shows what the library says: texts of attributes as they are written, and readable defaults.

``MCPIO_SITE`` is the directory that ``docs/_ext/release_site.py`` has filled.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
import reference
import signatures
from tree import settings

PAGES = {
    path.name: path.read_text(encoding="utf-8")
    for path in sorted((Path(os.environ["MCPIO_SITE"]) / "latest" / "reference").glob("*.html"))
}


def plain(text: str) -> str:
    """Return the words of a text, without markup, the ends of lines, and what a printer does to quotation marks."""
    typed = text.translate(str.maketrans("\u2019\u2018\u201c\u201d", "''\"\""))
    return " ".join(re.sub(r":\w+:(?=`)|[`*]|\\(?=\W)", "", typed).split())


def words(html: str) -> str:
    """Return what a page shows."""
    return plain(unescape(re.sub(r"<[^>]+>", "", html)))


SHOWN = " ".join(map(words, PAGES.values()))


def attributes() -> Iterator[tuple[str, str]]:
    """Yield the attributes of public classes that have a text: name, first line of the text."""
    for module in map(importlib.import_module, settings()["tool"]["mcpio"]["public-modules"]):
        for cls in filter(inspect.isclass, (getattr(module, name) for name in module.__all__)):
            for (owner, name), text in reference.attribute_docs(cls.__module__).items():
                if owner == cls.__name__ and not name.startswith("_"):
                    yield f"{owner}.{name}", text[0]


def test_texts_of_attributes_are_shown_as_written() -> None:
    texts = dict(attributes())
    assert len([text for text in texts.values() if ": " in text]) > 100
    assert {name: text for name, text in texts.items() if plain(text) not in SHOWN} == {}


@pytest.mark.parametrize("page", PAGES)
def test_words_before_a_colon_are_no_type(page: str) -> None:
    assert re.findall(r"<dt[^>]*>Type<span", PAGES[page]) == []


@pytest.mark.parametrize("page", PAGES)
def test_defaults_in_signatures_are_python(page: str) -> None:
    signatures = re.findall(r'<dt class="sig [^>]*>.*?</dt>', PAGES[page], re.DOTALL)
    defaults = [
        words(each) for html in signatures for each in re.findall(r'"default_value">(.*?)</em>', html, re.DOTALL)
    ]
    assert [each for each in defaults if re.match(r"<|\w+>", each)] == []


def test_every_name_in_a_public_signature_has_a_page() -> None:
    found = signatures.names_in_signatures(settings()["tool"]["mcpio"]["public-modules"])
    shown = PAGES["signatures.html"]
    assert [f"{home}.{name}" for home, name, _ in found if f'id="{home}.{name}"' not in shown] == []
