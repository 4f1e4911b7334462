"""A client of ours and a server of ours, and a task between them, from its beginning to its end."""

from __future__ import annotations

from typing import Any

import pytest
from linked import Link

from mcpio.app.context import Context, RequestScope
from mcpio.app.server import Server
from mcpio.app.tasks.receiver import TaskOptions
from mcpio.engine.table import Role
from mcpio.errors import RequestCancelled, RequestError
from mcpio.types import (
    CallToolRequest,
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitationCapability,
    ElicitFormRequest,
    ElicitResult,
    ElicitSchema,
    SamplingMessage,
    TextContent,
)

FORM = ElicitFormRequest("hi", ElicitSchema({}))
SAMPLE = CreateMessageRequest((SamplingMessage("user", TextContent("hi")),), 10)


def diggers() -> Server:
    server = Server("s", tasks=TaskOptions(list=True))

    @server.tool(task_support="required")
    async def dig(ctx: Context, depth: int) -> str:
        for number in range(depth):
            ctx.progress(number + 1, depth)
            await ctx.session.driver.runtime.sleep(10)
        return f"{depth} deep"

    @server.tool(task_support="optional")
    async def ask(ctx: Context) -> str:
        await ctx.session.driver.runtime.sleep(3)
        answer = await ctx.elicit(FORM)
        return answer.action

    @server.tool(task_support="optional")
    async def fail() -> None:
        raise RequestError(-32010, "it broke")

    return server


@pytest.mark.req("TASK-06", "TASK-19", "TASK-20", "TASK-21", "PROG-07")
def test_a_tool_that_must_be_a_task_is_called_like_any_other() -> None:
    link = Link(diggers(), era="handshake")
    progress: list[Any] = []
    call = link.start(link.client.call_tool("dig", {"depth": 3}, on_progress=lambda *said: progress.append(said)))
    link.advance(29)
    assert call.state == "waits"
    link.advance(2)
    assert call.result.content == (TextContent("3 deep"),)
    assert progress == [(1, 3, None), (2, 3, None), (3, 3, None)]
    assert link.pair.client.pending.tasks == ()
    assert link.reports == []


@pytest.mark.req("TASK-30")
def test_client_without_notifications_polls() -> None:
    quiet = Server("quiet", tasks=TaskOptions(notify=False))
    quiet.tool(lambda: "done", name="quick", task_support="optional")
    link = Link(quiet, era="handshake")
    call = link.start(link.client.call_tool("quick", task=60))
    link.advance(1.5)
    assert call.result.content == (TextContent("done"),)
    assert b"notifications/tasks/status" not in link.pair.sent(Role.SERVER)


@pytest.mark.req("TASK-16", "TASK-17", "TASK-28")
def test_running_task_asks_its_client() -> None:
    declared = ClientCapabilities(elicitation=ElicitationCapability(form={}))
    link = Link(diggers(), capabilities=declared, elicitation=lambda *_: ElicitResult("decline"), era="handshake")
    states: list[str] = []
    started = link.start(
        link.client.start_task(CallToolRequest("ask"), on_status=lambda task: states.append(task.status))
    )
    result = link.start(started.result.result())
    link.advance(30)
    assert result.result.content == (TextContent("decline"),)
    assert states == ["working", "input_required", "working", "completed"]
    mark = b'"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"' + started.result.id.encode()
    (answer,) = [line for line in link.pair.sent(Role.CLIENT).splitlines() if b'"decline"' in line]
    assert mark in answer


@pytest.mark.req("TASK-23", "TASK-25", "TASK-26", "CANC-04")
@pytest.mark.parametrize("by", ["handle", "id", "giving up"])
def test_a_task_is_cancelled(by: str) -> None:
    link = Link(diggers(), era="handshake")
    task = link.do(link.client.start_task(CallToolRequest("dig", {"depth": 3})))
    waiting = link.start(task.result())
    if by == "giving up":
        waiting.cancel()
    else:
        link.do(task.cancel() if by == "handle" else link.client.cancel_task(task.id))
        with pytest.raises(RequestCancelled):
            _ = waiting.result
    assert link.do(link.client.get_task(task.id)).status == "cancelled"
    with pytest.raises(RequestError) as caught:
        link.do(link.client.cancel_task(task.id))
    assert caught.value.code == -32602
    assert b"notifications/cancelled" not in link.pair.sent(Role.CLIENT)


@pytest.mark.req("TASK-21")
def test_a_task_fails_like_its_request() -> None:
    link = Link(diggers(), era="handshake")
    task = link.do(link.client.start_task(CallToolRequest("fail")))
    with pytest.raises(RequestError, match="it broke") as caught:
        link.do(task.result())
    assert caught.value.code == -32010
    assert task.last is not None
    assert task.last.status == "failed"


@pytest.mark.req("TASK-19", "TASK-24")
def test_tasks_are_listed_and_followed_by_id() -> None:
    link = Link(diggers(), era="handshake")
    ids = [link.do(link.client.start_task(CallToolRequest("dig", {"depth": 1}))).id for _ in range(3)]

    async def listed() -> set[str]:
        return {task.task_id async for task in link.client.tasks()}

    assert link.do(listed()) == set(ids)
    waits = [link.start(link.client.task(id).result()) for id in ids]
    link.advance(12)
    assert [each.result.content for each in waits] == [(TextContent("1 deep"),)] * 3
    assert link.do(link.client.task_result(ids[0])).content == (TextContent("1 deep"),)


# A server asks its client


@pytest.mark.req("TASK-01", "TASK-19", "TASK-21", "TASK-31")
@pytest.mark.parametrize("task", [True, 60, None])
def test_a_server_asks_its_client_by_a_task(task: Any) -> None:
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit(FORM, task=task)
        message = await ctx.sample(SAMPLE, task=task)
        return f"{answer.action} {message.model}"

    async def think(scope: RequestScope, _: CreateMessageRequest) -> CreateMessageResult:
        await link.runtime.sleep(5)
        scope.progress(1)
        return CreateMessageResult("assistant", TextContent("hi"), "model")

    link = Link(
        server, tasks=TaskOptions(), sampling=think, elicitation=lambda *_: ElicitResult("decline"), era="handshake"
    )
    call = link.start(link.client.call_tool("ask"))
    link.advance(10)
    assert call.result.content == (TextContent("decline model"),)
    assert link.pair.sent(Role.SERVER).count(b'"tasks/result"') == (0 if task is None else 2)
    assert link.reports == []


@pytest.mark.req("CANC-04", "TASK-31")
def test_cancelled_question_of_a_server_cancels_the_clients_task() -> None:
    server, over = Server("s"), list[str]()

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample(SAMPLE, task=True)).model

    async def think(_: RequestScope, __: CreateMessageRequest) -> CreateMessageResult:
        try:
            await link.runtime.sleep(1000)
        finally:
            over.append("given up")
        return CreateMessageResult("assistant", TextContent("hi"), "model")

    link = Link(server, tasks=TaskOptions(), sampling=think, era="handshake")
    call = link.start(link.client.call_tool("ask"))
    assert not over
    call.cancel()
    assert over == ["given up"]
    assert b'"tasks/cancel"' in link.pair.sent(Role.SERVER)
    assert b"notifications/cancelled" not in link.pair.sent(Role.SERVER)


@pytest.mark.req("TASK-24", "TASK-31", "PROG-07")
def test_server_can_start_tasks_too() -> None:
    async def think(scope: RequestScope, _: CreateMessageRequest) -> CreateMessageResult:
        for number in range(3):
            scope.progress(number + 1)
            await link.runtime.sleep(5)
        return CreateMessageResult("assistant", TextContent("hi"), "model")

    link = Link(Server("s"), tasks=TaskOptions(), sampling=think, era="handshake")
    progress: list[float] = []
    begin = link.session.start_task(SAMPLE, on_progress=lambda done, *_: progress.append(done))
    task = link.do(begin)

    async def listed() -> list[str]:
        return [each.task_id async for each in link.session.tasks()]

    assert link.do(listed()) == [task.id]
    other = link.start(link.session.task_result(task.id, CreateMessageResult))
    waiting = link.start(task.result())
    link.advance(20)
    assert waiting.result.model == other.result.model == "model"
    assert progress == [1, 2, 3]
