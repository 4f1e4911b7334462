"""A client that is asked for messages and forms as tasks, seen from the wire (TASK-31)."""

from __future__ import annotations

from typing import Any

import pytest
from linked import Link
from tasked import Wire

from mcpio.app.context import RequestScope
from mcpio.app.server import Server
from mcpio.app.tasks.receiver import TaskOptions
from mcpio.engine.table import Role
from mcpio.errors import SamplingRejected
from mcpio.types import CreateMessageResult, ElicitResult, TextContent

RELATED = "io.modelcontextprotocol/related-task"
SAMPLE: dict[str, Any] = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 5}
FORM: dict[str, Any] = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}


class Asked:
    """A client whose model and user take their time, and the wire to it."""

    def __init__(self, **options: Any) -> None:
        self.waiting: list[Any] = []
        self.scopes: list[RequestScope] = []
        self.layers: list[str] = []
        self.link = Link(
            Server("s"),
            sampling=self._take_time,
            elicitation=self._take_time,
            **{"tasks": TaskOptions(), **options},
            era="handshake",
        )
        self.wire = Wire(self.link, Role.CLIENT)

    async def _take_time(self, scope: RequestScope, request: Any) -> Any:
        self.scopes.append(scope)
        self.waiting.append(scope.session.driver.runtime.one_shot())
        found = await self.waiting[-1].wait()
        if isinstance(found, Exception):
            raise found
        return found

    async def layer(self, scope: Any, request: Any, call_next: Any) -> Any:
        self.layers.append(type(scope).__name__)
        return await call_next(request)

    def answer(self, found: Any) -> None:
        self.waiting.pop(0).set(found)
        self.wire.look()

    def begin(self, method: str = "elicitation/create", **params: Any) -> str:
        found = self.wire.ask(method, **{**(FORM if "elicit" in method else SAMPLE), "task": {"ttl": 5000}, **params})
        id: str = found["task"]["taskId"]
        return id


@pytest.mark.req("TASK-01")
@pytest.mark.parametrize(("chosen", "lists"), [(None, {}), (True, {}), (False, None)])
def test_client_capability_follows_the_options(chosen: bool | None, lists: Any) -> None:
    asked = Asked(tasks=TaskOptions(list=chosen))
    tasks = asked.link.client.connection.capabilities.tasks
    assert (tasks.list, tasks.cancel) == (lists, {})
    assert (tasks.requests.sampling.create_message, tasks.requests.elicitation.create) == ({}, {})
    only = Link(Server("s"), tasks=TaskOptions()).client.connection.capabilities.tasks.requests
    assert (only.sampling, only.elicitation) == (None, None)
    assert Link(Server("s")).client.connection.capabilities.tasks is None


@pytest.mark.req("TASK-09", "TASK-20", "TASK-21", "TASK-22", "TASK-31")
def test_a_server_polls_a_form_and_fetches_it() -> None:
    asked = Asked()
    id = asked.begin(_meta={"progressToken": 7})
    assert asked.wire.status(id) == "working"
    asked.scopes[0].progress(1)
    asked.wire.look()
    assert asked.wire.notes("progress")[0]["_meta"] == {RELATED: {"taskId": id}}
    waits = asked.wire.send("tasks/result", taskId=id)
    assert asked.wire.answer_to(waits) is None
    asked.answer(ElicitResult("decline"))
    answer = asked.wire.answer_to(waits)
    assert answer is not None
    assert answer["result"] == {"action": "decline", "_meta": {RELATED: {"taskId": id}}}
    assert [each["taskId"] for each in asked.wire.ask("tasks/list")["tasks"]] == [id]
    assert [each["status"] for each in asked.wire.notes("tasks/status")] == ["completed"]


@pytest.mark.req("TASK-15", "TASK-31")
def test_a_server_asks_for_a_message_as_a_task() -> None:
    asked = Asked()
    id = asked.begin("sampling/createMessage")
    asked.answer(CreateMessageResult("assistant", TextContent("Hello"), "model"))
    assert asked.wire.ask("tasks/result", taskId=id)["content"] == {"type": "text", "text": "Hello"}
    refused = asked.begin("sampling/createMessage")
    asked.answer(SamplingRejected())
    assert (asked.wire.status(refused), asked.wire.ask("tasks/result", taskId=refused)["code"]) == ("failed", -1)


@pytest.mark.req("TASK-25", "TASK-31")
def test_server_cancels_its_task_at_the_client() -> None:
    asked = Asked()
    id = asked.begin()
    assert asked.wire.ask("tasks/cancel", taskId=id)["status"] == "cancelled"
    assert asked.scopes[0].cancelled


@pytest.mark.req("TASK-03")
@pytest.mark.parametrize("options", [{}, {"tasks": None}])
def test_plain_request_is_answered_as_usual(options: Any) -> None:
    asked = Asked(**options)
    more = {} if not options else {"task": {"ttl": 5000}}
    id = asked.wire.send("elicitation/create", **FORM, **more)
    asked.answer(ElicitResult("cancel"))
    answer = asked.wire.answer_to(id)
    assert answer is not None
    assert answer["result"] == {"action": "cancel"}


def test_middleware_runs_around_the_question_and_around_the_work() -> None:
    asked = Asked()
    other = Asked(handler_middleware=[asked.layer])
    other.begin()
    assert asked.layers == ["RequestScope", "TaskScope"]


@pytest.mark.parametrize("failure", [ValueError("broken"), "no result"])
def test_failing_handler_fails_its_task(failure: Any) -> None:
    asked = Asked()
    id = asked.begin()
    asked.answer(failure)
    assert asked.wire.ask("tasks/result", taskId=id) == {"code": -32603, "message": "Internal error"}
    assert "the task of elicitation/create failed" in asked.link.reports


def test_the_tasks_of_a_client_end_with_its_connection() -> None:
    asked = Asked()
    asked.begin()
    asked.link.pair.client.abort()
    asked.link.run()
    assert asked.scopes[0].cancelled
