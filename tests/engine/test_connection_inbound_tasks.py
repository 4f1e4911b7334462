"""What the engine makes of messages that have to do with tasks."""

from __future__ import annotations

from typing import Any

import pytest
from wires import call, client, client_of_tasks, created, feed, note, one, request, result, sent, server

from mcpio.errors import LocalProtocolError
from mcpio.events import IgnoreReason, ProgressReceived
from mcpio.types.features import CallToolRequest, CallToolResult, EmptyResult, ServerCapabilities, ToolsCapability
from mcpio.types.tasks import (
    CreateTaskResult,
    GetTaskRequest,
    ServerTaskRequestsCapability,
    ServerTasksCapability,
    Task,
    TaskMetadata,
    ToolTasksCapability,
)

RELATED = "io.modelcontextprotocol/related-task"
TASK = Task("t", "working", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", 5)


@pytest.mark.req("PROG-07")
def test_task_is_remembered_until_over_and_can_be_cancelled() -> None:
    connection = client_of_tasks()
    asks = CallToolRequest("x", task=TaskMetadata())
    first, second, third = (connection.send_request(asks, now=0.0, progress=True) for _ in range(3))
    assert isinstance(one(connection, created(int(first))).result, CreateTaskResult)
    assert isinstance(one(connection, created(int(second), "t2")).result, CreateTaskResult)
    assert isinstance(one(connection, note("progress", progressToken=first, progress=1)), ProgressReceived)
    over = {**created(0)["result"]["task"], "status": "completed"}
    looked = connection.send_request(GetTaskRequest("t1"), now=0.0)
    feed(connection, result(int(looked), **over), note("tasks/status", **{**over, "taskId": "t2"}))
    assert one(connection, note("progress", progressToken=first, progress=2)).reason is IgnoreReason.LATE_PROGRESS
    assert connection.pending.tasks == ()
    connection.cancel_request(third)
    list(connection.events())
    sent(connection)
    assert one(connection, created(int(third), "t3")).reason is IgnoreReason.LATE_RESPONSE
    assert [message["method"] for message in sent(connection)] == ["tasks/cancel"]


def test_task_of_a_peer_without_cancel_is_not_cancelled() -> None:
    connection = client()
    connection.cancel_request(connection.send_request(CallToolRequest("x"), now=0.0))
    list(connection.events())
    sent(connection)
    assert one(connection, created(2)).reason is IgnoreReason.LATE_RESPONSE
    assert sent(connection) == []


@pytest.mark.req("TASK-28")
def test_answer_to_a_request_of_a_task_names_the_task() -> None:
    connection = server()
    asked = one(connection, call(**{RELATED: {"taskId": "t"}}))
    connection.send_result(asked.id, CallToolResult(()))
    assert sent(connection)[0]["result"]["_meta"] == {RELATED: {"taskId": "t"}}


@pytest.mark.req("TASK-09")
@pytest.mark.parametrize(
    ("task", "wrong"),
    [
        ({}, CreateTaskResult(TASK)),  # without ``task`` in the request
        ({"task": {}}, EmptyResult()),
        ({"task": {}}, {}),
    ],
)
def test_request_is_answered_with_a_task_only_if_it_asked_for_one(task: dict[str, Any], wrong: Any) -> None:
    needs = ServerTaskRequestsCapability(tools=ToolTasksCapability(call={}))
    connection = server(offers=ServerCapabilities(tools=ToolsCapability(), tasks=ServerTasksCapability(requests=needs)))
    asked = one(connection, request("tools/call", "a", name="x", **task))
    with pytest.raises(LocalProtocolError, match="the result of tools/call must be a CallToolResult, not a "):
        connection.send_result(asked.id, wrong)
    connection.send_result(asked.id, CreateTaskResult(TASK) if task else CallToolResult(()))
    assert ("task" in sent(connection)[0]["result"]) is bool(task)


@pytest.mark.parametrize("mark", [5, {}, {"taskId": 5}, None])
def test_mark_without_a_task_id_is_not_repeated(mark: Any) -> None:
    connection = server()
    asked = one(connection, call(**{RELATED: mark}))
    connection.send_result(asked.id, CallToolResult(()))
    assert sent(connection)[0]["result"] == {"content": []}


def test_task_mark_in_an_older_revision_is_ignored() -> None:
    connection = server("2025-06-18")
    asked = one(connection, call(**{RELATED: {"taskId": "t"}}))
    connection.send_result(asked.id, CallToolResult(()))
    assert sent(connection)[0]["result"] == {"content": []}


def test_plain_result_instead_of_a_task_is_not_remembered() -> None:
    connection = client_of_tasks()
    id = connection.send_request(CallToolRequest("x", task=TaskMetadata()), now=0.0)
    assert isinstance(one(connection, result(int(id), content=[])).result, CallToolResult)
    assert connection.pending.tasks == ()


def test_closing_client_cancels_no_tasks() -> None:
    connection = client_of_tasks()
    feed(connection, request("roots/list", "r"))
    id = connection.send_request(CallToolRequest("x", task=TaskMetadata()), now=0.0)
    connection.close(0.0)
    list(connection.events())
    sent(connection)
    assert one(connection, created(int(id))).reason is IgnoreReason.LATE_RESPONSE
    assert sent(connection) == []
