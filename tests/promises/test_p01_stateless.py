"""P1 without sessions: any split of the bytes of a talk gives both sides the same events and output."""

from __future__ import annotations

from typing import Any

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from talks import engines, plain, talk, talks

from mcpio.testing import Chunking, Pair, at_random, every, pair, whole


@settings(max_examples=examples(15))
@given(drawn=talks, seed=st.integers(0, 99))
def test_any_split_of_a_talk_gives_same_events_and_output(drawn: Any, seed: int) -> None:
    usual = _held(drawn, whole)
    for chunk in (at_random(seed), every(1)):
        link = _held(drawn, chunk)
        assert [plain(event) for event in link.client_events] == [plain(event) for event in usual.client_events]
        assert [plain(event) for event in link.server_events] == [plain(event) for event in usual.server_events]
        for role in (link.client.role, link.server.role):
            assert link.sent(role) == usual.sent(role)


def _held(drawn: Any, chunk: Chunking) -> Pair:
    link = pair(*engines(drawn[1]), chunk=chunk)
    talk(link, drawn)
    return link
