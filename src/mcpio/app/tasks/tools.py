"""Calls of tools that run as tasks: which may, which must, and how one goes on after it was cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcpio.app.tasks.receiver import TaskOptions, TaskReceiver, Work
from mcpio.app.tasks.runs import Nobody, RunningTask, TaskContext, event_of
from mcpio.codec import codec
from mcpio.engine.payloads import encode
from mcpio.errors import ErrorCode, InvalidMessage, RequestError
from mcpio.events import IncomingId, RequestContext, RequestReceived
from mcpio.revisions import REV_2025_11_25
from mcpio.types.lifecycle import ClientCapabilities, Implementation
from mcpio.types.tasks import ServerTaskRequestsCapability, ServerTasksCapability, ToolTasksCapability
from mcpio.types.tools import CallToolRequest

if TYPE_CHECKING:
    from mcpio.app.context import Context
    from mcpio.app.offering.tools import Tools
    from mcpio.app.session import Handler
    from mcpio.app.thread_pool import ThreadPool
    from mcpio.engine.task_records import TaskOrphaned

__all__ = ["ToolTasks"]

_CODEC = codec(REV_2025_11_25)
_CALL = "tools/call"


class ToolTasks(TaskReceiver):
    """The tasks of a server: ``Server.tasks``."""

    def __init__(
        self,
        tools: Tools,
        call: Handler,
        work: Handler,
        options: TaskOptions,
        *,
        page_size: int | None,
        thread_pool: ThreadPool,
    ) -> None:
        """``call`` serves a call that is no task, ``work`` does that of one that is."""
        super().__init__(options, thread_pool, page_size=page_size, resume=self._resumed)
        self.handlers[_CALL] = self._call
        self._tools = tools
        self._plain_call = call
        self._work_call = work

    def capability(self, *, told_apart: bool) -> ServerTasksCapability:
        """Return what is declared (TASK-01). ``told_apart`` says that no client sees another's tasks (TASK-35)."""
        lists = told_apart if self.options.list is None else self.options.list
        takes = any(_support(tool) != "forbidden" for tool in self._tools.everything())
        requests = ServerTaskRequestsCapability(ToolTasksCapability({})) if takes else None
        return ServerTasksCapability({} if lists else None, {}, requests)

    def _call(self, scope: Context, request: CallToolRequest) -> Any:
        """Serve ``tools/call``: as a task where that is asked for, and as ever where it is not (TASK-07)."""
        tool = self._tools.find(request.name)
        support = "optional" if tool is None else _support(tool)
        if tool is None or not self.wants_task(scope, request):
            if support == "required":
                raise RequestError(ErrorCode.METHOD_NOT_FOUND, f"The tool {request.name} only runs as a task")
            return self._plain_call(scope, request)
        if support == "forbidden":
            raise RequestError(ErrorCode.METHOD_NOT_FOUND, f"The tool {request.name} does not run as a task")
        saved = _saved(scope) if tool.resumes else None
        work = self._work(request, scope.session, event_of(scope))
        return self.begin(scope, request, work, saved=saved, immediate=tool.immediate_response)

    def _work(self, request: CallToolRequest, session: Any, event: RequestReceived) -> Work:
        def work(run: RunningTask) -> Any:
            run.scope = scope = TaskContext(run, session, event)
            return self._work_call(scope, request)

        return work

    def _resumed(self, orphan: TaskOrphaned, run: RunningTask) -> tuple[Work, str] | None:
        """Return the work of a call that was cut off: the same function, with the same arguments."""
        try:
            params = orphan.request["params"]
            request = _CODEC.decode(params, CallToolRequest)
            context = RequestContext(
                REV_2025_11_25.era,
                REV_2025_11_25,
                _CODEC.decode(orphan.request["capabilities"], ClientCapabilities),
                _CODEC.decode(orphan.request["info"], Implementation),
                None,
                orphan.owner,
                None,
            )
        except (InvalidMessage, KeyError):
            return None
        tool = self._tools.find(request.name)
        if tool is None or not tool.resumes:
            return None
        raw = {"method": _CALL, "params": params}
        event = RequestReceived(IncomingId(0), request, context, raw, False)
        return self._work(request, run.session or Nobody(), event), _CALL


def _support(tool: Any) -> str:
    execution = tool.description.execution
    return "forbidden" if execution is None else execution.task_support or "forbidden"


def _saved(scope: Context) -> dict[str, Any]:
    """Return what it takes to call again, as JSON."""
    event = event_of(scope)
    return {
        "params": event.raw["params"],
        "capabilities": encode(_CODEC, event.context.capabilities),
        "info": encode(_CODEC, event.context.info),
    }
