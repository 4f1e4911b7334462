"""Whether a client calls a tool as a task: its server says of each tool that it may, must or must not be (TASK-06)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from mcpio.app.peer_tasks.watch import run_task
from mcpio.engine.gates import why_no_task
from mcpio.errors import RequestError
from mcpio.methods import METHODS
from mcpio.types.tools import CallToolRequest, CallToolResult, TaskSupport, Tool

if TYPE_CHECKING:
    from mcpio.app.client import CallOptions, Client

__all__ = ["call_as_task", "fault_in_task"]


async def call_as_task(
    client: Client,
    request: CallToolRequest,
    task: bool | float | None,
    call: CallOptions,
    refusal: RequestError | CallToolResult | None,
) -> CallToolResult:
    """Call a tool as a task and return its result. ``None`` for ``task`` asks for that only if the tool must be one.

    ``refusal`` is what the server said to a plain call. If the tool need not be a task, it is raised or returned.
    """
    options: Any = {**call}
    meta = options.pop("meta", None)
    if meta is not None:
        request = attrs.evolve(request, meta=meta)
    retry = options.pop("retry", None)
    if task is None and not await _must_be_task(client, request):
        if isinstance(refusal, RequestError):
            raise refusal
        plain: CallToolResult = refusal or await client.request(request, retry=retry, **options)
        return plain
    result: CallToolResult = await run_task(client, True if task is None else task, request, **options)
    return result


async def fault_in_task(client: Client, request: Any) -> str | None:
    """Return why a request must not be a task, or ``None``."""
    if not isinstance(request, CallToolRequest) or _unsupported(client):
        return None  # the engine says what is wrong
    tool = await client.tool(request.name)
    if tool is None:
        return f"tool {request.name!r:.100} must not be a task: the server does not list it"
    if _support(tool) == "forbidden":
        return f"tool {request.name!r:.100} must not be a task, says the server"
    return None


async def _must_be_task(client: Client, request: CallToolRequest) -> bool:
    if _unsupported(client):
        return False
    tool = await client.tool(request.name)
    return tool is not None and _support(tool) == "required"


def _unsupported(client: Client) -> bool:
    connection = client.connection
    revision = connection.revision
    return revision is None or why_no_task(METHODS["tools/call"], revision, client.server.capabilities) is not None


def _support(tool: Tool) -> TaskSupport:
    support = None if tool.execution is None else tool.execution.task_support
    return support or "forbidden"
