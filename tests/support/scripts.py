"""The conversations of ``tests/conversations`` as cases of a test."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from mcpio.testing import read_script

__all__ = ["SCRIPTS", "newest_cases"]

rules = pytest.mark.req
"""Under a name of its own: the map reads the ids of conversations from their files, and those of tests from markers."""

SCRIPTS = [read_script(path) for path in sorted((Path(__file__).parents[1] / "conversations").glob("*.txt"))]


def newest_cases() -> list[ParameterSet]:
    """Return every conversation with each of its engines, in its newest revision."""
    found = []
    for script in SCRIPTS:
        for engines in script.engines:
            who = "-".join(sorted(role.value for role in engines))
            revision = script.revisions[-1]
            name = f"{script.name.removesuffix('.txt')}-{who}-{revision}"
            found.append(pytest.param(script, engines, revision, id=name, marks=rules(*script.requirements)))
    return found
