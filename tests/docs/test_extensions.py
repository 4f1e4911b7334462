"""What the docs make from the library's own tables while they are built."""

from __future__ import annotations

import enum
import importlib
import inspect
import itertools
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, cast
from xml.etree import ElementTree as ET

import attrs
import contents
import field_texts
import pictures
import pytest
import reference
import revision_tables
import signatures
import state_diagrams
from docutils import nodes
from docutils.utils import new_document
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from state_layouts import LAYOUTS
from state_svg import Transition, draw
from tree import modules, settings

from mcpio.engine.table import LIFE_TABLE, REQUEST_TABLE, TABLE
from mcpio.methods import METHODS
from mcpio.revisions import REVISIONS, Revision

SVG = "{http://www.w3.org/2000/svg}"


def words(svg: str) -> str:
    """Return what a drawing says."""
    return " ".join(text.text or "" for text in ET.fromstring(svg).iter(f"{SVG}text"))


@pytest.mark.parametrize(
    ("table", "member"),
    [
        ("LIFE_TABLE", "BOTH"),
        ("TABLE", "CLIENT"),
        ("TABLE", "SERVER"),
        ("REQUEST_TABLE", "OUTGOING"),
        ("REQUEST_TABLE", "INCOMING"),
        ("TASK_TABLE", "INCOMING"),
    ],
)
def test_a_drawing_has_every_state_and_every_input(table: str, member: str) -> None:
    states, transitions = state_diagrams.rows(table, member)
    said = words(draw(states, transitions, "title", LAYOUTS.get((table, member))))
    assert [state for state in states if state not in said] == []
    assert [row.label for row in transitions if row.label not in said] == []


def test_every_row_of_the_tables_is_listed() -> None:
    listed = [
        row
        for table, members in (
            ("LIFE_TABLE", ("BOTH",)),
            ("TABLE", ("CLIENT", "SERVER")),
            ("REQUEST_TABLE", ("OUTGOING", "INCOMING")),
        )
        for member in members
        for row in state_diagrams.rows(table, member)[1]
    ]
    assert len(listed) == len(LIFE_TABLE) + len(TABLE) + len(REQUEST_TABLE)


def test_a_table_without_such_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="no rows for NOBODY"):
        state_diagrams.rows("TABLE", "NOBODY")


@pytest.mark.parametrize(("table", "member"), LAYOUTS)
def test_boxes_do_not_overlap_and_lie_inside_the_drawing(table: str, member: str) -> None:
    states, transitions = state_diagrams.rows(table, member)
    root = ET.fromstring(draw(states, transitions, "title", LAYOUTS[table, member]))
    _, _, width, height = (float(each) for each in root.get("viewBox", "").split())
    boxes = [
        [float(box.get(name, "")) for name in ("x", "y", "width", "height")]
        for box in root.iter(f"{SVG}rect")
        if not box.get("class") and not box.get("stroke-dasharray")
    ]
    assert len(boxes) == len(states)
    assert all(x >= 0 and y >= 0 and x + w <= width and y + h <= height for x, y, w, h in boxes)
    for (x, y, w, h), (left, top, wide, high) in itertools.combinations(boxes, 2):
        assert x + w <= left or left + wide <= x or y + h <= top or top + high <= y


def test_labels_are_escaped() -> None:
    assert words(draw(["A", "B"], [Transition("A", "x < y & z", "B")], "<title>")) == "A B x < y & z"


def test_photograph_with_a_dark_variant_is_shown_in_the_scheme_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "shot-dark.png").touch()
    page = new_document("page")
    page += [nodes.image(uri="shot.png", alt="A page"), nodes.image(uri="other.png", alt="Another")]
    pictures.show_dark(cast("Sphinx", SimpleNamespace(srcdir=tmp_path)), page)
    shown = [(each["uri"], each["alt"], each["classes"]) for each in page.findall(nodes.image)]
    light, dark = ("shot.png", "A page", ["only-light"]), ("shot-dark.png", "A page", ["only-dark"])
    assert shown == [light, dark, ("other.png", "Another", [])]


def test_every_method_has_a_row() -> None:
    assert len(list(revision_tables.method_rows())) == len(METHODS)


@pytest.mark.parametrize(
    ("since", "until", "said"),
    [
        (REVISIONS[0], REVISIONS[-1], "all"),
        (REVISIONS[0], REVISIONS[3], "until 2025-11-25"),
        (REVISIONS[2], REVISIONS[-1], "since 2025-06-18"),
        (REVISIONS[1], REVISIONS[2], "2025-03-26 to 2025-06-18"),
        (REVISIONS[3], REVISIONS[3], "2025-11-25 only"),
    ],
)
def test_revision_span_is_described(since: Revision, until: Revision, said: str) -> None:
    assert revision_tables.span(since, until) == said


def test_some_members_differ_between_revisions() -> None:
    rows = list(revision_tables.member_rows())
    assert len(rows) > 20
    assert {row[3] for row in rows} == {"", "left out", "refused"}
    assert revision_tables.wire_name("input_schema") == "inputSchema"


def test_each_kind_of_name_gets_the_matching_directive() -> None:
    home = "mcpio.revisions"
    latest = reference.entry("mcpio", "LATEST_HANDSHAKE", 1, home)
    assert latest[0] == ".. py:data:: LATEST_HANDSHAKE"
    assert "LIFE-03" in latest[2]
    assert reference.entry("mcpio.x", "X", ValueError, home)[0] == ".. autoexception:: mcpio.x.X"
    assert reference.entry("mcpio.x", "X", int, home)[0] == ".. autoclass:: mcpio.x.X"
    assert reference.entry("mcpio.x", "x", len, home)[0] == ".. autofunction:: mcpio.x.x"
    assert reference.entry("mcpio.x", "X", Literal["a", "b"], home)[2] == "   One of ``'a'``, ``'b'``."


def test_constant_documented_at_its_assignment() -> None:
    assert reference.assigned_in("mcpio", "LATEST_HANDSHAKE") == "mcpio.revisions"
    assert reference.title("mcpio.errors") == "The exception tree"


PUBLIC = settings()["tool"]["mcpio"]["public-modules"]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_once_in_the_inventory(name: str) -> None:
    module = importlib.import_module(name)
    for public, home in reference.homes(module).items():
        value = getattr(module, public)
        if not inspect.ismodule(value):
            directive = reference.entry(name, public, value, home)[0].split()[-1]
            # Autodoc takes a whole name; what the domain itself takes is put under the current module.
            is_whole = inspect.isclass(value) or inspect.isroutine(value)
            assert directive == (f"{name}.{public}" if is_whole else public)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_field_and_member_has_a_text(name: str) -> None:
    module = importlib.import_module(name)
    for public in module.__all__:
        cls = getattr(module, public)
        if inspect.isclass(cls):
            bases = [base for base in cls.__mro__ if "mcpio" in base.__module__]
            fields = {field for base in bases for field in annotated(base)}
            members = set(cls.__members__) if issubclass(cls, enum.Enum) else set()
            wanting = {field for field in fields | members if not field.startswith("_")}
            assert [field for field in sorted(wanting) if reference.text_of(name, f"{public}.{field}") is None] == []


def annotated(cls: type) -> set[str]:
    """Return the fields that a class annotates, in its body or in its methods."""
    analyzer = ModuleAnalyzer.for_module(cls.__module__)
    analyzer.analyze()
    return {field for owner, field in analyzer.annotations if owner == cls.__qualname__}


@pytest.mark.parametrize(
    ("module", "name", "text"),
    [
        ("mcpio.types", "Tool.input_schema", "JSON Schema of the arguments."),
        ("mcpio.events", "CloseReason.LOST", "The channel broke."),
        ("mcpio.errors", "ErrorCode.PARSE_ERROR", "The message is no JSON."),
        ("mcpio.profiles", "ErlmcpCode.TOOL_NOT_FOUND", "Tool not found."),
        ("mcpio.types", "Tool.nothing", None),
        ("mcpio.types", "nothing", None),
    ],
)
def test_name_without_a_docstring_has_the_text_of_the_table(module: str, name: str, text: str | None) -> None:
    assert reference.text_of(module, name) == text


def test_inherited_options_of_a_typed_dict_keep_the_text_of_the_base() -> None:
    assert reference.text_of("mcpio.trio", "TcpOptions.connect_timeout") is not None
    assert reference.text_of("mcpio.trio", "SocketOptions.on_log") is not None


def test_every_row_of_texts_is_used() -> None:
    fields = {attribute.name for cls in revision_tables.payload_classes() for attribute in attrs.fields(cls)}
    of_stores_and_runtimes = ["blocking", "clock_offset", "lease", "stalls"]
    assert sorted(set(field_texts.FIELD_TEXTS) - fields) == sorted([*of_stores_and_runtimes, "method", "params"])
    classes = {name.partition(".")[0] for name in field_texts.FIELD_TEXTS_OF_ONE | field_texts.MEMBER_TEXTS}
    source = " ".join(path.read_text(encoding="utf-8") for path in modules().values())
    assert [name for name in classes if not re.search(rf"\b{name}\b", source)] == []


def test_contents_are_the_links_of_a_page() -> None:
    page = (
        "# T\n\n* [x](x.md)\n\n## All pages\n\n### A\n\n* [One](one.md): b\n* [Two](a/two.md)\n\n### B\n\n* [C](c.md)\n"
    )
    assert contents.toctrees(page) == (
        "\n```{toctree}\n:caption: A\n:hidden:\none\na/two\n```\n\n```{toctree}\n:caption: B\n:hidden:\nc\n```\n"
    )
    assert contents.toctrees("* [One](one.md)\n[No](no.md)\n") == "\n```{toctree}\n:hidden:\none\n```\n"


def test_names_that_only_signatures_have_are_found() -> None:
    found = {name: home for home, name, _ in signatures.names_in_signatures(PUBLIC)}
    names = {"Connect", "ConnectionStats", "HttpConnectOptions", "ServerSetupOptions", "StdioOptions", "TapSource"}
    assert names <= found.keys()
    assert found["StderrSink"] == "mcpio._drivers.stdio"  # a field of an option type that has a page here only
    assert not {"HttpServer", "Any", "T", "Callable"} & found.keys()
