"""The index of the site's search, weighed when the site is built; ``_static/search.js`` adds up the weights.

A *place* is a page, a section of one, or a documented name. A word weighs more in the title of a place, in its first
sentence, in the names in front of its tables' rows, and in the text of links that lead to it, than in its other
sentences or its code (BM25F). Rare words weigh more than frequent ones, guides more than the reference, and members of
classes least; but the name of a class or function counts in full, if it is a compound that is typed exactly. The words
of the whole page count too: a section answers best on the page that is about the subject.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from shutil import copy
from typing import Any, Final

import sphinx.search
from contents import parts
from docutils import nodes
from sphinx.addnodes import desc, desc_content, desc_signature, index, pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.search.en import SearchEnglish

__all__ = ["Link", "Place", "adjacent", "make_index", "places_of", "words"]

PLACE_WEIGHTS: Final = {
    "title": 12.0,
    "lead": 2.0,
    "body": 1.0,
    "names": 3.0,
    "code": 0.25,
    "parent": 0.5,
    "links": 3.0,
}
PAGE_WEIGHTS: Final = {
    "title": 6.0,
    "headings": 2.0,
    "lead": 6.0,
    "body": 1.0,
    "names": 2.0,
    "code": 0.25,
    "links": 4.0,
}
PARTS: Final = {"Embed the engine": 0.8, "Why": 0.6, "Reference": 0.35}
"""The factors of pages, by the part of the table of contents that lists them. Pages of other parts have 1."""
FOLDERS: Final = {"reference": 0.35, "decisions": 0.5, "conformance": 0.4, "questions": 0.2}
"""The factors of pages in folders, and of one page. They override those of ``PARTS``. The questions on that page are
texts of links, and count for the places that answer them."""
GUIDES: Final = {"page", "section"}
MEMBERS: Final = {"attribute", "method", "property"}
NAMED: Final = {"class", "data", "exception", "function"}
MEMBER: Final = 0.6
OF_PAGE: Final = 0.5
"""A section counts half of the weight that a word has on its whole page, in addition to the weight in the section."""
SATURATION: Final = 2.5
LENGTHS: Final = 0.3
"""How much less a word weighs in a long text, from 0 to 1."""

_COMPOUND: Final = re.compile(r"\w+(?:[-./:@]\w+)*", re.ASCII)
_SUFFIX: Final = re.compile(r"['\u2019]\w\b")
"""The end of ``server's``, with either apostrophe."""
_PART: Final = re.compile(r"[\W_]+|(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", re.ASCII)
_STOPWORDS: Final = frozenset(SearchEnglish.stopwords)
_stem: Final = cache(SearchEnglish({}).stem)


@dataclass
class Place:
    """A place that a search may lead to, and its texts."""

    page: str
    anchor: str
    title: str
    kind: str
    parent: str = ""
    lead: str = ""
    body: str = ""
    code: str = ""
    names: str = ""
    """The first cells of table rows, as far as they have one word: it names what the row describes."""


@dataclass
class Link:
    """A link to a page, or to a place on it: its text says what is there."""

    page: str
    anchor: str
    text: str


@dataclass
class _Collected:
    """The places and links of all pages, by page. A later build takes them over for pages that have not changed."""

    places: dict[str, list[Place]] = field(default_factory=dict)
    links: dict[str, list[Link]] = field(default_factory=dict)


def words(text: str) -> list[str]:
    """Return the stems of a text's words.

    A compound counts as a whole, without what joins it, and in its parts: ``is_error`` and ``isError`` are the same.
    """
    stems = []
    for compound in _COMPOUND.findall(_SUFFIX.sub("", text)):
        pieces = [piece.lower() for piece in _PART.split(compound) if piece]
        if len(pieces) > 1:
            stems.append(_stem("".join(pieces)))
        stems += [_stem(piece) for piece in pieces if piece not in _STOPWORDS]
    return stems


def adjacent(text: str) -> list[str]:
    """Return each pair of adjacent words, joined: "VS Code" is found as ``vscode``."""
    stems = [_stem(word.lower()) for word in re.findall(r"\w+", text, re.ASCII)]
    return [_stem(first + second) for first, second in pairwise(stems)]


def places_of(page: str, tree: nodes.document) -> list[Place]:
    """Return the places of a page, the page itself first."""
    section = tree.next_node(nodes.section)
    if section is None:
        return []
    top = Place(page, "", _title(section), "page")
    return [top, *_inner_places(section, top)]


def _title(section: nodes.Element) -> str:
    title = section.next_node(nodes.title)
    return title.astext() if title is not None else ""


def _inner_places(node: nodes.Element, place: Place) -> Iterator[Place]:
    """Add the texts below a node to its place; yield the places that begin there."""
    for child in node.children:
        if isinstance(child, nodes.section):
            inner = Place(place.page, child["ids"][0], _title(child), "section", place.title)
            yield inner
            yield from _inner_places(child, inner)
        elif isinstance(child, desc):
            signature = child.next_node(desc_signature)
            inner = place
            if signature is not None and signature["ids"]:
                inner = Place(place.page, signature["ids"][0], signature["fullname"], child["objtype"], place.title)
                inner.body = f"{inner.title} {signature.astext()}\n"
                yield inner
            for content in child.children:
                if isinstance(content, desc_content):
                    yield from _inner_places(content, inner)
        elif isinstance(child, nodes.literal_block | nodes.doctest_block):
            place.code += child.astext() + "\n"
        elif isinstance(child, nodes.TextElement) and not isinstance(
            child, nodes.title | nodes.comment | nodes.raw | index
        ):
            text = child.astext()
            is_prose = isinstance(child, nodes.paragraph) and not isinstance(node, nodes.entry)
            if is_prose and not place.lead and not text.startswith("Bases: "):
                place.lead = re.split(r"(?<=[.:?!]) (?=[A-Z`0-9])", " ".join(text.split()), maxsplit=1)[0]
            place.body += text + "\n"
            if isinstance(node, nodes.entry) and node.parent[0] is node and " " not in text:
                place.names += text + "\n"
        elif isinstance(child, nodes.Element):
            yield from _inner_places(child, place)


def make_index(places: Iterable[Place], links: Iterable[Link], weights: Mapping[str, float]) -> dict[str, Any]:
    """Return the index: pages, places, and for each word its weight, and what it weighs in places and on pages."""
    listed = list(places)
    of_page: dict[str, list[int]] = defaultdict(list)
    for number, place in enumerate(listed):
        of_page[place.page].append(number)
    numbers = {(place.page, place.anchor): number for number, place in enumerate(listed)}
    linked: dict[int, list[str]] = defaultdict(list)
    linked_pages: dict[str, list[str]] = defaultdict(list)
    for link in links:
        if link.page in of_page:
            linked_pages[link.page] += words(link.text)
            linked[numbers.get((link.page, link.anchor), of_page[link.page][0])] += words(link.text)
    in_places = [
        {
            "title": Counter(words(place.title) + adjacent(place.title)),
            "lead": Counter(words(place.lead)),
            "body": Counter(words(place.body)),
            "code": Counter(words(place.code)),
            "names": Counter(word for name in place.names.splitlines() for word in words(name)[:1]),
            "parent": Counter(words(place.parent)),
            "links": Counter(linked[number]),
        }
        for number, place in enumerate(listed)
    ]
    in_pages = []
    for page, inside in of_page.items():
        first = in_places[inside[0]]
        sums = {
            name: sum((in_places[number][name] for number in inside), Counter()) for name in ("body", "code", "names")
        }
        headings = sum((in_places[number]["title"] for number in inside[1:]), Counter())
        in_pages.append({**first, **sums, "headings": headings, "links": Counter(linked_pages[page])})
    guides = [number for number, place in enumerate(listed) if place.kind in GUIDES]
    known = Counter[str]()
    for place, texts in zip(listed, in_places, strict=True):
        # The reference makes a word known, but not frequent.
        counted = int(place.kind in GUIDES)
        known.update(dict.fromkeys({word for counts in texts.values() for word in counts}, counted))
    rarity = {word: math.sqrt(math.log(1 + (len(guides) - n + 0.5) / (n + 0.5))) for word, n in known.items()}
    # Of more words than one: "timeout" is a word, too.
    named = {
        number: stems[0]
        for number, place in enumerate(listed)
        if place.kind in NAMED and len(stems := words(place.title)) > 1
    }
    kinds = [weights.get(place.page, 1) * (MEMBER if place.kind in MEMBERS else 1) for place in listed]
    table = {word: [round(70 * weight), [], []] for word, weight in rarity.items()}
    _weigh(in_places, guides, PLACE_WEIGHTS, kinds, table, 1, named)
    _weigh(
        in_pages, range(len(in_pages)), PAGE_WEIGHTS, [OF_PAGE * weights.get(page, 1) for page in of_page], table, 2, {}
    )
    order = {page: number for number, page in enumerate(of_page)}
    return {
        "pages": [[page, listed[inside[0]].title] for page, inside in of_page.items()],
        "places": [[order[place.page], place.anchor, place.title, place.lead] for place in listed],
        "words": table,
        "stopwords": sorted(_STOPWORDS),
    }


def _weigh(
    texts: list[dict[str, Counter[str]]],
    usual: Iterable[int],
    weights: Mapping[str, float],
    kinds: list[float],
    table: dict[str, list[Any]],
    column: int,
    named: Mapping[int, str],
) -> None:
    """Add to each word of the table the numbers of the texts that have it, each followed by the word's weight there."""
    chosen = list(usual)
    averages = {name: max(1, sum(texts[number][name].total() for number in chosen) / len(chosen)) for name in weights}
    for number, fields in enumerate(texts):
        counts: dict[str, float] = defaultdict(float)
        for name, weight in weights.items():
            size = 1 - LENGTHS + LENGTHS * fields[name].total() / averages[name] if name in ("body", "code") else 1
            for word, n in fields[name].items():
                counts[word] += weight * (math.sqrt(n) if name == "links" else n) / size
        for word, count in counts.items():
            row = table[word]
            kind = 1 if word == named.get(number) else kinds[number]
            if score := round(row[0] * kind * count / (SATURATION + count)):
                row[column] += [number, score]


def _collected(env: BuildEnvironment) -> _Collected:
    collected: _Collected | None = getattr(env, "search_places", None)
    if collected is None:
        collected = env.search_places = _Collected()  # type: ignore[attr-defined]  # ours, kept with the build
    return collected


def read_page(app: Sphinx, tree: nodes.document) -> None:
    """Keep the places and links of a page."""
    page = app.env.docname
    collected = _collected(app.env)
    collected.places[page] = places_of(page, tree)
    collected.links[page] = [
        Link(link["reftarget"], link.get("reftargetid") or "", link.astext())
        for link in tree.findall(pending_xref)
        if link.get("reftype") == "myst" and link.get("refdomain") == "doc" and link["reftarget"] != page
    ]


def forget_page(app: Sphinx, env: BuildEnvironment, page: str) -> None:
    """Forget the places and links of a page that is read again."""
    collected = _collected(env)
    collected.places.pop(page, None)
    collected.links.pop(page, None)


def merge_pages(app: Sphinx, env: BuildEnvironment, pages: Iterable[str], other: BuildEnvironment) -> None:
    """Take over what another process has read."""
    collected, more = _collected(env), _collected(other)
    for page in pages:
        collected.places[page], collected.links[page] = more.places[page], more.links[page]


def page_weights(docs: Path, pages: Iterable[str]) -> dict[str, float]:
    """Return what pages weigh, by their part of the table of contents or their folder."""
    contents = parts((docs / "index.md").read_text(encoding="utf-8"))
    weights = {page: PARTS.get(caption, 1) for caption, links in contents for _, page in links}
    return {page: FOLDERS.get(page.partition("/")[0], weights.get(page, 1)) for page in pages}


def write_index(app: Sphinx, error: Exception | None) -> None:
    """Write the index, and beside it the stemmer that reads the queries."""
    if error is not None or app.builder.name != "html":
        return
    collected = _collected(app.env)
    places = [place for page in sorted(collected.places) for place in collected.places[page]]
    links = (link for listed in collected.links.values() for link in listed)
    made = make_index(places, links, page_weights(Path(app.srcdir), collected.places))
    static = Path(app.outdir) / "_static"
    text = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
    # A script and not JSON: a browser reads it from a folder, too.
    (static / "search_index.js").write_text(f"const INDEX = {text};\n", encoding="utf-8")
    scripts = Path(sphinx.search.__file__).parent / "minified-js"
    for script in ("base-stemmer.js", SearchEnglish.js_stemmer_rawcode):
        copy(scripts / script, static)


def replace_search(app: Sphinx) -> None:
    """Have no index made by Sphinx, and the page of the search made from ``_templates/search.html``."""
    if app.builder.name == "html":
        app.builder.search = False  # type: ignore[attr-defined]  # of the builder for HTML


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the index."""
    app.connect("builder-inited", replace_search)
    app.connect("doctree-read", read_page)
    app.connect("env-purge-doc", forget_page)
    app.connect("env-merge-info", merge_pages)
    app.connect("build-finished", write_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 1}
