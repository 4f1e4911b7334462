"""What the docs show of the library and of the examples is what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import figures
import generated
import pytest
from ladder_svg import draw_ladder
from layers_svg import LAYERS
from picture import picture
from pictures import inlined
from state_svg import Edge, Layout, Transition, draw
from tree import settings

from mcpio.testing import parse_script, play, read_script

SCRIPTS = sorted((generated.DOCS / "conversations").glob("*.txt"))


@pytest.mark.parametrize("page", generated.pages(), ids=lambda page: str(page.relative_to(generated.ROOT)))
def test_generated_parts_of_a_page_are_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == generated.brought_up_to_date(text), "run python docs/_ext/generated.py"


def test_drawings_are_up_to_date() -> None:
    drawings = dict(generated.drawings())
    assert len(drawings) == 26
    for file, text in drawings.items():
        assert file.read_text(encoding="utf-8") == text, "run python docs/_ext/generated.py"


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [(0.966, "0.97 times"), (1.04, "1.04 times"), (1.1, "1.1 times"), (9.96, "10.0 times"), (37.4, "37 times")],
)
def test_ratio_shows_who_is_ahead(ratio: float, shown: str) -> None:
    assert figures._times(ratio) == shown


def test_stale_table_is_replaced() -> None:
    head = "<!-- made from: attributes mcpio.engine.limits.Timeout -->\n\n"
    fresh = generated.brought_up_to_date(f"{head}| old |\n| --- |\n\nText\n")
    assert fresh.startswith(f"{head}| Name | Default | Meaning |\n| --- | --- | --- |\n| `total` | 60.0 | ")
    assert fresh.endswith("|\n\nText\n")
    assert "old" not in fresh


def test_stale_program_is_replaced_by_the_part_that_the_comment_names() -> None:
    head = "<!-- not run: examples/calls_from_threads.py Driver._turn, which a test of its own runs -->\n```python\n"
    fresh = generated.brought_up_to_date(f"{head}old\n```\n")
    assert fresh.startswith(f"{head}def _turn(self")
    assert fresh.endswith("\n```\n")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_drawn_conversation_equals_that_of_the_engines(script: Path) -> None:
    for engines in read_script(script).engines:
        play(read_script(script), engines)


@pytest.mark.parametrize("drawing", [file.name for file, _ in generated.drawings()])
def test_drawing_is_on_a_page(drawing: str) -> None:
    assert any(f"](_static/{drawing})" in page.read_text(encoding="utf-8") for page in generated.pages())


def test_ladder_shows_every_message_verb_and_event() -> None:
    script = parse_script(
        """
        C> {id: 7, method: tools/call, params: {name: "<a>"}}
        event server RequestReceived
        server error 7 -5 bad
        S> {id: 7, error: {code: -5, message: bad}}
        deadline client 3
        at 3
        C> {method: notifications/cancelled, params: {requestId: 8}}
        S>> nonsense
        lost
        """.replace("        ", "")
    )
    texts = re.findall(r"<text [^>]*>([^<]*)</text>", draw_ladder(script, "title"))
    assert texts == [
        "client",
        "server",
        "tools/call: &lt;a&gt; (id 7)",
        "RequestReceived",
        "error -5 (id 7)",
        "next deadline: 3 s",
        "send_error()",
        "at 3 s",
        "notifications/cancelled: id 8",
        "nonsense",
        "the channel breaks",
    ]


def test_ladder_names_what_results_and_their_retries_are() -> None:
    script = parse_script(
        """
        revision: 2026-07-28
        C=> {id: 1, method: tools/call, params: {name: a, inputResponses: {x: {}, y: {}}}}
        S=> {id: 1, result: {resultType: input_required}}
        S=> {id: 2, result: {status: working, resultType: task}}
        S=> {id: 3, result: {}}
        """.replace("        ", "")
    )
    texts = re.findall(r"<text [^>]*>([^<]*)</text>", draw_ladder(script, "title"))
    assert texts[2:] == [
        "tools/call: a, with x, with y (id 1)",
        "result: input_required (id 1)",
        "result: working (id 2)",
        "result (id 3)",
    ]


def test_picture_of_the_layers_has_every_public_module_once() -> None:
    drawn = [f"mcpio.{module}" for layer in LAYERS for module in layer.modules]
    assert sorted(drawn) == sorted([*settings()["tool"]["mcpio"]["public-modules"], "mcpio.cli"])


def test_faster_of_two_versions_of_a_peer_is_compared_and_slower_loads_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = {
        "mcpio": [20.0, 30.0, 10.0],
        "TypeScript SDK 1": [10.0, 10.0, 10.0],
        "TypeScript SDK 2": [40.0, 40.0, 40.0],
    }
    measured = {name: {"one at a time/s": found, "one at a time CPU": [1234.5]} for name, found in rounds.items()}
    program = {"figures": measured, "comparisons": [{"title": "t", "peer": "p", "ratio": 0.5, "target": 2.0}]}
    others: dict[str, Any] = {table.program: {"figures": {}, "comparisons": []} for table in figures.TABLES.values()}
    records = figures.Records({"about": {}, "runs": others | {"stdio_server.py": program}})
    monkeypatch.setattr(figures.Records, "read", lambda: records)
    monkeypatch.setattr(figures, "SUMMARY", {"stdio": ("stdio_server.py", "one at a time")})
    assert list(figures.speed_rows(""))[1:] == [["stdio", "20", "not measured", "not measured", "40 (0.50 times)"]]
    assert list(figures.slower_rows("")) == [
        ["`stdio_server.py`", "one call at a time", "TypeScript SDK 2", "2.00 times as fast as mcpio"]
    ]
    assert list(figures.figure_rows("stdio-servers"))[1] == ["mcpio", "20 (1,230)", "", "", "", ""]
    assert list(figures.missed_rows("")) == [["`stdio_server.py`", "t", "p", "0.50", "2"]]


def test_drawing_in_a_built_page_has_the_colours_of_the_page_and_an_alternative() -> None:
    shown = inlined(picture("title", 10, 20, ["<path/>"]), 'a "b"')
    assert shown.startswith('<div class="picture"><svg aria-label="a &quot;b&quot;" role="img" viewBox="0 0 10 20"')
    assert "<style>" not in shown
    assert 'class="card"' not in shown
    assert "<title>" not in shown


def test_transition_without_a_line_in_the_layout_is_refused() -> None:
    layout = Layout(
        200, {"A": (10, 10, 100), "B": (10, 90, 100)}, (Edge(("A",), "B", (((50, 44), (50, 90)),), (60, 70), 20),)
    )
    drawn = draw(("A", "B"), [Transition("A", "go", "B"), Transition("B", "wait", "B")], "t", layout)
    assert re.findall(r"<text [^>]*>([^<]*)</text>", drawn) == ["A", "B", "stays: wait", "go"]
    with pytest.raises(ValueError, match="'back'"):
        draw(("A", "B"), [Transition("A", "go", "B"), Transition("B", "back", "A")], "t", layout)
