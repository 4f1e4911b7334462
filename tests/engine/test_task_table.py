from __future__ import annotations

from typing import get_args

import pytest

from mcpio.engine.table import Direction
from mcpio.engine.task_table import TASK_TABLE, TaskInput, TaskState
from mcpio.types.tasks import TaskStatus

MOVES = {
    "working": {"input_required", "completed", "failed", "cancelled"},
    "input_required": {"working", "completed", "failed", "cancelled"},
    "completed": set(),
    "failed": set(),
    "cancelled": set(),
}
"""The specification's own words."""


def test_the_states_are_those_of_the_protocol() -> None:
    assert [state.value for state in TaskState] == list(get_args(TaskStatus))


@pytest.mark.req("TASK-14")
@pytest.mark.parametrize("state", TaskState)
def test_a_task_moves_as_the_specification_says(state: TaskState) -> None:
    goals = {goal.value for (_, start, _), goal in TASK_TABLE.items() if start is state}
    assert goals == MOVES[state.value]


def test_each_input_leads_to_one_state() -> None:
    assert {direction for direction, _, _ in TASK_TABLE} == {Direction.INCOMING}
    for what in TaskInput:
        assert len({goal for (_, _, given), goal in TASK_TABLE.items() if given is what}) == 1
