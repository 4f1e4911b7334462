"""Tasks at a peer that a test plays: how they begin, and what the peer says of them."""

from __future__ import annotations

from typing import Any

from rawpeer import Played, played_client
from waits import Wait

from mcpio.app.client import Client
from mcpio.app.tasks.requester import TaskHandle
from mcpio.types import CallToolRequest

RELATED = "io.modelcontextprotocol/related-task"
TOOL_TASKS: dict[str, Any] = {"requests": {"tools": {"call": {}}}, "cancel": {}, "list": {}}
CALL = CallToolRequest("slow")
DONE: dict[str, Any] = {"content": [{"type": "text", "text": "done"}], "_meta": {RELATED: {"taskId": "t1"}}}


def state(status: str = "working", id: str = "t1", **more: Any) -> dict[str, Any]:
    times = {"createdAt": "2025-11-25T10:30:00Z", "lastUpdatedAt": "2025-11-25T10:30:00Z"}
    return {"taskId": id, "status": status, **times, "ttl": None, "pollInterval": 2000, **more}


def told(status: str, **more: Any) -> dict[str, Any]:
    return {"method": "notifications/tasks/status", "params": state(status, **more)}


def client(
    tasks: dict[str, Any] | None = TOOL_TASKS, support: str | None = "optional", **options: Any
) -> Played[Client]:
    """Return a client whose server has one tool, which the client knows."""
    declared = {"tools": {"listChanged": True}, **({} if tasks is None else {"tasks": tasks})}
    played = played_client(declared, **options)
    tool: dict[str, Any] = {"name": "slow", "inputSchema": {"type": "object"}}
    if support is not None:
        tool["execution"] = {"taskSupport": support}
    known = played.start(played.session.tool("slow"))
    played.answer(played.asked("tools/list"), tools=[tool])
    assert known.result is not None
    return played


def begin(
    played: Played[Any], request: Any = CALL, created: dict[str, Any] | None = None, **options: Any
) -> TaskHandle[Any]:
    """Start a task and return its handle."""
    started: Wait[TaskHandle[Any]] = played.start(played.session.start_task(request, **options))
    (message,) = played.got()
    played.answer(message, task=created or state())
    return started.result
