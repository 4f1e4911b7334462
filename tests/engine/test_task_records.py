from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from mcpio.engine.table import Direction
from mcpio.engine.tasks import (
    MESSAGE_LENGTH,
    TASK_TABLE,
    Owner,
    TaskInput,
    TaskLimits,
    TaskOutcome,
    TaskRecord,
    TaskState,
    dump_outcome,
    dump_record,
    load_outcome,
    load_record,
    not_found,
)
from mcpio.errors import InvalidMessage, LocalProtocolError, RequestError
from mcpio.types.tasks import Task, TaskStatus


def record(**members: Any) -> TaskRecord:
    return TaskRecord(
        **{
            "id": "abc",
            "number": 3,
            "owner": "ada",
            "operation": "tools/call 'dig'",
            "request": None,
            "created": 1.5,
            "updated": 2.0,
            "ttl": 60000.0,
            "poll_interval": 1000.0,
            **members,
        }
    )


# Limits


@pytest.mark.req("TASK-32", "TASK-35", "TASK-36")
@pytest.mark.parametrize(
    ("asked", "owner", "granted"),
    [
        (None, "ada", 10_000),
        (None, None, 10_000),
        (5, "ada", 5),
        (100_000, "ada", 60_000),
        (100_000, None, 30_000),
        (0.5, None, 1),
        (10**400, "ada", 60_000),
    ],
)
def test_ttl_is_cut_to_the_limit(asked: Any, owner: Owner, granted: float) -> None:
    limits = TaskLimits(default_ttl=10, max_ttl=60, max_ttl_without_owner=30)
    assert limits.ttl(asked, owner) == granted


@pytest.mark.parametrize(("asked", "granted"), [(None, None), (7, 7), (10**400, 1e15)])
def test_ttl_without_limits_may_be_none(asked: Any, granted: float | None) -> None:
    limits = TaskLimits(default_ttl=None, max_ttl=None, max_ttl_without_owner=None)
    assert limits.ttl(asked, None) == granted


@pytest.mark.req("TASK-35")
def test_task_without_an_owner_has_a_shorter_ttl() -> None:
    assert TaskLimits().ttl(10**9, None) == 3600_000
    assert TaskLimits().ttl(10**9, 5) == 86400_000


@pytest.mark.parametrize("wrong", [{"running": -1}, {"tasks": 1.5}, {"max_ttl": -1}, {"stored_bytes": "x"}])
def test_invalid_limits_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="0 or more"):
        TaskLimits(**wrong)


# Outcomes


@pytest.mark.req("TASK-15")
@pytest.mark.parametrize(
    ("outcome", "failed", "text"),
    [
        (TaskOutcome({"content": []}), False, None),
        (TaskOutcome({"content": [{"type": "text", "text": "no"}], "isError": False}), False, None),
        (TaskOutcome({"content": [{"type": "text", "text": "no"}], "isError": True}), True, "no"),
        (TaskOutcome({"content": ({"type": "image"}, {"type": "text", "text": "x" * 999}), "isError": True}), True, 0),
        (TaskOutcome({"content": [5, {"text": 5}], "isError": True}), True, None),
        (TaskOutcome({"content": "text", "isError": True}), True, None),
        (TaskOutcome(error=RequestError(-32602, "no such thing")), True, "no such thing"),
    ],
)
def test_errors_and_error_results_count_as_failed(outcome: TaskOutcome, failed: bool, text: Any) -> None:
    assert outcome.is_failure is failed
    assert outcome.text == ("x" * MESSAGE_LENGTH if text == 0 else text)


def test_outcomes_survive_a_round_trip() -> None:
    assert load_outcome(dump_outcome(TaskOutcome({"a": [1]}))) == TaskOutcome({"a": [1]})
    outcome = load_outcome(dump_outcome(TaskOutcome(error=RequestError(-1, "no", {"x": None}))))
    assert outcome.error is not None
    assert (outcome.result, outcome.error.code, outcome.error.message, outcome.error.data) == (
        None,
        -1,
        "no",
        {"x": None},
    )


def test_outcome_outside_json_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="not expressible in JSON"):
        dump_outcome(TaskOutcome({"a": object()}))


@pytest.mark.parametrize("payload", [b"", b"[]", b"5", b"{}", b'{"result":5}', b'{"error":{"code":1}}', b'{"error":7}'])
def test_malformed_outcome_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidMessage, match="no outcome of a task"):
        load_outcome(payload)


# Records


@pytest.mark.req("TASK-12")
def test_view_has_the_members_of_the_protocol() -> None:
    assert record().view() == Task(
        "abc", "working", "1970-01-01T00:00:01.500Z", "1970-01-01T00:00:02.000Z", 60000, None, 1000
    )
    shown = record(ttl=None, poll_interval=0.5, state=TaskState.FAILED, message="no").view()
    assert (shown.ttl, shown.poll_interval, shown.status, shown.status_message) == (None, 0.5, "failed", "no")
    # An integer, as the schema's examples have it: some readers take nothing else.
    assert isinstance(record().view().ttl, int)


@pytest.mark.parametrize("owner", ["ada", 5, None])
@pytest.mark.parametrize("request_", [None, {"name": "dig", "deep": [1, {"x": None}]}])
def test_records_survive_a_round_trip(owner: Owner, request_: Any) -> None:
    first = record(owner=owner, request=request_, state=TaskState.CANCELLED, message="no", size=9, ttl=None)
    second = load_record("abc", dump_record(first))
    assert second.shown == first.view()
    assert (second.owner, second.request, second.number, second.size) == (owner, request_, 3, 9)
    assert dump_record(second) == dump_record(first)


@pytest.mark.req("TASK-26")
def test_cancelled_record_asks_nothing_and_says_so() -> None:
    cancelled = record(state=TaskState.INPUT_REQUIRED, message="Who?", questions=1, inputs={"a": {"method": "m"}})
    cancelled.cancel(3.0)
    assert (cancelled.state, cancelled.message) == (TaskState.CANCELLED, "The task was cancelled")
    assert (cancelled.questions, dict(cancelled.inputs), cancelled.updated) == (0, {}, 3.0)


def test_request_outside_json_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="not expressible in JSON"):
        dump_record(record(request={"x": object()}))


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"id": "other"},
        {"number": "3"},
        {"created": 1e300},
        {"ttl": 10**400},
        {"state": "pending"},
        {"owner": []},
        {"request": 5},
        None,
    ],
)
def test_malformed_record_is_refused(change: Any) -> None:
    said = json.loads(dump_record(record()))
    text = b"[]" if change is None else json.dumps({**said, **change}).encode()
    with pytest.raises(InvalidMessage, match="no record of a task"):
        load_record("abc", text)


def test_member_of_another_type_is_named_with_the_type_it_must_have() -> None:
    text = json.dumps({**json.loads(dump_record(record())), "number": "3"}).encode()
    with pytest.raises(InvalidMessage, match="number must be int, not '3'"):
        load_record("abc", text)


def test_unknown_id_of_any_length_is_quoted_in_part() -> None:
    error = not_found("x" * 10**6)
    assert (error.code, error.message, len(error.data["taskId"])) == (-32602, "Task not found", MESSAGE_LENGTH)


# The table

MOVES = {
    "working": {"input_required", "completed", "failed", "cancelled"},
    "input_required": {"working", "completed", "failed", "cancelled"},
    "completed": set(),
    "failed": set(),
    "cancelled": set(),
}
"""The specification's own words."""


def test_task_states_are_those_of_the_protocol() -> None:
    assert [state.value for state in TaskState] == list(get_args(TaskStatus))


@pytest.mark.req("TASK-14")
@pytest.mark.parametrize("state", TaskState)
def test_task_table_has_the_transitions_of_the_specification(state: TaskState) -> None:
    goals = {goal.value for (_, start, _), goal in TASK_TABLE.items() if start is state}
    assert goals == MOVES[state.value]


def test_each_task_input_leads_to_one_state() -> None:
    assert {direction for direction, _, _ in TASK_TABLE} == {Direction.INCOMING}
    for what in TaskInput:
        assert len({goal for (_, _, given), goal in TASK_TABLE.items() if given is what}) == 1
