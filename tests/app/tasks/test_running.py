"""What a handler that runs as a task can do: ask its requestor, use threads, and go on without a session."""

from __future__ import annotations

from typing import Any

import pytest
from linked import Link
from tasked import Host, Wire

from mcpio.app.context import Context, TaskContext, TaskScope
from mcpio.app.server import Server
from mcpio.app.tasks.receiver import DisconnectedSession, TaskOptions, TaskRun
from mcpio.app.tasks.store import MemoryTaskStore
from mcpio.errors import LocalProtocolError, NoBackChannel, RequestError
from mcpio.types import (
    CreateMessageRequest,
    CreateMessageResult,
    ElicitationCapability,
    ElicitFormRequest,
    ElicitResult,
    ElicitSchema,
    Root,
    SamplingCapability,
    SamplingMessage,
    TextContent,
)
from mcpio.types.features import ClientCapabilities

RELATED = "io.modelcontextprotocol/related-task"
QUESTION = ElicitFormRequest("How deep?", ElicitSchema({}))


class Asking:
    """A server whose tool asks twice, one question after the other, and the wire to it."""

    def __init__(self, **options: Any) -> None:
        self.server = Server("s", tasks=TaskOptions(**options))
        self.heard: list[Any] = []

        @self.server.tool(task_support="optional", resume=bool(options))
        async def dig(ctx: Context, times: int = 1) -> str:
            for _ in range(times):
                try:
                    answer = await ctx.elicit(QUESTION, timeout=None)
                except Exception as error:
                    self.heard.append(error)
                    raise
                self.heard.append(answer.action)
            return "done"

        self.wire = self.connect()

    def connect(self) -> Wire:
        """Connect a client whose questions are answered, or not, by hand."""
        asks = ClientCapabilities(elicitation=ElicitationCapability())
        link = Link(
            self.server, capabilities=asks, elicitation=lambda scope, request: self._wait(scope), era="handshake"
        )
        return Wire(link)

    async def _wait(self, scope: Any) -> Any:
        return await scope.session.driver.runtime.one_shot().wait()


def questions(wire: Wire) -> list[dict[str, Any]]:
    return wire.requests("elicitation/create")


def answer(wire: Wire, question: dict[str, Any], action: str = "decline") -> None:
    wire.feed(id=question["id"], result={"action": action})


@pytest.mark.req("TASK-16", "TASK-17", "TASK-20", "TASK-28")
def test_request_goes_to_the_session_that_awaits_the_result() -> None:
    asking = Asking()
    wire = asking.wire
    id = wire.begin(arguments={"times": 2})
    assert (wire.status(id), questions(wire)) == ("input_required", [])
    waits = wire.send("tasks/result", taskId=id)
    (question,) = questions(wire)
    assert question["params"]["_meta"] == {RELATED: {"taskId": id}}
    assert (wire.status(id), wire.answer_to(waits)) == ("input_required", None)
    answer(wire, question)
    assert [each["status"] for each in wire.notes("tasks/status")] == ["input_required", "working", "input_required"]
    answer(wire, questions(wire)[1])
    assert asking.heard == ["decline", "decline"]
    found = wire.answer_to(waits)
    assert found is not None
    assert (found["result"]["content"][0]["text"], wire.status(id)) == ("done", "completed")


@pytest.mark.req("TASK-16", "TASK-20")
def test_request_waits_for_the_next_tasks_result() -> None:
    asking = Asking()
    wire = asking.wire
    id = wire.begin()
    # One that is given up again is no way to ask.
    gone = wire.send("tasks/result", taskId=id)
    (first,) = questions(wire)
    answer(wire, first)
    assert asking.heard == ["decline"]
    assert wire.answer_to(gone) is not None
    second = wire.begin(arguments={"times": 1})
    gone = wire.send("tasks/result", taskId=second)
    wire.feed(method="notifications/cancelled", params={"requestId": gone})
    third = wire.begin()
    assert wire.status(third) == "input_required"
    assert len(questions(wire)) == 2


def test_error_answer_of_the_requestor_raises_in_the_handler() -> None:
    asking = Asking()
    wire = asking.wire
    id = wire.begin()
    wire.send("tasks/result", taskId=id)
    wire.feed(id=questions(wire)[0]["id"], error={"code": -5, "message": "no form"})
    assert isinstance(asking.heard[0], RequestError)
    assert wire.ask("tasks/result", taskId=id)["isError"]


@pytest.mark.req("TASK-25")
def test_cancelled_task_cancels_its_open_question() -> None:
    asking = Asking()
    wire = asking.wire
    id = wire.begin()
    wire.send("tasks/result", taskId=id)
    wire.ask("tasks/cancel", taskId=id)
    # Nobody waits for the answer to its question any more.
    assert [each["requestId"] for each in wire.notes("cancelled")] == [questions(wire)[0]["id"]]
    assert wire.status(id) == "cancelled"


def test_a_question_is_asked_again_where_the_connection_ended() -> None:
    asking = Asking()
    first, second = asking.wire, asking.connect()
    assert asking.server.tasks is not None
    host = Host(second.link)
    asking.server.tasks.attach(host)
    id = first.begin()
    second.look()
    first.send("tasks/result", taskId=id)
    second.look()
    first.look()
    assert len(questions(first)) == 1
    first.link.pair.server.abort()
    first.link.run()
    second.look()
    assert (second.status(id), questions(second)) == ("input_required", [])
    waits = second.send("tasks/result", taskId=id)
    answer(second, questions(second)[0])
    assert (asking.heard, second.answer_to(waits) is not None) == (["decline"], True)
    asking.server.tasks.detach(host)
    asking.server.tasks.detach(host)


def test_unsendable_request_raises_in_the_handler() -> None:
    asking = Asking()
    wire = asking.wire
    wire.link.pair.server.can_reach = lambda via: False
    id = wire.begin()
    wire.send("tasks/result", taskId=id)
    assert isinstance(asking.heard[0], NoBackChannel)
    assert wire.status(id) == "failed"


def test_finished_task_cannot_send_requests() -> None:
    asking = Asking()
    contexts: list[Context] = []

    @asking.server.tool(task_support="optional")
    def quick(ctx: Context) -> str:
        contexts.append(ctx)
        return "done"

    asking.wire.begin("quick")
    asking.wire.link.start(contexts[0].elicit(QUESTION))
    ask = asking.wire.link.start(contexts[0].elicit(QUESTION))
    assert isinstance(ask.error, LocalProtocolError)


# Threads, state and reports


def test_a_task_may_run_in_a_thread() -> None:
    server = Server("s")
    seen: list[Any] = []

    @server.tool(task_support="optional", blocking=True)
    def dig(ctx: Context) -> str:
        ctx.progress(1)
        ctx.info("deep")
        seen.append(ctx.state)
        return "done"

    wire = Wire(Link(server, state="the state", era="handshake"))
    id = wire.begin(_meta={"progressToken": 5})
    assert wire.status(id) == "completed"
    assert (seen, len(wire.notes("progress")), len(wire.notes("message"))) == (["the state"], 1, 1)


def test_plain_request_is_not_a_task() -> None:
    server = Server("s")
    seen: list[Any] = []

    @server.tool
    def dig(ctx: Context) -> str:
        seen.append(ctx.task)
        return "done"

    assert Link(server).text("dig") == "done"
    assert seen == [None]


def test_the_work_of_a_host_outlives_its_session() -> None:
    server = Server("s")
    contexts: list[Context] = []
    done: list[Any] = []

    @server.tool(task_support="optional")
    async def dig(ctx: Context) -> str:
        contexts.append(ctx)
        task: Any = ctx.task
        done.append(task.host.runtime.one_shot() if task else None)
        found: str = await done[-1].wait()
        return found

    first, second = (
        Wire(Link(server, principal="ada", era="handshake")),
        Wire(Link(server, principal="ada", era="handshake")),
    )
    assert server.tasks is not None
    host = Host(second.link)
    server.tasks.attach(host, "host's")
    id = first.begin(_meta={"progressToken": 5})
    second.look()
    first.link.pair.server.abort()
    first.link.run()
    assert (second.status(id), contexts[0].state) == ("working", "host's")
    contexts[0].progress(1)
    contexts[0].info("nobody hears")
    done[0].set("gold")
    second.look()
    assert second.ask("tasks/result", taskId=id)["content"][0]["text"] == "gold"
    assert isinstance(contexts[0], TaskContext)
    contexts[0]._report("a report", OSError())
    assert host.reports == ["a report"]
    server.tasks.detach(host)


def test_resumed_work_without_a_session_asks_where_its_result_is_waited_for() -> None:
    store, told = MemoryTaskStore(), list[str]()

    def process() -> Server:
        server = Server("s", tasks=TaskOptions(store=store))

        @server.tool(task_support="required", resume=True)
        async def work(ctx: Context) -> None:
            request = CreateMessageRequest((SamplingMessage("user", TextContent("?")),), 10)
            if ctx.task is None or not ctx.task.is_resumed:
                await ctx.sleep(1000)
            told.append((await ctx.elicit(QUESTION)).action)
            told.append((await ctx.elicit_url("Go", "https://example.com")).action)
            told.append((await ctx.roots())[0].uri)
            told.append((await ctx.sample_with_tools(request, [])).text)

        return server

    id = Wire(Link(process(), era="handshake")).begin("work")
    server, elsewhere = process(), Link(Server("other"))
    assert server.tasks is not None
    server.tasks.attach(Host(elsewhere))
    elsewhere.run()
    link = Link(
        server,
        era="handshake",
        elicitation=lambda *_: ElicitResult("decline"),
        sampling=lambda *_: CreateMessageResult("assistant", TextContent("hi"), "m"),
        roots=[Root("file:///a")],
        capabilities=ClientCapabilities(
            elicitation=ElicitationCapability(form={}, url={}), sampling=SamplingCapability(tools={})
        ),
    )
    result = link.start(link.client.task(id).result())
    for _ in range(10):
        elsewhere.run()
        link.run()
    assert not result.result.is_error
    assert told == ["decline", "decline", "file:///a", "hi"]


def test_a_resumed_task_of_an_absent_requestor_has_no_session() -> None:
    nobody = DisconnectedSession()
    with pytest.raises(NoBackChannel, match="its requestor is not connected"):
        nobody.connection  # noqa: B018  # the look is what fails
    assert not hasattr(nobody, "__len__")


def test_a_resumed_task_asks_when_its_requestor_is_back() -> None:
    asking = Asking(owner=lambda principal: "ada")
    tasks = asking.server.tasks
    assert tasks is not None
    id = asking.wire.begin()
    asking.wire.link.pair.server.abort()
    asking.wire.link.run()
    again = asking.connect()
    again.send("tasks/result", taskId=id)
    again.look()
    assert len(questions(again)) == 1
    answer(again, questions(again)[0])
    assert again.status(id) == "completed"


def drilling() -> tuple[Any, list[Context]]:
    """Return a client's wire to a server whose tool ``drill`` never ends, and the contexts of its calls."""
    asking = Asking()
    contexts: list[Context] = []

    @asking.server.tool(task_support="optional")
    async def drill(ctx: Context) -> str:
        contexts.append(ctx)
        found: str = await ctx.session.driver.runtime.one_shot().wait()
        return found

    return asking.wire, contexts


@pytest.mark.req("PROG-07")
def test_progress_is_sent_on_the_exchange_of_tasks_result() -> None:
    wire, contexts = drilling()
    id = wire.begin("drill", _meta={"progressToken": 1})
    wire.send("tasks/result", taskId=id)
    contexts[0].progress(1)
    contexts[0].progress(1)
    wire.look()
    assert len(wire.notes("progress")) == 1
    task: Any = contexts[0].task
    assert task is not None
    task.say("deep")
    assert contexts[0].now() == wire.link.pair.now
    task.stop()
    contexts[0].progress(2)
    wire.look()
    assert len(wire.notes("progress")) == 1


@pytest.mark.req("PROG-07")
def test_progress_goes_by_the_last_request_for_the_result_that_was_not_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire, contexts = drilling()
    id = wire.begin("drill", _meta={"progressToken": 1})
    task: Any = contexts[0].task
    session = task.session
    routes: list[Any] = []
    monkeypatch.setattr(type(session), "notify", lambda self, note, related_to: routes.append(related_to))
    contexts[0].progress(1)
    requests = [wire.send("tasks/result", taskId=id) for _ in range(2)]
    first, second = [scope.id for scope in task.waiting]
    contexts[0].progress(2)
    wire.feed(method="notifications/cancelled", params={"requestId": requests[1]})
    contexts[0].progress(3)
    assert routes == [None, second, first]


def test_work_that_has_not_begun_can_be_stopped() -> None:
    link = Link(Server("s", tasks=TaskOptions()))
    receiver: Any = link.session.server.tasks
    run = TaskRun(receiver, "id", None, Host(link), None, None, None, account=None)
    run.stop()
    assert run.is_over


def test_a_client_answers_in_the_scope_of_its_task() -> None:
    link = Link(Server("s", tasks=TaskOptions()))
    receiver: Any = link.session.server.tasks
    run = TaskRun(receiver, "id", None, Host(link), None, None, None, account=None)
    event: Any = None
    scope = TaskScope(run, link.client, event)
    assert (scope.task, scope.session) == (run, link.client)


def test_cancelled_questions_leave_nothing_behind() -> None:
    link = Link(Server("s", tasks=TaskOptions()))
    receiver: Any = link.session.server.tasks
    run = TaskRun(receiver, "id", None, Host(link), None, None, None, account=None)
    for _ in range(2):
        link.start(run._route()).cancel()
    assert run._wanting == []


def test_cancelled_tasks_result_is_not_a_route() -> None:
    link = Link(Server("s", tasks=TaskOptions()))
    receiver: Any = link.session.server.tasks
    run = TaskRun(receiver, "id", None, Host(link), None, None, None, account=None)
    event: Any = None
    gone, there = TaskScope(run, link.client, event), TaskScope(run, link.client, event)
    gone._abandon()
    run.join(gone)
    found = link.start(run._route())
    assert found.state == "waits"
    run.join(there)
    link.run()
    assert found.result is there
