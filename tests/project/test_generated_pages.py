"""What the docs show of the library and of the examples is what there is."""

from __future__ import annotations

from pathlib import Path

import generated
import pytest


@pytest.mark.parametrize("page", generated.pages(), ids=lambda page: str(page.relative_to(generated.DOCS)))
def test_generated_parts_of_a_page_are_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == generated.brought_up_to_date(text), "run python docs/_ext/generated.py"


def test_drawings_are_up_to_date() -> None:
    drawings = dict(generated.drawings())
    assert len(drawings) == 7
    for file, text in drawings.items():
        assert file.read_text(encoding="utf-8") == text, "run python docs/_ext/generated.py"


def test_stale_table_is_replaced() -> None:
    head = "<!-- made from: attributes mcpio.engine.limits.Timeout -->\n\n"
    fresh = generated.brought_up_to_date(f"{head}| old |\n| --- |\n\nText\n")
    assert fresh.startswith(f"{head}| Name | Default | Meaning |\n| --- | --- | --- |\n| `total` | 60.0 | ")
    assert fresh.endswith("|\n\nText\n")
    assert "old" not in fresh


def test_stale_program_is_replaced_by_the_part_that_the_comment_names() -> None:
    head = "<!-- not run: examples/calls_from_threads.py Carrier._turn, which a test of its own runs -->\n```python\n"
    fresh = generated.brought_up_to_date(f"{head}old\n```\n")
    assert fresh.startswith(f"{head}def _turn(self")
    assert fresh.endswith("\n```\n")
