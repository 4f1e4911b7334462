from __future__ import annotations

import pytest

from mcpio.app.asking import choose_model
from mcpio.types import ModelHint, ModelPreferences

NAMES = ["claude-3-5-haiku", "claude-3-7-sonnet", "gpt-4o", "claude-3-5-sonnet"]


@pytest.mark.req("SAMP-13", "SAMP-18")
@pytest.mark.parametrize(
    ("hints", "chosen"),
    [
        (["claude-3-5-sonnet"], "claude-3-5-sonnet"),
        (["sonnet"], "claude-3-7-sonnet"),
        (["gemini", "gpt", "claude"], "gpt-4o"),
        (["CLAUDE"], "claude-3-5-haiku"),
        (["gemini"], None),
        (["", None, "gpt"], "gpt-4o"),
        ([], None),
    ],
)
def test_the_first_hint_that_matches_wins(hints: list[str | None], chosen: str | None) -> None:
    # Priorities count for less than any hint.
    preferences = ModelPreferences(tuple(map(ModelHint, hints)), cost_priority=1, intelligence_priority=0)
    assert choose_model(preferences, iter(NAMES)) == chosen


def test_no_preferred_model_returns_none() -> None:
    assert choose_model(None, NAMES) is None
    assert choose_model(ModelPreferences((ModelHint("gpt"),)), []) is None
