from __future__ import annotations

from mcpio.auth.authorizer import AUTHORIZATION_TABLE, AuthorizationInput, AuthorizationState


def test_every_state_but_the_last_can_be_reached_and_left() -> None:
    reached = {AuthorizationState.COLD}
    while more := {goal for (state, _), goal in AUTHORIZATION_TABLE.items() if state in reached} - reached:
        reached |= more
    assert reached == set(AuthorizationState)
    left = {state for (state, _), goal in AUTHORIZATION_TABLE.items() if goal is not state}
    assert left == set(AuthorizationState) - {AuthorizationState.CLOSED}


def test_every_input_has_a_row() -> None:
    assert {given for _, given in AUTHORIZATION_TABLE} == set(AuthorizationInput)
    for state in AuthorizationState:
        assert AUTHORIZATION_TABLE[state, AuthorizationInput.SEND_CLOSE] is AuthorizationState.CLOSED
