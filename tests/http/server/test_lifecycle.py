"""The table of a connection's life: each state, each input, and the deadlines."""

from __future__ import annotations

from math import inf

import attrs
import pytest

from mcpio.errors import LocalProtocolError
from mcpio.http.lifecycle import LINGER, TABLE, TIMEOUTS, Action, Input, Lifecycle, State


@attrs.frozen
class Patience:
    head: float | None = 10.0
    body: float | None = 30.0
    idle: float | None = 75.0
    rate: float = 1000.0


def begin(state: State = State.NEW, *, is_last: bool = False) -> Lifecycle:
    """Return a connection that stands in a state at the time 100."""
    return Lifecycle(Patience(), 100.0, state=state, is_last=is_last)


def walk(life: Lifecycle, *inputs: Input) -> list[Action]:
    """Report one thing after the other; return what to do each time."""
    return [life.step(each, 100.0) for each in inputs]


def test_connection_with_whole_exchange_returns_to_idle() -> None:
    life = begin()
    did = walk(life, Input.RECV_BYTES, Input.RECV_HEAD, Input.RECV_BYTES, Input.RECV_END)
    assert did == [Action.NOTHING] * 4
    assert not life.is_resting
    assert walk(life, Input.SEND_HEAD, Input.SEND_END) == [Action.NOTHING, Action.REUSE]
    assert life.state is State.IDLE
    assert life.is_resting


@pytest.mark.parametrize("state", [State.NEW, State.IDLE, State.HEAD, State.LOOKUP])
def test_whole_request_awaits_its_answer(state: State) -> None:
    life = begin(state)
    assert walk(life, Input.RECV_REQUEST, Input.SEND_END) == [Action.NOTHING, Action.REUSE]
    assert life.state is State.IDLE


def test_last_exchange_closes_its_connection() -> None:
    life = begin(State.BODY, is_last=True)
    assert walk(life, Input.RECV_END, Input.SEND_HEAD, Input.SEND_END)[-1] is Action.CLOSE
    assert life.state is State.CLOSED
    assert not life.is_open


def test_close_serves_a_request_that_has_begun() -> None:
    life = begin(State.HEAD)
    assert walk(life, Input.SEND_CLOSE, Input.RECV_HEAD, Input.RECV_END, Input.SEND_HEAD) == [Action.NOTHING] * 4
    assert life.step(Input.SEND_END, 100.0) is Action.CLOSE


@pytest.mark.parametrize("state", [State.NEW, State.IDLE])
@pytest.mark.parametrize("event", [Input.SEND_CLOSE, Input.TIMEOUT, Input.RECV_LOSS])
def test_idle_connection_closes_without_a_response(state: State, event: Input) -> None:
    life = begin(state)
    assert life.step(event, 100.0) is Action.CLOSE
    assert life.state is State.CLOSED


def test_response_before_the_end_of_its_request_lingers() -> None:
    life = begin(State.BODY)
    assert walk(life, Input.SEND_HEAD, Input.RECV_BYTES, Input.SEND_END)[-1] is Action.LINGER
    assert life.state is State.DRAINING
    assert life.deadline == 100.0 + LINGER
    assert walk(life, Input.RECV_BYTES, Input.RECV_END, Input.TIMEOUT) == [*[Action.NOTHING] * 2, Action.CLOSE]


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (State.HEAD, Input.RECV_INVALID),
        (State.HEAD, Input.TIMEOUT),
        (State.LOOKUP, Input.RECV_INVALID),
        (State.BODY, Input.RECV_INVALID),
        (State.BODY, Input.TIMEOUT),
    ],
)
def test_fault_before_a_response_is_refused(state: State, event: Input) -> None:
    life = begin(state)
    assert life.step(event, 100.0) is Action.REFUSE
    assert life.state is State.DRAINING


@pytest.mark.parametrize("event", [Input.RECV_INVALID, Input.TIMEOUT])
def test_fault_after_a_response_began_resets(event: Input) -> None:
    life = begin(State.EARLY)
    assert life.step(event, 100.0) is Action.RESET
    assert life.state is State.CLOSED


@pytest.mark.parametrize("state", [State.BODY, State.EARLY, State.ANSWER])
def test_lost_client_resets_its_exchange(state: State) -> None:
    assert begin(state).step(Input.RECV_LOSS, 100.0) is Action.RESET


@pytest.mark.parametrize("state", [State.BODY, State.EARLY, State.ANSWER])
def test_reset_by_the_machine_closes(state: State) -> None:
    assert begin(state).step(Input.SEND_RESET, 100.0) is Action.CLOSE


def test_upgrade_ends_http() -> None:
    life = begin()
    assert walk(life, Input.SEND_LOOKUP, Input.SEND_UPGRADE) == [Action.NOTHING] * 2
    assert life.state is State.CLOSED


def test_deadline_of_a_head_counts_from_the_beginning_of_the_connection() -> None:
    life = begin()
    life.step(Input.RECV_BYTES, 105.0)
    assert life.deadline == 110.0
    life.step(Input.SEND_LOOKUP, 106.0)
    assert life.deadline == inf
    life.step(Input.RECV_HEAD, 107.0)
    assert life.deadline == 137.0


def test_bytes_of_a_body_extend_its_deadline() -> None:
    life = begin(State.BODY)
    life.step(Input.RECV_BYTES, 110.0, 5000)
    assert life.deadline == 135.0
    life.step(Input.SEND_HEAD, 111.0)
    assert life.deadline == 135.0
    life.step(Input.RECV_END, 112.0)
    assert life.deadline == inf


def test_timeout_of_none_never_comes() -> None:
    assert Lifecycle(Patience(idle=None), 0.0, state=State.IDLE).deadline == inf


def test_input_without_a_row_is_refused_and_changes_nothing() -> None:
    life = begin(State.ANSWER)
    with pytest.raises(LocalProtocolError, match="cannot receive a head while the exchange is answer"):
        life.step(Input.RECV_HEAD, 100.0)
    assert life.state is State.ANSWER


def test_closed_stays_closed() -> None:
    life = begin(State.CLOSED)
    assert walk(life, *Input) == [Action.NOTHING] * len(Input)
    assert life.state is State.CLOSED


def test_every_open_state_can_be_lost_and_closed() -> None:
    for state in State:
        assert (state, Input.RECV_LOSS) in TABLE
        assert (state, Input.SEND_CLOSE) in TABLE


def test_every_state_with_a_deadline_has_a_row_for_it() -> None:
    for state, timeout in TIMEOUTS.items():
        assert ((state, Input.TIMEOUT) in TABLE) == (timeout is not None or state is State.CLOSED)
