"""Tools as tasks, seen from the wire (2025-11-25)."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from linked import Link
from tasked import Mine, Wire

from mcpio.app.server import Server
from mcpio.app.tasks.receiver import TaskOptions
from mcpio.app.tasks.store import MemoryTaskStore
from mcpio.engine.tasks import TaskChanged, TaskLimits
from mcpio.errors import ToolError
from mcpio.revisions import HANDSHAKE_REVISIONS, REV_2025_06_18, REV_2025_11_25, Revision
from mcpio.types import ServerCapabilities, ToolsCapability
from mcpio.types.tasks import ServerTasksCapability

RELATED = "io.modelcontextprotocol/related-task"


# What is declared


@pytest.mark.req("TASK-01", "TASK-35")
@pytest.mark.parametrize(
    ("principal", "alone", "chosen", "lists"),
    [
        (None, False, None, False),
        ("ada", False, None, True),
        (None, True, None, True),
        (None, False, True, True),
        ("ada", True, False, False),
    ],
)
def test_listing_is_declared_if_requestors_can_be_distinguished(
    principal: Any, alone: bool, chosen: bool | None, lists: bool
) -> None:
    server = Mine(list=chosen).server
    connection = server.connection(principal=principal, alone=alone)
    tasks = connection.capabilities.tasks
    assert tasks.list == ({} if lists else None)
    assert (tasks.cancel, tasks.requests.tools.call) == ({}, {})


@pytest.mark.req("TASK-01")
def test_tasks_are_declared_once_a_tool_may_be_one() -> None:
    server = Server("s")
    assert (server.capabilities.tasks, server.tasks) == (None, None)

    @server.tool(task_support="forbidden")
    def never() -> None: ...

    assert server.capabilities.tasks == ServerTasksCapability(None, {}, None)

    @server.tool(task_support="optional")
    def maybe() -> None: ...

    tasks = server.capabilities.tasks
    assert tasks is not None
    assert tasks.requests is not None
    own = ServerCapabilities(tools=ToolsCapability(), tasks=ServerTasksCapability())
    assert Server("s", capabilities=own, tasks=TaskOptions()).capabilities.tasks == ServerTasksCapability()


@pytest.mark.req("TASK-06")
def test_listed_tool_declares_its_task_support() -> None:
    mine = Mine()
    tools = {each["name"]: each.get("execution") for each in mine.wire.ask("tools/list")["tools"]}
    assert tools == {"dig": {"taskSupport": "optional"}, "look": None, "sift": {"taskSupport": "required"}}


def test_sessions_that_are_open_when_the_first_tool_comes_can_ask_for_tasks() -> None:
    server = Server("s", capabilities=Mine().server.capabilities)
    server.tool(lambda: None, name="first")
    link = Link(server, era="handshake")
    server.tool(lambda: "x", name="dig", task_support="optional")
    assert Wire(link).begin()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"task_support": "maybe"}, ValueError),
        ({"resume": True}, TypeError),
        ({"immediate_response": "soon", "task_support": "forbidden"}, TypeError),
    ],
)
def test_invalid_task_support_is_refused(options: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="task_support"):
        Server("s").tool(lambda: None, name="x", **options)


def test_async_on_change_is_refused() -> None:
    async def hear(change: TaskChanged) -> None: ...

    wrong: Any = hear
    with pytest.raises(TypeError, match="on_change must be a plain function"):
        TaskOptions(on_change=wrong)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"poll_interval": -1}, "poll_interval must be a number of seconds, 0 or more, or None, not -1"),
        ({"poll_interval": math.inf}, "poll_interval must be a number"),
        ({"task_after": None}, "task_after must be a number of seconds, 0 or more, or inf, not None"),
        ({"task_after": "2"}, "task_after must be a number"),
        ({"limits": {}}, "limits must be TaskLimits, not {}"),
        ({"list": "yes"}, "list must be bool, not 'yes'"),
        ({"notify": None}, "notify must be bool, not None"),
        ({"store": {}}, "store must be a TaskStore, not {}"),
        ({"owner": "me"}, "owner must be a plain function, called without waiting, not 'me'"),
    ],
)
def test_invalid_option_is_refused_by_name(options: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(error)}"):
        TaskOptions(**options)


@pytest.mark.parametrize("wrong", [5, {}])
def test_other_options_of_tasks_are_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^tasks must be TaskOptions, not "):
        Server("s", tasks=wrong)
    with pytest.raises(TypeError, match=r"^tasks must be TaskOptions, not "):
        Link(Server("s"), tasks=wrong)


# Which calls become tasks


@pytest.mark.req("TASK-09", "TASK-11", "TASK-12", "TASK-13", "TASK-28", "TASK-32")
def test_a_call_becomes_a_task_and_is_answered_at_once() -> None:
    mine = Mine(tool={"immediate_response": "Digging."})
    answer = mine.wire.ask("tools/call", name="dig", task={"ttl": 60000})
    task = answer["task"]
    assert answer == {
        "task": {
            "taskId": task["taskId"],
            "status": "working",
            "createdAt": "1970-01-01T00:00:00.000Z",
            "lastUpdatedAt": "1970-01-01T00:00:00.000Z",
            "ttl": 60000,
            "pollInterval": 1000,
        },
        "_meta": {RELATED: {"taskId": task["taskId"]}, "io.modelcontextprotocol/model-immediate-response": "Digging."},
    }
    assert mine.wire.ask("tasks/get", taskId=task["taskId"]) == task
    assert len(mine.digs) == 1


@pytest.mark.req("TASK-03")
def test_task_call_without_the_capability_is_a_plain_call() -> None:
    plain = ServerCapabilities(tools=ToolsCapability(), tasks=ServerTasksCapability())
    server = Server("s", capabilities=plain, tasks=TaskOptions())
    server.tool(lambda: "done", name="dig", task_support="optional")
    answer = Wire(Link(server, era="handshake")).ask("tools/call", name="dig", task={"ttl": 1})
    assert answer == {"content": [{"type": "text", "text": "done"}]}


@pytest.mark.req("TASK-03")
def test_earlier_revisions_have_no_tasks() -> None:
    mine = Mine(link={"revision": REV_2025_06_18})
    id = mine.wire.send("tools/call", name="dig", task={"ttl": 1})
    mine.dug()
    answer = mine.wire.answer_to(id)
    assert answer is not None
    assert answer["result"]["content"] == [{"type": "text", "text": "gold at 1"}]
    assert mine.wire.ask("tasks/get", taskId="x")["code"] == -32601


@pytest.mark.req("TASK-04", "TASK-07")
@pytest.mark.parametrize(("name", "more"), [("look", {"task": {}}), ("sift", {})])
def test_call_that_task_support_forbids_is_refused(name: str, more: Any) -> None:
    assert Mine().wire.ask("tools/call", name=name, **more)["code"] == -32601


@pytest.mark.req("TASK-07")
def test_calls_that_task_support_allows_are_served() -> None:
    mine = Mine()
    assert mine.wire.ask("tools/call", name="look")["content"] == [{"type": "text", "text": "dark"}]
    assert mine.wire.begin("sift")
    id = mine.wire.send("tools/call", name="dig")
    mine.dug()
    assert mine.wire.answer_to(id) is not None
    assert mine.wire.ask("tools/call", name="none", task={})["code"] == -32602
    assert mine.wire.ask("tools/call", name="none")["code"] == -32602


@pytest.mark.req("TASK-36")
def test_too_many_tasks_are_refused() -> None:
    mine = Mine(limits=TaskLimits(running_per_owner=1))
    mine.wire.begin()
    error = mine.wire.ask("tools/call", name="dig", task={})
    assert (error["code"], error["data"]) == (-32603, {"reason": "too many tasks", "limit": 1})
    assert mine.wire.ask("tools/call", name="dig", task={"ttl": -1})["code"] == -32602


@pytest.mark.req("TASK-36")
def test_tasks_of_an_anonymous_session_leave_room_for_other_sessions() -> None:
    mine = Mine(limits=TaskLimits(running_per_owner=1))
    mine.wire.begin()
    assert mine.wire.ask("tools/call", name="dig", task={})["code"] == -32603
    other = Wire(Link(mine.server, era="handshake"))
    other.begin()
    assert other.ask("tools/call", name="dig", task={})["code"] == -32603


# Results


@pytest.mark.req("TASK-20", "TASK-21", "TASK-22")
def test_task_result_equals_the_result_of_a_plain_call() -> None:
    mine = Mine()
    id = mine.wire.begin(arguments={"depth": 3})
    waiting = [mine.wire.send("tasks/result", taskId=id) for _ in range(3)]
    assert [mine.wire.answer_to(each) for each in waiting] == [None, None, None]
    mine.dug()
    result = {"content": [{"type": "text", "text": "gold at 3"}], "_meta": {RELATED: {"taskId": id}}}
    for each in waiting:
        answer = mine.wire.answer_to(each)
        assert answer is not None
        assert answer["result"] == result
    assert mine.wire.ask("tasks/result", taskId=id) == result
    assert mine.wire.status(id) == "completed"


@pytest.mark.req("TASK-15", "TASK-21", "TASK-22")
@pytest.mark.parametrize(("how", "status"), [("well", "completed"), ("not", "failed")])
def test_call_tool_result_of_a_tool_is_stored_unchanged(how: str, status: str) -> None:
    mine = Mine()
    id = mine.wire.begin("sift", arguments={"how": how})
    assert mine.wire.status(id) == status
    wrong = {"isError": True} if how == "not" else {}
    content = [{"type": "text", "text": how}]
    meta = {"a.b/c": 1, RELATED: {"taskId": id}}
    assert mine.wire.ask("tasks/result", taskId=id) == {"content": content, "_meta": meta, **wrong}


@pytest.mark.req("TASK-15", "TASK-21")
def test_error_of_a_task_is_stored_unchanged() -> None:
    mine = Mine()
    id = mine.wire.begin("sift", arguments={"how": "badly"})
    task = mine.wire.ask("tasks/get", taskId=id)
    assert (task["status"], task["statusMessage"]) == ("failed", "no sieve")
    assert mine.wire.ask("tasks/result", taskId=id) == {"code": -32001, "message": "no sieve", "data": {"x": 1}}


@pytest.mark.req("TASK-15", "TASK-38")
@pytest.mark.parametrize(
    ("failure", "message"), [(ToolError("rock"), "rock"), (ValueError("rock"), "'dig' failed: ValueError: rock")]
)
def test_failing_tool_gives_an_error_result_and_a_failed_task(failure: Exception, message: str) -> None:
    mine = Mine()
    id = mine.wire.begin()
    mine.dug(failure)
    task = mine.wire.ask("tasks/get", taskId=id)
    assert (task["status"], task["statusMessage"]) == ("failed", message)
    result = mine.wire.ask("tasks/result", taskId=id)
    assert (result["isError"], result["content"]) == (True, [{"type": "text", "text": message}])
    assert ("the tool 'dig' failed" in mine.link.reports) is isinstance(failure, ValueError)


@pytest.mark.req("TASK-33")
@pytest.mark.parametrize("verb", ["get", "result", "cancel"])
def test_an_unknown_task_is_an_invalid_parameter(verb: str) -> None:
    error = Mine().wire.ask(f"tasks/{verb}", taskId="unknown")
    assert (error["code"], error["message"]) == (-32602, "Task not found")


@pytest.mark.req("TASK-33")
@pytest.mark.parametrize("params", [{}, {"taskId": 5}, {"taskId": None}])
def test_malformed_task_id_is_an_invalid_parameter(params: Any) -> None:
    assert Mine().wire.ask("tasks/get", **params)["code"] == -32602


@pytest.mark.req("TASK-29")
def test_task_id_parameter_takes_precedence_over_related_task_meta() -> None:
    mine = Mine()
    first, second = mine.wire.begin(), mine.wire.begin()
    other = {RELATED: {"taskId": second}}
    task = mine.wire.ask("tasks/get", taskId=first, _meta=other)
    assert (task["taskId"], "_meta" in task) == (first, False)
    listed = Mine(list=True).wire.ask("tasks/list", _meta=other)
    assert listed == {"tasks": []}
    cancelled = mine.wire.ask("tasks/cancel", taskId=first, _meta=other)
    assert (cancelled["taskId"], "_meta" in cancelled) == (first, False)
    assert mine.wire.status(second) == "working"
    waits = mine.wire.send("tasks/result", taskId=first, _meta=other)
    assert mine.wire.answer_to(waits)["error"]["data"]["taskId"] == first  # type: ignore[index]  # it is answered


# Ends of sessions and processes


def test_task_without_a_host_ends_with_its_session() -> None:
    mine = Mine(link={"principal": "ada"})
    id = mine.wire.begin()
    mine.link.pair.server.abort()
    mine.link.run()
    assert mine.ended == ["cancelled"]
    mine.connect(principal="ada", era="handshake")
    task = mine.wire.ask("tasks/get", taskId=id)
    assert (task["status"], task["statusMessage"]) == ("failed", "What the task ran in has ended")


def test_resumable_task_continues_in_the_next_session() -> None:
    mine = Mine(link={"principal": "ada"}, tool={"resume": True})
    id = mine.wire.begin(arguments={"depth": 7})
    mine.link.pair.server.abort()
    mine.link.run()
    mine.digs.clear()
    mine.connect(principal="ada", era="handshake")
    assert mine.wire.status(id) == "working"
    task = mine.contexts[-1].task
    assert task is not None
    assert (task.id, task.is_resumed, mine.contexts[-1].peer.principal) == (id, True, "ada")
    mine.contexts[-1].log("info", "again")
    mine.dug()
    assert mine.wire.ask("tasks/result", taskId=id)["content"] == [{"type": "text", "text": "gold at 7"}]
    assert mine.wire.notes("message")[0]["_meta"] == {RELATED: {"taskId": id}}


@pytest.mark.parametrize("resume", [True, False])
def test_a_store_brings_tasks_into_the_next_process(resume: bool) -> None:
    store = MemoryTaskStore()
    first = Mine(store=store, tool={"resume": resume})
    done, open_ = first.wire.begin(), first.wire.begin()
    first.dug()
    second = Mine(store=store, tool={"resume": resume})
    assert second.wire.status(done) == "completed"
    assert second.wire.ask("tasks/result", taskId=done)["content"] == [{"type": "text", "text": "gold at 1"}]
    assert second.wire.status(open_) == ("working" if resume else "failed")
    assert len(second.digs) == int(resume)


@pytest.mark.parametrize("change", ["tool", "resume", "request"])
def test_task_without_its_tool_is_lost(change: str) -> None:
    store = MemoryTaskStore()
    first = Mine(store=store, tool={"resume": True})
    id = first.wire.begin()
    if change == "request":
        (row,) = store._rows.values()
        row.record = row.record.replace(b'"params"', b'"nothing"')
    others: dict[str, Any] = {"tool": {"name": "drill"}, "resume": {"resume": False}, "request": {}}
    second = Mine(store=store, tool={"resume": True, **others[change]})
    task = second.wire.ask("tasks/get", taskId=id)
    assert (task["status"], task["statusMessage"]) == ("failed", "The server does not know how to go on with it")


@pytest.mark.req("TASK-06")
@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
def test_a_tool_that_must_be_a_task_is_listed_where_there_are_tasks(revision: Revision) -> None:
    server = Server("s")
    server.tool(lambda: None, name="always")
    server.tool(lambda: None, name="as_a_task", task_support="required")
    server.tool(lambda: None, name="either", task_support="optional")
    link = Link(server, revision=revision)
    names = [tool.name for tool in link.do(link.client.list_tools()).tools]
    assert names == ["always", *(["as_a_task"] if revision is REV_2025_11_25 else []), "either"]


def test_full_ledger_drops_finished_tasks() -> None:
    mine = Mine()
    ids = [mine.wire.begin("sift", how="x" * 1000) for _ in range(4)]
    running = mine.wire.begin()
    ledger, tasks = mine.server.ledger, mine.server.tasks
    assert tasks is not None
    ledger.limit = ledger.total
    ledger.settle("other", 1, pytest.fail)
    assert ledger.total < ledger.limit
    assert [mine.wire.status(id) for id in (*ids, running)] == ["-32602"] * 2 + ["completed"] * 2 + ["working"]
    assert [change.task.task_id for change in mine.changes if change.change == "expired"] == ids[:2]


def test_full_ledger_keeps_running_tasks() -> None:
    mine = Mine()
    running = mine.wire.begin()
    ledger = mine.server.ledger
    ledger.limit = ledger.total
    ledger.settle("other", 1, pytest.fail)
    assert mine.wire.status(running) == "working"
