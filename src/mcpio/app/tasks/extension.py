"""Tasks for stateless clients: the extension ``io.modelcontextprotocol/tasks`` of 2026-07-28.

The tasks are those of ``mcpio.app.tasks.receiver``, seen in another way. The server decides which calls become tasks,
and a task keeps its questions until ``tasks/update`` brings the answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from mcpio.app.awaitables import is_awaitable
from mcpio.app.rounds import Leave, without_leaving
from mcpio.codec import codec
from mcpio.engine.payloads import encode
from mcpio.errors import CapabilityMissing, ErrorCode, InvalidMessage, RequestError
from mcpio.methods import METHODS, declares
from mcpio.revisions import REV_2026_07_28
from mcpio.types.meta import TASKS_EXTENSION
from mcpio.types.task_extension import (
    CreatedTask,
    DetailedTask,
    TaskNotification,
    TaskReference,
    TaskUpdate,
)
from mcpio.types.tools import CallToolResult

if TYPE_CHECKING:
    from mcpio.app.contracts import Handler, HandlerScope
    from mcpio.app.registry.tools import FunctionTool, Tools
    from mcpio.engine.task_records import TaskLook, TaskOutcome
    from mcpio.types.custom import CustomRequest
    from mcpio.types.lifecycle import ClientCapabilities
    from mcpio.types.tasks import Task
    from mcpio.types.tools import CallToolRequest

__all__ = ["TaskExtension", "check_takes_tasks", "created_task", "task_notification"]

_CAPABILITY: Final = ("extensions", TASKS_EXTENSION)
_CODEC: Final = codec(REV_2026_07_28)


def check_takes_tasks(client: ClientCapabilities | Any) -> None:
    """Raise CapabilityMissing, which is answered by -32021, unless a client declared the extension (XTASK-01)."""
    if not declares(client, _CAPABILITY):
        raise CapabilityMissing(f"the client did not declare the extension {TASKS_EXTENSION}", _CAPABILITY)


class Tasks(Protocol):
    """A server's tasks, as far as stateless clients need them. A ``RequestError`` is the answer to their request."""

    async def begin_stateless(
        self, scope: HandlerScope, request: CallToolRequest, tool: FunctionTool, *, must: bool
    ) -> CreatedTask | TaskOutcome:
        """Run a call as a task, or return its outcome if it may be a plain call and ends soon."""

    async def look(self, scope: HandlerScope, id: str) -> TaskLook:
        """Return a task with its questions and its outcome."""

    async def answer(self, scope: HandlerScope, id: str, answers: Mapping[str, Any]) -> None:
        """Answer questions of a task."""

    async def cancel(self, scope: HandlerScope, id: str) -> Task:
        """Cancel a task."""


class TaskExtension:
    """Serves stateless clients from a server's tasks."""

    def __init__(self, tasks: Tasks, tools: Tools, call: Handler) -> None:
        """``call`` serves a plain tools/call."""
        self._tasks = tasks
        self._tools = tools
        self._plain_call = call
        self.handlers: dict[str, Handler] = {
            "tasks/get": self._get,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel,
        }

    def call(self, scope: HandlerScope, request: CallToolRequest) -> Any:
        """Serve ``tools/call``: as a task if the tool and the client want that (XTASK-01, XTASK-02).

        ``params.task`` is another revision's, and ignored (XTASK-12).
        """
        tool = self._tools.find(request.name, scope)
        execution = None if tool is None else tool.description.execution
        support = "forbidden" if execution is None else execution.task_support
        if support == "required":
            check_takes_tasks(scope.peer.capabilities)
        if tool is None or support == "forbidden" or not declares(scope.peer.capabilities, _CAPABILITY):
            return self._plain_call(scope, request)
        if tool.becomes_task:
            return self._until_task(scope, request, tool)
        return self._as_task(scope, request, tool, must=support == "required")

    async def _until_task(self, scope: HandlerScope, request: CallToolRequest, tool: FunctionTool) -> Any:
        """Run the tool as a plain call until it asks to become a task (XTASK-15)."""
        driving: Any = scope.driving
        driving.flow.may_become_task = True
        try:
            result = self._plain_call(scope, request)
            return await result if is_awaitable(result) else result
        except (Leave, BaseExceptionGroup) as error:
            if not driving.flow.becomes_task or not isinstance(without_leaving(error), Leave):
                raise
        return await self._as_task(scope, request, tool, must=True)

    async def _as_task(self, scope: HandlerScope, request: CallToolRequest, tool: FunctionTool, *, must: bool) -> Any:
        """Run the tool as a task. If it may be a plain call and ends soon, return its result instead."""
        answer = await self._tasks.begin_stateless(scope, request, tool, must=must)
        if isinstance(answer, CreatedTask):
            return answer
        return _CODEC.decode(result_of(answer), CallToolResult)

    async def _get(self, scope: HandlerScope, request: CustomRequest) -> Mapping[str, Any]:
        look = await self._tasks.look(scope, self._params(scope, request, TaskReference).task_id)
        return encode(_CODEC, DetailedTask(**_detailed(look)))

    async def _update(self, scope: HandlerScope, request: CustomRequest) -> Mapping[str, Any]:
        update = self._params(scope, request, TaskUpdate)
        look = await self._tasks.look(scope, update.task_id)
        for key, question in look.inputs.items():
            if key in update.input_responses:
                _check_answer(key, question, update.input_responses[key])
        await self._tasks.answer(scope, update.task_id, update.input_responses)
        return {}

    async def _cancel(self, scope: HandlerScope, request: CustomRequest) -> Mapping[str, Any]:
        id = self._params(scope, request, TaskReference).task_id
        try:
            await self._tasks.cancel(scope, id)
        except RequestError as error:
            if "status" not in error.data:
                raise
            # It is over, which needs no more (XTASK-10).
        return {}

    def _params(self, scope: HandlerScope, request: Any, kind: type[Any]) -> Any:
        """Return the params of a request. Raises RequestError for malformed ones, and CapabilityMissing (XTASK-12)."""
        check_takes_tasks(scope.peer.capabilities)
        try:
            return _CODEC.decode(request.params, kind)
        except InvalidMessage as error:
            path = f"params.{error.path}" if error.path else "params"
            text = f"Invalid params: {path}: {error.reason}"
            raise RequestError(ErrorCode.INVALID_PARAMS, text, {"path": path}) from None


def created_task(task: Task) -> CreatedTask:
    """Return the answer to a call that continues as a task."""
    return CreatedTask(**_members(task))


def result_of(outcome: TaskOutcome) -> dict[str, Any]:
    """Return the result of a call that was over soon. Raises its error."""
    if outcome.error is not None:
        raise RequestError(outcome.error.code, outcome.error.message, outcome.error.data)
    return {"resultType": "complete", **(outcome.result or {})}


def task_notification(look: TaskLook) -> TaskNotification:
    """Return the notification of a task's state: what ``tasks/get`` would return (XTASK-11)."""
    return TaskNotification(**_detailed(look))


def _detailed(look: TaskLook) -> dict[str, Any]:
    """Return the members of a task, with those of its status. One whose tool failed is ``completed`` (XTASK-07)."""
    members, outcome = _members(look.task), look.outcome
    if look.task.status == "input_required":
        questions = {
            key: _CODEC.decode(said["params"], METHODS[said["method"]].params_type) for key, said in look.inputs.items()
        }
        # All of them may just have been answered, and the work not gone on yet.
        members |= {"input_requests": questions} if questions else {"status": "working"}
    elif outcome is not None and look.task.status != "cancelled":
        if outcome.error is None:
            members |= {"status": "completed", "result": result_of(outcome)}
        else:
            error = {"code": outcome.error.code, "message": outcome.error.message}
            data = {} if outcome.error.data is None else {"data": outcome.error.data}
            members |= {"status": "failed", "error": {**error, **data}}
    return members


def _members(task: Task) -> dict[str, Any]:
    return {
        "task_id": task.task_id,
        "status": task.status,
        "created_at": task.created_at,
        "last_updated_at": task.last_updated_at,
        "ttl_ms": None if task.ttl is None else int(task.ttl),
        "status_message": task.status_message,
        "poll_interval_ms": None if task.poll_interval is None else max(int(task.poll_interval), 1),
    }


def _check_answer(key: str, question: Mapping[str, Any], answer: Any) -> None:
    """Raise RequestError if an answer does not fit its question."""
    try:
        _CODEC.decode(answer, METHODS[question["method"]].result_type)
    except InvalidMessage as error:
        path = f"params.inputResponses.{key}"
        text = f"Invalid params: {path}: {error}"
        raise RequestError(ErrorCode.INVALID_PARAMS, text, {"path": path}) from None
