"""A client of ours and a server of ours, and a task between them, from its beginning to its end."""

from __future__ import annotations

from typing import Any

import pytest
from linked import Link

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.app.tasks import TaskOptions
from mcpio.engine.table import Role
from mcpio.errors import RequestCancelled, RequestError
from mcpio.types import (
    CallToolRequest,
    ClientCapabilities,
    ElicitationCapability,
    ElicitFormRequest,
    ElicitResult,
    ElicitSchema,
    TextContent,
)

FORM = ElicitFormRequest("hi", ElicitSchema({}))


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
    link = Link(diggers())
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
def test_a_client_that_is_told_nothing_finds_out_by_looking() -> None:
    quiet = Server("quiet", tasks=TaskOptions(notify=False))
    quiet.tool(lambda: "done", name="quick", task_support="optional")
    link = Link(quiet)
    call = link.start(link.client.call_tool("quick", task=60))
    link.advance(1.5)
    assert call.result.content == (TextContent("done"),)
    assert b"notifications/tasks/status" not in link.pair.sent(Role.SERVER)


@pytest.mark.req("TASK-16", "TASK-17", "TASK-28")
def test_a_task_asks_its_client_meanwhile() -> None:
    declared = ClientCapabilities(elicitation=ElicitationCapability(form={}))
    link = Link(diggers(), capabilities=declared, elicitation=lambda *_: ElicitResult("decline"))
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
    link = Link(diggers())
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
    link = Link(diggers())
    task = link.do(link.client.start_task(CallToolRequest("fail")))
    with pytest.raises(RequestError, match="it broke") as caught:
        link.do(task.result())
    assert caught.value.code == -32010
    assert task.last is not None
    assert task.last.status == "failed"


@pytest.mark.req("TASK-19", "TASK-24")
def test_tasks_are_listed_and_taken_up_by_their_ids() -> None:
    link = Link(diggers())
    ids = [link.do(link.client.start_task(CallToolRequest("dig", {"depth": 1}))).id for _ in range(3)]

    async def listed() -> set[str]:
        return {task.task_id async for task in link.client.tasks()}

    assert link.do(listed()) == set(ids)
    waits = [link.start(link.client.task(id).result()) for id in ids]
    link.advance(12)
    assert [each.result.content for each in waits] == [(TextContent("1 deep"),)] * 3
    assert link.do(link.client.task_result(ids[0])).content == (TextContent("1 deep"),)
