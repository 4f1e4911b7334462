"""Worlds in which the library went wrong once, made small."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SEEDS = sorted(Path(__file__).with_name("seeds").glob("*.py"))


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.stem)
def test_kept_seed_breaks_no_invariant(seed: Path) -> None:
    runpy.run_path(str(seed))  # it replays its world, which raises a Violation
