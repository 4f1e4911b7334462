"""The rules of a task's life, as data (TASK-14). Nothing else decides a task's next state.

An input named ``SEND_…`` is something that the receiver's side does, one named ``RECV_…`` something that happens to it.
A state without rows is final: it never changes.
"""

from __future__ import annotations

import enum

from mcpio.engine.table import Direction

__all__ = ["TASK_TABLE", "TaskInput", "TaskState"]


class TaskState(enum.Enum):
    """Where a task stands. The values are the words of the protocol."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TaskInput(enum.Enum):
    """What can happen to a task."""

    SEND_QUESTION = "ask the requestor"
    SEND_RESULT = "finish"
    SEND_ERROR = "fail"
    RECV_ANSWER = "have all answers"
    RECV_CANCEL = "receive tasks/cancel"
    RECV_LOSS = "lose the work"


def _table() -> dict[tuple[Direction, TaskState, TaskInput], TaskState]:
    table = {
        (Direction.INCOMING, TaskState.WORKING, TaskInput.SEND_QUESTION): TaskState.INPUT_REQUIRED,
        (Direction.INCOMING, TaskState.INPUT_REQUIRED, TaskInput.RECV_ANSWER): TaskState.WORKING,
    }
    for state in (TaskState.WORKING, TaskState.INPUT_REQUIRED):
        table[Direction.INCOMING, state, TaskInput.SEND_RESULT] = TaskState.COMPLETED
        table[Direction.INCOMING, state, TaskInput.SEND_ERROR] = TaskState.FAILED
        table[Direction.INCOMING, state, TaskInput.RECV_CANCEL] = TaskState.CANCELLED
        table[Direction.INCOMING, state, TaskInput.RECV_LOSS] = TaskState.FAILED
    return table


TASK_TABLE = _table()
"""(direction, state, input) -> the next state, for tasks that a peer asked for."""
