"""The conversations of ``tests/conversations`` over streams of asyncio."""

from __future__ import annotations

import pytest
from scripts import newest_cases
from streamplayer import AsyncioPlayer

from mcpio.engine.table import Role
from mcpio.revisions import Revision
from mcpio.testing import Script


@pytest.mark.parametrize(("script", "engines", "revision"), newest_cases())
def test_a_conversation_holds_over_streams(script: Script, engines: frozenset[Role], revision: Revision) -> None:
    AsyncioPlayer(script, revision).play(engines)
