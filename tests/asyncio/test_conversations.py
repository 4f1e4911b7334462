"""The conversations of ``tests/conversations`` over streams of asyncio."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from streamplayer import StreamPlayer

from mcpio.engine.table import Role
from mcpio.revisions import Revision
from mcpio.testing import Script, read_script

rules = pytest.mark.req
"""Under a name of its own: the map reads the ids of conversations from their files, and those of tests from markers."""

SCRIPTS = [read_script(path) for path in sorted((Path(__file__).parents[1] / "conversations").glob("*.txt"))]


def _cases() -> Iterator[ParameterSet]:
    for script in SCRIPTS:
        for engines in script.engines:
            who = "-".join(sorted(role.value for role in engines))
            revision = script.revisions[-1]
            name = f"{script.name.removesuffix('.txt')}-{who}-{revision}"
            yield pytest.param(script, engines, revision, id=name, marks=rules(*script.requirements))


@pytest.mark.parametrize(("script", "engines", "revision"), list(_cases()))
def test_a_conversation_holds_over_streams(script: Script, engines: frozenset[Role], revision: Revision) -> None:
    StreamPlayer(script, revision).play(engines)
