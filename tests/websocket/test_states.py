"""The table of a WebSocket's states: what follows what, for both roles."""

from __future__ import annotations

import pytest

from mcpio.engine.table import Role
from mcpio.websocket.machine import TABLE, Input, State

roles = pytest.mark.parametrize("role", list(Role), ids=lambda role: role.value)


@roles
def test_every_state_is_reached_from_open_and_leads_to_over(role: Role) -> None:
    table = TABLE[role]
    reached = {State.OPEN}
    for _ in State:
        reached |= {after for (before, _), after in table.items() if before in reached}
    assert reached == set(State)
    assert all(table[state, Input.RECV_LOSS] is State.OVER for state in State if state is not State.OVER)


@roles
def test_no_row_leads_back_to_open_or_out_of_over(role: Role) -> None:
    assert State.OPEN not in TABLE[role].values()
    assert not [before for before, _ in TABLE[role] if before is State.OVER]


@pytest.mark.parametrize(("role", "after"), [(Role.SERVER, State.OVER), (Role.CLIENT, State.ENDING)])
def test_when_both_sides_closed_the_server_closes_the_connection_first(role: Role, after: State) -> None:
    assert {TABLE[role][before, Input.RECV_CLOSE] for before in (State.OPEN, State.CLOSING)} == {after}
