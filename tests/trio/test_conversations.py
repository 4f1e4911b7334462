"""The conversations of ``tests/conversations`` over TCP and Unix sockets."""

from __future__ import annotations

import socket

import pytest
from scripts import newest_cases
from streamplayer import TrioPlayer

from mcpio.engine.table import Role
from mcpio.revisions import Revision
from mcpio.testing import Script

FAMILIES = {"tcp": socket.AF_INET} | ({"unix": socket.AF_UNIX} if hasattr(socket, "AF_UNIX") else {})


@pytest.mark.req("XPORT-02", "XPORT-03", "SSTD-05")
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
@pytest.mark.parametrize(("script", "engines", "revision"), newest_cases())
def test_a_conversation_holds_over_sockets(
    script: Script, engines: frozenset[Role], revision: Revision, family: socket.AddressFamily
) -> None:
    TrioPlayer(script, revision, family).play(engines)
