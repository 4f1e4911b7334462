from __future__ import annotations

import math

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpio.engine.shutdown import PROBE_INTERVAL, Shutdown, ShutdownAction, ShutdownPhase

CLOSE, TERMINATE, KILL, PROBE = ShutdownAction


def actions(machine: Shutdown) -> list[ShutdownAction]:
    given_out = []
    while (action := machine.next_action()) is not None:
        given_out.append(action)
    return given_out


def assert_phase(machine: Shutdown, phase: ShutdownPhase) -> None:
    assert machine.phase is phase


def machine_with_graces() -> Shutdown:
    return Shutdown(close_grace=1.0, terminate_grace=2.0, kill_grace=4.0)


def test_running_child_needs_no_action() -> None:
    machine = Shutdown()
    machine.handle_timeout(1e9)
    assert_phase(machine, ShutdownPhase.RUNNING)
    assert machine.next_deadline() is None
    assert actions(machine) == []


def test_child_that_exits_on_eof_is_not_signalled() -> None:
    machine = machine_with_graces()
    machine.close(10.0)
    assert actions(machine) == [CLOSE]
    assert machine.next_deadline() == 11.0
    machine.child_exited(10.5, group_left=False)
    assert_phase(machine, ShutdownPhase.ENDED)
    assert machine.finished
    assert machine.next_deadline() is None
    machine.handle_timeout(100.0)
    assert actions(machine) == []


def test_unkillable_child_is_abandoned() -> None:
    machine = machine_with_graces()
    machine.close(0.0)
    assert actions(machine) == [CLOSE]
    machine.handle_timeout(0.999)
    assert actions(machine) == []
    machine.handle_timeout(1.0)
    assert actions(machine) == [TERMINATE]
    assert_phase(machine, ShutdownPhase.TERMINATING)
    assert machine.next_deadline() == 3.0
    machine.handle_timeout(3.0)
    assert actions(machine) == [KILL]
    assert_phase(machine, ShutdownPhase.KILLING)
    assert machine.next_deadline() == 7.0
    machine.handle_timeout(7.0)
    assert actions(machine) == []
    assert_phase(machine, ShutdownPhase.ABANDONED)
    assert machine.finished
    assert machine.next_deadline() is None


def test_late_timeout_takes_one_step() -> None:
    machine = machine_with_graces()
    machine.close(0.0)
    machine.handle_timeout(1000.0)
    assert actions(machine) == [CLOSE, TERMINATE]
    assert machine.next_deadline() == 1002.0


def test_second_close_changes_nothing() -> None:
    machine = machine_with_graces()
    machine.close(0.0)
    machine.close(0.5)
    assert actions(machine) == [CLOSE]
    assert machine.next_deadline() == 1.0
    machine.child_exited(0.6, group_left=False)
    machine.close(0.7)
    assert_phase(machine, ShutdownPhase.ENDED)
    assert actions(machine) == []


def test_child_that_exits_alone_ends_the_sequence() -> None:
    machine = machine_with_graces()
    machine.child_exited(5.0, group_left=False)
    assert_phase(machine, ShutdownPhase.ENDED)
    assert actions(machine) == []


def test_remaining_group_is_ended_the_same_way() -> None:
    machine = machine_with_graces()
    machine.child_exited(0.0, group_left=True)
    assert_phase(machine, ShutdownPhase.CLOSING)
    assert actions(machine) == [CLOSE]
    assert machine.next_deadline() == PROBE_INTERVAL
    machine.handle_timeout(PROBE_INTERVAL)
    assert actions(machine) == [PROBE]
    assert machine.next_deadline() == 2 * PROBE_INTERVAL
    machine.handle_timeout(1.0)
    assert actions(machine) == [TERMINATE]
    machine.handle_timeout(1.0)
    assert actions(machine) == [PROBE]
    machine.group_ended()
    assert_phase(machine, ShutdownPhase.ENDED)
    assert machine.next_deadline() is None


def test_exit_after_terminate_keeps_the_deadline() -> None:
    machine = machine_with_graces()
    machine.close(0.0)
    machine.handle_timeout(1.0)
    machine.child_exited(1.1, group_left=True)
    assert_phase(machine, ShutdownPhase.TERMINATING)
    assert actions(machine) == [CLOSE, TERMINATE]
    machine.handle_timeout(3.0)
    assert actions(machine) == [KILL]


def test_group_end_before_its_leader_is_ignored() -> None:
    machine = machine_with_graces()
    machine.close(0.0)
    machine.group_ended()
    assert_phase(machine, ShutdownPhase.CLOSING)


def test_second_exit_is_ignored() -> None:
    machine = machine_with_graces()
    machine.child_exited(0.0, group_left=True)
    machine.child_exited(0.1, group_left=False)
    assert_phase(machine, ShutdownPhase.CLOSING)
    machine.group_ended()
    machine.group_ended()
    machine.child_exited(0.2, group_left=True)
    assert_phase(machine, ShutdownPhase.ENDED)


def test_no_action_follows_the_end() -> None:
    machine = machine_with_graces()
    machine.close(0.0)
    machine.handle_timeout(1.0)
    machine.child_exited(1.0, group_left=False)
    assert actions(machine) == []


def test_zero_and_infinite_graces_are_honoured() -> None:
    machine = Shutdown(close_grace=0, terminate_grace=math.inf)
    machine.close(3.0)
    machine.handle_timeout(3.0)
    assert actions(machine) == [CLOSE, TERMINATE]
    assert machine.next_deadline() == math.inf
    machine.handle_timeout(1e12)
    assert actions(machine) == []


@pytest.mark.parametrize("grace", [-1, -0.001, math.nan])
def test_negative_grace_is_refused(grace: float) -> None:
    for name in ("close_grace", "terminate_grace", "kill_grace"):
        with pytest.raises(ValueError, match=f"{name} must be a number of seconds"):
            Shutdown(**{name: grace})


STEPS = st.lists(st.sampled_from(["close", "exit", "exit leaving others", "group ended", "time"]), max_size=25)


@given(STEPS)
@settings(deadline=None, max_examples=examples(200))
def test_random_events_keep_the_order_of_actions(steps: list[str]) -> None:
    machine, now, seen = machine_with_graces(), 0.0, list[ShutdownAction]()
    for step in steps:
        now += 0.3
        match step:
            case "close":
                machine.close(now)
            case "exit":
                machine.child_exited(now, group_left=False)
            case "exit leaving others":
                machine.child_exited(now, group_left=True)
            case "group ended":
                machine.group_ended()
            case _:
                machine.handle_timeout(now)
        seen += actions(machine)
    machine.close(now)
    while not machine.finished:
        deadline = machine.next_deadline()
        assert deadline is not None
        machine.handle_timeout(deadline)
        seen += actions(machine)
    once = [action for action in seen if action is not PROBE]
    assert once == [CLOSE, TERMINATE, KILL][: len(once)]
    assert machine.next_deadline() is None


def test_longest_is_the_sum_of_the_graces() -> None:
    assert machine_with_graces().longest == 7.0
    assert Shutdown(close_grace=math.inf).longest == math.inf
