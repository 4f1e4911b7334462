"""A client as the receiver of tasks: its server asks for a message or a form, and comes back for it (TASK-31)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mcpio.app.middleware import Middleware, wrapped
from mcpio.app.tasks.receiver import TaskOptions, TaskReceiver
from mcpio.app.tasks.runs import RunningTask, TaskScope, event_of
from mcpio.types.tasks import (
    ClientTaskRequestsCapability,
    ClientTasksCapability,
    ElicitationTasksCapability,
    SamplingTasksCapability,
)

if TYPE_CHECKING:
    from mcpio.app.context import RequestScope
    from mcpio.app.session import Handler
    from mcpio.app.thread_pool import ThreadPool

__all__ = ["ClientTasks", "client_tasks_capability"]

_METHODS: Final = ("sampling/createMessage", "elicitation/create")


def client_tasks_capability(options: TaskOptions, *, sampling: bool, elicitation: bool) -> ClientTasksCapability:
    """Return what a client declares that answers such questions. It has one server, so that nothing is mixed up."""
    requests = ClientTaskRequestsCapability(
        SamplingTasksCapability({}) if sampling else None,
        ElicitationTasksCapability({}) if elicitation else None,
    )
    return ClientTasksCapability(None if options.list is False else {}, {}, requests)


class ClientTasks(TaskReceiver):
    """The tasks of a client."""

    def __init__(
        self,
        options: TaskOptions,
        thread_pool: ThreadPool,
        handlers: Mapping[str, Handler],
        layers: Sequence[Middleware],
    ) -> None:
        """``handlers`` serve what is no task, ``layers`` stand around the work of what is one too."""
        super().__init__(options, thread_pool)
        for method in _METHODS:
            if method in handlers:
                self.handlers[method] = partial(self._serve, handlers[method])
        self._layers = layers

    def _serve(self, handler: Handler, scope: RequestScope, request: Any) -> Any:
        """Serve a question: as a task where that is asked for."""
        if not self.wants_task(scope, request):
            return handler(scope, request)

        def work(run: RunningTask) -> Any:
            run.scope = TaskScope(run, scope.session, event_of(scope))
            return wrapped(handler, self._layers)(run.scope, request)

        return self.begin(scope, request, work)
