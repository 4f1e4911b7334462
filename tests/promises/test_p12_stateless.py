"""P12 without sessions: both sides saved and restored between any two messages continue byte for byte the same."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from talks import engines, plain, talk, talks

from mcpio.engine.connection import Connection
from mcpio.engine.table import Phase, Role
from mcpio.testing import Pair, pair

Side = TypeVar("Side", bound=Connection)


@settings(max_examples=examples(60))
@given(drawn=talks, moves=st.sets(st.tuples(st.integers(0, 25), st.sampled_from(Role))))
def test_talk_restored_at_any_point_continues_byte_for_byte(drawn: Any, moves: set[tuple[int, Role]]) -> None:
    stayed, moved = _link(drawn), _link(drawn)
    talk(stayed, drawn)

    def move(number: int) -> None:
        if (number, Role.CLIENT) in moves:
            moved.client = _restored(moved.client, moved.now, moved.now)
        if (number, Role.SERVER) in moves:
            moved.server = _restored(moved.server, moved.now, moved.now)

    talk(moved, drawn, before=move)
    assert moved.tap == stayed.tap
    assert [plain(event) for event in moved.client_events] == [plain(event) for event in stayed.client_events]
    assert [plain(event) for event in moved.server_events] == [plain(event) for event in stayed.server_events]
    assert moved.next_deadline() == stayed.next_deadline()


@settings(max_examples=examples(40))
@given(drawn=talks, data=st.data(), origin=st.integers(-1000, 1000))
def test_server_restored_mid_line_on_another_clock_continues(drawn: Any, data: st.DataObject, origin: int) -> None:
    link = _link(drawn)
    talk(link, drawn)
    stream = link.sent(Role.CLIENT)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=10)))
    stayed, moved = _link(drawn).server, _link(drawn).server
    shift = 0.0
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        stayed.receive_data(stream[start:end], 1.0)
        moved.receive_data(stream[start:end], 1.0 + shift)
        assert [plain(event) for event in moved.events()] == [plain(event) for event in stayed.events()]
        assert moved.data_to_send() == stayed.data_to_send()
        moved = _restored(moved, 1.0 + shift, 1.0 + shift + origin)
        shift += origin


def _link(drawn: Any) -> Pair:
    return pair(*engines(drawn[1]))


def _restored(connection: Side, now: float, then: float) -> Side:
    if connection.phase is Phase.CLOSED or connection.wants_write or connection.has_events:
        return connection
    state = json.loads(json.dumps(connection.snapshot(now)))
    restored = type(connection).restore(state, then, options=connection.options)
    assert restored.snapshot(then) == state
    return restored
