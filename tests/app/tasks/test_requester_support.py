"""A client calls each tool in the mode that the server's list gives it. The server is played message by message."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from rawpeer import Played, played_client
from waits import Wait

from mcpio.app.client import Client
from mcpio.errors import LocalProtocolError, RequestError
from mcpio.types import CallToolRequest, CallToolResult, TextContent

TASKS: dict[str, Any] = {"requests": {"tools": {"call": {}}}, "cancel": {}}
DONE: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
RESULT = CallToolResult((TextContent("done"),))
TOOLS: list[dict[str, Any]] = [
    {"name": "absent", "inputSchema": {"type": "object"}},
    {"name": "empty", "inputSchema": {"type": "object"}, "execution": {}},
    *(
        {"name": support, "inputSchema": {"type": "object"}, "execution": {"taskSupport": support}}
        for support in ("forbidden", "optional", "required")
    ),
]


def client(
    tasks: dict[str, Any] | None = TASKS, *, listed: bool = True, revision: str = "2025-11-25"
) -> Played[Client]:
    """Return a client, which knows the server's tools if they are ``listed``."""
    declared = {"tools": {"listChanged": True}, **({} if tasks is None else {"tasks": tasks})}
    played = played_client(declared, revision)
    if listed:
        played.start(played.session.tool("optional"))
        played.answer(played.asked("tools/list"), tools=TOOLS)
    return played


def finish(played: Played[Client], call: Wait[CallToolResult], **wish: Any) -> None:
    """Run a call that asks for a task to its end."""
    message = played.asked("tools/call")
    assert message["params"]["task"] == wish
    times = {"createdAt": "2025-11-25T10:30:00Z", "lastUpdatedAt": "2025-11-25T10:30:00Z", "ttl": None}
    task = {"taskId": "t", **times}
    played.answer(message, task={**task, "status": "working"})
    played.say({"method": "notifications/tasks/status", "params": {**task, "status": "completed"}})
    played.answer(played.asked("tasks/result"), **DONE)
    assert call.result == RESULT


@pytest.mark.req("TASK-06")
@pytest.mark.parametrize("name", ["absent", "empty", "forbidden", "optional"])
def test_tool_with_optional_tasks_is_called_plainly(name: str) -> None:
    played = client()
    call = played.start(played.session.call_tool(name, {"a": 1}))
    message = played.asked("tools/call")
    assert message["params"] == {"name": name, "arguments": {"a": 1}}
    played.answer(message, **DONE)
    assert call.result == RESULT


@pytest.mark.req("TASK-06")
def test_tool_that_requires_a_task_is_called_as_one() -> None:
    played = client()
    call = played.start(played.session.call_tool("required", meta={"x": 1}, timeout=50, retry=False))
    finish(played, call)


@pytest.mark.req("TASK-06", "TASK-07")
def test_unlisted_tool_is_called_and_then_looked_up() -> None:
    played = client(listed=False)
    call = played.start(played.session.call_tool("required"))
    message = played.asked("tools/call")
    assert "task" not in message["params"]
    played.refuse(message, -32601)
    played.answer(played.asked("tools/list"), tools=TOOLS)
    finish(played, call)
    # From here on it is known.
    finish(played, played.start(played.session.call_tool("required")))


FAILED: dict[str, Any] = {**DONE, "isError": True}


@pytest.mark.req("TASK-06", "TASK-07")
def test_failed_result_of_an_unlisted_tool_leads_to_a_task() -> None:
    played = client(listed=False)
    call = played.start(played.session.call_tool("required"))
    played.answer(played.asked("tools/call"), **FAILED)
    played.answer(played.asked("tools/list"), tools=TOOLS)
    finish(played, call)


@pytest.mark.parametrize("name", ["optional", "unknown"])
def test_tool_with_is_error_counts_as_failed(name: str) -> None:
    played = client(listed=False)
    call = played.start(played.session.call_tool(name))
    played.answer(played.asked("tools/call"), **FAILED)
    played.answer(played.asked("tools/list"), tools=TOOLS)
    assert call.result == attrs.evolve(RESULT, is_error=True)
    assert played.got() == []


@pytest.mark.parametrize(
    ("tasks", "listed", "name", "task"),
    [(None, False, "required", None), (TASKS, True, "absent", None), (TASKS, False, "required", False)],
)
def test_failed_result_is_returned_where_a_task_cannot_help(tasks: Any, listed: bool, name: str, task: Any) -> None:
    played = client(tasks, listed=listed)
    call = played.start(played.session.call_tool(name, task=task))
    played.answer(played.asked("tools/call"), **FAILED)
    assert call.result == attrs.evolve(RESULT, is_error=True)
    assert played.got() == []


@pytest.mark.parametrize("name", ["optional", "unknown"])
def test_refusal_for_another_reason_is_raised(name: str) -> None:
    played = client(listed=False)
    call = played.start(played.session.call_tool(name))
    played.refuse(played.asked("tools/call"), -32601, "no such method")
    played.answer(played.asked("tools/list"), tools=TOOLS)
    with pytest.raises(RequestError, match="no such method"):
        _ = call.result


@pytest.mark.parametrize(
    ("tasks", "revision", "task", "code"),
    [
        (None, "2025-11-25", None, -32601),
        ({"list": {}}, "2025-11-25", None, -32601),
        (None, "2025-06-18", None, -32601),
        (TASKS, "2025-11-25", False, -32601),
        (TASKS, "2025-11-25", None, -32602),
    ],
)
def test_tool_is_not_looked_up_if_the_result_cannot_matter(tasks: Any, revision: str, task: Any, code: int) -> None:
    played = client(tasks, listed=False, revision=revision)
    call = played.start(played.session.call_tool("required", task=task))
    played.refuse(played.asked("tools/call"), code)
    with pytest.raises(RequestError):
        _ = call.result
    assert played.got() == []


@pytest.mark.req("TASK-06")
@pytest.mark.parametrize(("task", "wish"), [(True, {}), (60, {"ttl": 60000})])
@pytest.mark.parametrize("name", ["optional", "required"])
@pytest.mark.parametrize("listed", [True, False])
def test_a_caller_may_ask_for_a_task(name: str, task: Any, wish: dict[str, Any], listed: bool) -> None:
    played = client(listed=listed)
    call = played.start(played.session.call_tool(name, task=task))
    if not listed:
        played.answer(played.asked("tools/list"), tools=TOOLS)
    finish(played, call, **wish)


@pytest.mark.req("TASK-06")
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("absent", "must not be a task, says the server"),
        ("empty", "must not be a task, says the server"),
        ("forbidden", "must not be a task, says the server"),
        ("unknown", "must not be a task: the server does not list it"),
    ],
)
def test_tool_with_forbidden_task_support_is_called_plainly(name: str, fault: str) -> None:
    played = client()
    for call in (
        played.start(played.session.call_tool(name, task=True)),
        played.start(played.session.start_task(CallToolRequest(name))),
    ):
        with pytest.raises(LocalProtocolError, match=f"^tool '{name}' {fault}$"):
            _ = call.result
    assert played.got() == []


@pytest.mark.req("TASK-05")
@pytest.mark.parametrize("tasks", [None, {}, {"requests": {}}])
def test_task_support_without_the_capability_is_ignored(tasks: Any) -> None:
    played = client(tasks)
    with pytest.raises(LocalProtocolError, match=r"tasks\.requests\.tools\.call"):
        _ = played.start(played.session.call_tool("optional", task=True)).result
    call = played.start(played.session.call_tool("required"))
    assert "task" not in played.asked("tools/call")["params"]
    assert call.state == "waits"


def test_tool_that_no_longer_requires_a_task_is_called_plainly() -> None:
    played = client()
    call = played.start(played.session.call_tool("empty"))
    played.answer(played.asked("tools/call"), **DONE)
    assert call.result == RESULT
    played.say({"method": "notifications/tools/list_changed"})
    call = played.start(played.session.call_tool("required"))
    played.answer(played.asked("tools/call"), **DONE)
    assert call.result == RESULT


@pytest.mark.req("CANC-04")
def test_cancelled_call_cancels_its_task() -> None:
    played = client()
    call = played.start(played.session.call_tool("required"))
    message = played.asked("tools/call")
    times = {"createdAt": "2025-11-25T10:30:00Z", "lastUpdatedAt": "2025-11-25T10:30:00Z", "ttl": None}
    played.answer(message, task={"taskId": "t", "status": "working", **times})
    call.cancel()
    assert played.asked("tasks/cancel")["params"] == {"taskId": "t"}
