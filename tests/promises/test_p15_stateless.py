"""P15 without sessions: observers change nothing, and a replayed recording gives the same events and bytes."""

from __future__ import annotations

from typing import Any

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from talks import engines, plain, talk, talks

from mcpio.engine.table import Role
from mcpio.observe.recording import Recorder, Replay
from mcpio.observe.tap import Redactor, add_tap
from mcpio.testing import Pair, at_random, pair


@settings(max_examples=examples(50))
@given(drawn=talks, seed=st.integers(0, 99))
def test_replayed_talk_gives_same_events_and_bytes(drawn: Any, seed: int) -> None:
    alone = pair(*engines(drawn[1]), chunk=at_random(seed))
    talk(alone, drawn)
    link, recordings = _recorded(drawn, seed)
    assert link.tap == alone.tap
    for role, events in ((Role.CLIENT, link.client_events), (Role.SERVER, link.server_events)):
        replay = Replay(recordings[role])
        taken = list(replay)
        assert [step.differs for step in taken if step.differs] == []
        assert [plain(step.event) for step in taken if step.event is not None] == [plain(event) for event in events]
        assert b"".join(chunk for step in taken for chunk in step.sent if chunk is not None) == link.sent(role)
        connection = link.client if role is Role.CLIENT else link.server
        assert (replay.connection.phase, replay.connection.next_deadline()) == (
            connection.phase,
            connection.next_deadline(),
        )


@settings(max_examples=examples(30))
@given(drawn=talks, seed=st.integers(0, 99))
def test_replayed_redacted_talk_gives_same_events(drawn: Any, seed: int) -> None:
    link, recordings = _recorded(drawn, seed, Redactor())
    for role, events in ((Role.CLIENT, link.client_events), (Role.SERVER, link.server_events)):
        names = [type(step.event).__name__ for step in Replay(recordings[role]) if step.event is not None]
        assert names == [type(event).__name__ for event in events]


def _recorded(drawn: Any, seed: int, redactor: Redactor | None = None) -> tuple[Pair, dict[Role, list[str]]]:
    link = pair(*engines(drawn[1]), chunk=at_random(seed))
    recordings: dict[Role, list[str]] = {role: [] for role in Role}
    for connection in (link.client, link.server):
        add_tap(connection, Recorder(recordings[connection.role].append, redactor=redactor))
    talk(link, drawn)
    return link, recordings
