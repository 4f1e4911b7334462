"""What the docs make from the library's own tables while they are built."""

from __future__ import annotations

import itertools
from typing import Literal
from xml.etree import ElementTree as ET

import pytest
import reference
import revision_tables
import state_diagrams
from state_svg import Transition, draw

from mcpio.engine.table import REQUEST_TABLE, TABLE
from mcpio.methods import METHODS
from mcpio.revisions import REVISIONS, Revision

SVG = "{http://www.w3.org/2000/svg}"


def words(svg: str) -> str:
    """Return what a drawing says."""
    return " ".join(text.text or "" for text in ET.fromstring(svg).iter(f"{SVG}text"))


@pytest.mark.parametrize(
    ("table", "member"),
    [
        ("TABLE", "CLIENT"),
        ("TABLE", "SERVER"),
        ("REQUEST_TABLE", "OUTGOING"),
        ("REQUEST_TABLE", "INCOMING"),
        ("TASK_TABLE", "INCOMING"),
    ],
)
def test_a_drawing_has_every_state_and_every_input(table: str, member: str) -> None:
    states, transitions = state_diagrams.rows(table, member)
    said = words(draw(states, transitions, "title"))
    assert [state for state in states if state not in said] == []
    assert [row.label for row in transitions if row.label not in said] == []


def test_every_row_of_the_tables_is_listed() -> None:
    listed = [
        row
        for table, members in (("TABLE", ("CLIENT", "SERVER")), ("REQUEST_TABLE", ("OUTGOING", "INCOMING")))
        for member in members
        for row in state_diagrams.rows(table, member)[1]
    ]
    assert len(listed) == len(TABLE) + len(REQUEST_TABLE)


def test_a_table_without_such_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="no rows for NOBODY"):
        state_diagrams.rows("TABLE", "NOBODY")


def test_boxes_do_not_overlap_and_lie_inside_the_drawing() -> None:
    states, transitions = state_diagrams.rows("TABLE", "SERVER")
    root = ET.fromstring(draw(states, transitions, "title"))
    boxes = [(float(box.get("y", "")), float(box.get("height", ""))) for box in root.iter(f"{SVG}rect")]
    for (y, height), (below, _) in itertools.pairwise(sorted(boxes)):
        assert y + height < below
    assert sum(max(boxes)) <= float(root.get("viewBox", "").split()[3])


def test_labels_are_escaped() -> None:
    assert words(draw(["A", "B"], [Transition("A", "x < y & z", "B")], "<title>")) == "A B x < y & z"


def test_every_method_has_its_row() -> None:
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
def test_a_span_in_words(since: Revision, until: Revision, said: str) -> None:
    assert revision_tables.span(since, until) == said


def test_some_members_differ_between_revisions() -> None:
    rows = list(revision_tables.member_rows())
    assert len(rows) > 20
    assert {str(row[3]) for row in rows} == {"", "left out", "refused"}
    assert revision_tables.wire_name("input_schema") == "inputSchema"


def test_each_kind_of_name_gets_its_directive() -> None:
    home = "mcpio.revisions"
    latest = reference.entry("mcpio", "LATEST_HANDSHAKE", 1, home)
    assert latest[0] == ".. py:data:: mcpio.LATEST_HANDSHAKE"
    assert "LIFE-03" in latest[2]
    assert reference.entry("mcpio.x", "X", ValueError, home)[0] == ".. autoexception:: mcpio.x.X"
    assert reference.entry("mcpio.x", "X", int, home)[0] == ".. autoclass:: mcpio.x.X"
    assert reference.entry("mcpio.x", "x", len, home)[0] == ".. autofunction:: mcpio.x.x"
    assert reference.entry("mcpio.x", "X", Literal["a", "b"], home)[2] == "   One of ``'a'``, ``'b'``."


def test_a_constant_is_documented_where_it_is_assigned() -> None:
    assert reference.assigned_in("mcpio", "LATEST_HANDSHAKE") == "mcpio.revisions"
    assert reference.title("mcpio.errors") == "The exception tree"
