"""Every conversation in ``tests/conversations``, with each engine it is for, in each revision, however it is cut.

The rules that a conversation shows stand in its ``req:`` line; ``pytest -m req`` and the map of requirements know them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from mcpio.engine.connection import Connection
from mcpio.engine.table import Phase, Role
from mcpio.framing.json import dumps, loads
from mcpio.revisions import Revision
from mcpio.testing import Chunking, Script, at_random, every, play, read_script, whole

rules = pytest.mark.req
"""Under a name of its own: the map reads the ids of conversations from their files, and those of tests from markers."""

SCRIPTS = [read_script(path) for path in sorted((Path(__file__).parent / "conversations").glob("*.txt"))]


def _cases() -> Iterator[ParameterSet]:
    for script in SCRIPTS:
        for engines in script.engines:
            who = "-".join(sorted(role.value for role in engines))
            for revision in script.revisions:
                name = f"{script.name.removesuffix('.txt')}-{who}-{revision}"
                yield pytest.param(script, engines, revision, id=name, marks=rules(*script.requirements))


conversations = pytest.mark.parametrize(("script", "engines", "revision"), list(_cases()))


@conversations
@pytest.mark.parametrize("chunk", [whole, every(1), at_random(1), None], ids=["whole", "bytes", "random", "messages"])
def test_conversation_holds(
    script: Script, engines: frozenset[Role], revision: Revision, chunk: Chunking | None
) -> None:
    play(script, engines, revision=revision, chunk=chunk)


@conversations
def test_conversation_holds_with_engines_restored_between_lines(
    script: Script, engines: frozenset[Role], revision: Revision
) -> None:
    def restored(connection: Connection, now: float) -> Connection:
        if connection.phase is Phase.CLOSED or connection.wants_write:
            return connection
        snapshot = loads(dumps(connection.snapshot(now)))
        return type(connection).restore(snapshot, now, options=connection._options)

    play(script, engines, revision=revision, between=restored)


def test_conversation_files_are_found() -> None:
    assert len(SCRIPTS) > 50
    assert all(script.requirements for script in SCRIPTS)
