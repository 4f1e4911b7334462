"""The calls for tasks are the same on both sides. What they do is in ``test_task_handle``."""

from __future__ import annotations

from typing import Any

import pytest
from rawpeer import Played, played_client, played_server
from waits import Wait

from mcpio.app.server import Server
from mcpio.app.tasks.calls import TaskCalls
from mcpio.app.tasks.requester import TaskHandle
from mcpio.errors import LocalProtocolError
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitResult,
    ListTasksResult,
    Task,
)

TASK = {"createdAt": "2025-11-25T10:30:00Z", "lastUpdatedAt": "2025-11-25T10:30:00Z", "ttl": None, "taskId": "t"}
MESSAGE = {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}


def sides() -> list[Played[Any]]:
    keeps: dict[str, Any] = {"list": {}, "cancel": {}}
    server = {"tools": {}, "tasks": {**keeps, "requests": {"tools": {"call": {}}}}}
    client = {"sampling": {}, "tasks": {**keeps, "requests": {"sampling": {"createMessage": {}}}}}
    return [played_client(server), played_server(Server("s"), client)]


@pytest.mark.req("TASK-31")
@pytest.mark.parametrize("side", [0, 1], ids=["client", "server"])
def test_each_call_asks_the_peer(side: int) -> None:
    played = sides()[side]
    session: TaskCalls = played.session
    typed: type[Any] = (CallToolResult, CreateMessageResult)[side]
    answer: dict[str, Any] = ({"content": []}, MESSAGE)[side]

    def ask(call: Any, *messages: tuple[str, dict[str, Any]]) -> Any:
        asking: Wait[Any] = played.start(call)
        for method, result in messages:
            played.answer(played.asked(method), **result)
        return asking.result

    state = {**TASK, "status": "completed"}
    assert isinstance(ask(session.get_task("t"), ("tasks/get", state)), Task)
    assert isinstance(ask(session.cancel_task("t"), ("tasks/cancel", {**TASK, "status": "cancelled"})), Task)
    assert isinstance(ask(session.list_tasks(), ("tasks/list", {"tasks": [state]})), ListTasksResult)
    assert isinstance(ask(session.task_result("t", typed), ("tasks/get", state), ("tasks/result", answer)), typed)

    async def all_of_them() -> list[Task]:
        return [task async for task in session.tasks()]

    malformed = ask(all_of_them(), ("tasks/list", {"tasks": [state, 5]}))
    assert [task.task_id for task in malformed] == ["t"]
    assert len(played.reports) == 1


def test_server_starts_a_sampling_task() -> None:
    played = sides()[1]
    started: Wait[TaskHandle[ElicitResult]] = played.start(
        played.session.start_task(CreateMessageRequest((), 5), ttl=1, timeout=5)
    )
    message = played.asked("sampling/createMessage")
    assert message["params"] == {"messages": [], "maxTokens": 5, "task": {"ttl": 1000}}
    played.answer(message, task={**TASK, "status": "working"})
    assert started.result.id == "t"


def test_id_that_no_task_can_have_is_refused() -> None:
    played = sides()[0]
    wrong: Any = 5
    with pytest.raises(TypeError, match=r"^id must be str, not 5$"):
        played.session.task(wrong)
    with pytest.raises(ValueError, match=r"^id must be the id of a task, not an empty str$"):
        played.session.task("")
    with pytest.raises(ValueError, match=r"^id must be the id of a task"):
        _ = played.start(played.session.task_result("")).result


def test_request_that_cannot_be_a_task_is_refused() -> None:
    played = sides()[0]
    started = played.start(played.session.start_task(CallToolRequest("x")))
    played.answer(played.asked("tools/list"), tools=[])
    with pytest.raises(LocalProtocolError, match="the server does not list it"):
        _ = started.result


def test_session_without_tasks_has_no_task_state() -> None:
    played = sides()[0]
    assert played.session._task_watch is None
    played.say({"method": "notifications/tasks/status", "params": {**TASK, "status": "working"}})
    played.start(played.session.call_tool("x"))
    played.answer(played.asked("tools/call"), content=[{"type": "text", "text": "x"}])
    assert played.session._task_watch is None
    handle = played.session.task("t", on_status=lambda _: None)
    assert isinstance(handle, TaskHandle)
