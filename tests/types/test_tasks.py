from __future__ import annotations

from typing import Any

import pytest

from mcpio.codec import codec
from mcpio.errors import InvalidMessage
from mcpio.revisions import REV_2025_06_18, REV_2025_11_25, REV_2026_07_28
from mcpio.types import (
    CancelTaskRequest,
    CancelTaskResult,
    ClientTaskRequestsCapability,
    ClientTasksCapability,
    CreateTaskResult,
    ElicitationTasksCapability,
    GetTaskPayloadRequest,
    GetTaskPayloadResult,
    GetTaskRequest,
    GetTaskResult,
    ListTasksRequest,
    ListTasksResult,
    RelatedTaskMetadata,
    SamplingTasksCapability,
    ServerTaskRequestsCapability,
    ServerTasksCapability,
    Task,
    TaskMetadata,
    TaskStatusNotification,
    ToolTasksCapability,
)

D = codec(REV_2025_11_25)
STATE: dict[str, Any] = {
    "taskId": "1",
    "status": "working",
    "createdAt": "2025-11-25T10:30:00Z",
    "lastUpdatedAt": "2025-11-25T10:40:00Z",
    "ttl": None,
    "pollInterval": 5000,
}
TASK = Task("1", "working", "2025-11-25T10:30:00Z", "2025-11-25T10:40:00Z", None, poll_interval=5000)


def test_unlimited_ttl_is_written_as_null() -> None:
    assert D.decode(STATE, Task) == TASK
    assert D.encode(TASK) == STATE


@pytest.mark.parametrize("name", ["taskId", "status", "createdAt", "lastUpdatedAt", "ttl"])
def test_incomplete_task_is_refused(name: str) -> None:
    raw = {key: value for key, value in STATE.items() if key != name}
    with pytest.raises(InvalidMessage, match=rf"^{name}: missing$"):
        D.decode(raw, Task)


@pytest.mark.parametrize("cls", [GetTaskResult, CancelTaskResult, TaskStatusNotification])
def test_task_state_is_inlined_in_results_and_notifications(cls: type[GetTaskResult]) -> None:
    raw = {**STATE, "ttl": 60_000, "statusMessage": "so far", "_meta": {"x": 1}}
    read = D.decode(raw, cls)
    assert (read.task_id, read.ttl, read.status_message, read.meta) == ("1", 60_000, "so far", {"x": 1})
    assert D.encode(read) == raw


def test_create_task_result_round_trips() -> None:
    raw = {"task": STATE}
    assert D.decode(raw, CreateTaskResult) == CreateTaskResult(TASK)
    assert D.encode(CreateTaskResult(TASK)) == raw
    assert D.encode(TaskMetadata(60_000)) == {"ttl": 60_000}
    assert D.decode({"taskId": "1"}, RelatedTaskMetadata) == RelatedTaskMetadata("1")


@pytest.mark.parametrize("cls", [GetTaskRequest, CancelTaskRequest, GetTaskPayloadRequest])
def test_task_requests_carry_the_task_id(cls: type[GetTaskRequest]) -> None:
    assert D.decode({"taskId": "1"}, cls) == cls("1")
    assert D.encode(cls("1")) == {"taskId": "1"}


def test_task_result_keeps_all_members_in_extra() -> None:
    raw = {"content": [], "isError": True, "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "1"}}}
    read = D.decode(raw, GetTaskPayloadResult)
    assert read.extra == {"content": [], "isError": True}
    assert D.encode(read) == raw


def test_malformed_task_is_set_aside() -> None:
    raw = {"tasks": [{**STATE, "status": "lost"}, STATE], "nextCursor": "x"}
    read = D.decode(raw, ListTasksResult)
    assert read.tasks == (TASK,)
    (bad,) = read.malformed
    assert bad.reason.startswith("status: expected one of 'cancelled', 'completed', ")
    assert D.encode(read) == raw
    assert D.encode(ListTasksRequest("x")) == {"cursor": "x"}


def test_tasks_exist_only_in_2025_11_25() -> None:
    for revision in (REV_2025_06_18, REV_2026_07_28):
        with pytest.raises(InvalidMessage, match=rf"^GetTaskRequest does not exist in {revision}$"):
            codec(revision).encode(GetTaskRequest("1"))


@pytest.mark.parametrize(
    ("capability", "raw"),
    [
        (
            ServerTasksCapability({}, {}, ServerTaskRequestsCapability(ToolTasksCapability({}))),
            {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
        ),
        (
            ClientTasksCapability(
                requests=ClientTaskRequestsCapability(SamplingTasksCapability({}), ElicitationTasksCapability({}))
            ),
            {"requests": {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}}},
        ),
        (ServerTasksCapability(), {}),
    ],
)
def test_task_capabilities_round_trip(capability: Any, raw: dict[str, Any]) -> None:
    assert D.encode(capability) == raw
    assert D.decode(raw, type(capability)) == capability
