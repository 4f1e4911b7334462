"""What older documents about the protocol claim of tasks, row by row, and what holds: tests named after the rows."""

from __future__ import annotations

from typing import Any

import pytest
from linked import Link
from tasked import Wire

from mcpio.app.server import Server
from mcpio.app.tasks.receiver import TaskOptions
from mcpio.types import ClientCapabilities, ElicitResult

RELATED = "io.modelcontextprotocol/related-task"


def mine() -> Wire:
    server = Server("s", tasks=TaskOptions(list=True))
    server.tool(lambda: "gold", name="dig", task_support="optional")
    return Wire(Link(server, era="handshake"))


def test_b2_client_task_capabilities() -> None:
    answer: Any = lambda scope, request: ElicitResult("cancel")  # noqa: E731  # it answers two kinds of questions
    link = Link(Server("s"), sampling=answer, elicitation=answer, tasks=TaskOptions(), era="handshake")
    peer = link.session.connection.peer
    assert peer is not None
    assert isinstance(peer.capabilities, ClientCapabilities)
    tasks = peer.capabilities.tasks
    assert tasks is not None
    assert tasks.requests is not None
    assert tasks.requests.sampling is not None
    assert tasks.requests.elicitation is not None
    assert (tasks.list, tasks.cancel) == ({}, {})
    assert (tasks.requests.sampling.create_message, tasks.requests.elicitation.create) == ({}, {})


def test_b3_c34_server_declares_tasks_as_objects() -> None:
    (hello,) = [each for each in mine().said if "protocolVersion" in each.get("result", {})]
    declared = hello["result"]["capabilities"]["tasks"]
    assert declared == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}


@pytest.mark.req("TASK-09", "TASK-22")
def test_c9_task_augmented_call_returns_the_task() -> None:
    wire = mine()
    answer = wire.ask("tools/call", name="dig", task={"ttl": 60000})
    id = answer["task"]["taskId"]
    assert answer == {"task": answer["task"], "_meta": {RELATED: {"taskId": id}}}
    # The result is the answer to tasks/result.
    assert wire.ask("tasks/result", taskId=id)["_meta"] == {RELATED: {"taskId": id}}


def test_c31_tasks_create_and_pending_do_not_exist() -> None:
    wire = mine()
    assert wire.ask("tasks/create", type="dig", input={})["code"] == -32601
    assert wire.ask("tools/call", name="dig", task={})["task"]["status"] == "working"


@pytest.mark.req("TASK-19", "TASK-24", "TASK-25")
def test_c32_tasks_list_get_result_and_cancel() -> None:
    wire = mine()
    id = wire.begin()
    assert [each["taskId"] for each in wire.ask("tasks/list")["tasks"]] == [id]
    assert wire.ask("tasks/get", taskId=id)["status"] == "completed"
    assert wire.ask("tasks/result", taskId=id)["content"] == [{"type": "text", "text": "gold"}]
    assert wire.ask("tasks/cancel", taskId=id)["code"] == -32602


@pytest.mark.req("TASK-12")
def test_c33_task_has_status_times_ttl_and_poll_interval() -> None:
    task = mine().ask("tools/call", name="dig", task={"ttl": 60000})["task"]
    assert set(task) == {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}
    assert (task["ttl"], task["pollInterval"]) == (60000, 1000)


@pytest.mark.parametrize("method", ["tasks/progress", "tasks/status", "tasks/update"])
def test_c52_no_other_task_methods_exist(method: str) -> None:
    assert mine().ask(method, taskId="x")["code"] == -32601
