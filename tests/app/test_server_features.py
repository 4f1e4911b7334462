"""What a server has only where it is used: each is a door to a module of its own, which has further tests."""

from __future__ import annotations

from typing import Any

import pytest
from linked import Link

from mcpio.app.context import Context
from mcpio.app.middleware import CallNext
from mcpio.app.server import Server
from mcpio.app.tasks.receiver import TaskOptions
from mcpio.types import ClientCapabilities, ElicitationCapability, ElicitResult, TaskMetadata
from mcpio.types.features import CallToolRequest

BY_URL = ClientCapabilities(elicitation=ElicitationCapability(url={}))


def test_middleware_runs_around_requests_and_around_the_work_of_a_task() -> None:
    seen: list[Any] = []

    async def outside(ctx: Any, request: Any, call_next: CallNext) -> Any:
        seen.append((ctx.method, ctx.task is not None))
        return await call_next(request)

    server = Server("s", middleware=[outside])

    @server.middleware
    async def inside(ctx: Any, request: Any, call_next: CallNext) -> Any:
        seen.append("inside")
        return await call_next(request)

    @server.tool(task_support="optional")
    async def dig() -> str:
        return "deep"

    link = Link(server, era="handshake")
    assert link.text("dig") == "deep"
    assert seen == [("tools/call", False), "inside"]
    seen.clear()
    ask = link.start(link.client.call_tool("dig", task=True))
    link.advance(10)
    assert ask.result.text == "deep"
    assert [each for each in seen if each[0] == "tools/call"] == [("tools/call", False), ("tools/call", True)]
    assert seen.count("inside") == len(seen) / 2
    with pytest.raises(TypeError, match="async"):
        server.middleware(lambda ctx: None)


@pytest.mark.req("TASK-01", "CAP-03")
def test_tasks_are_kept_from_the_first_tool_that_may_be_one() -> None:
    assert Server("s").tasks is None
    server = Server("s")
    link = Link(server)

    @server.tool(task_support="optional")
    async def dig() -> str:
        return "deep"

    assert server.tasks is not None
    assert Link(server).session.connection.capabilities.tasks is not None
    # A session that was open before goes on, and one that ends is let go of.
    server.forget(link.session)
    link.client.close()
    link.run()
    assert Server("s", tasks=TaskOptions()).tasks is not None


@pytest.mark.req("TASK-03")
def test_a_task_of_a_server_without_middleware_is_the_plain_call() -> None:
    server = Server("s", tasks=TaskOptions())

    @server.tool(task_support="optional")
    async def dig(ctx: Context) -> bool:
        return ctx.task is not None

    link = Link(server, era="handshake")
    handle = link.do(link.client.start_task(CallToolRequest("dig", task=TaskMetadata())))
    result = link.start(handle.result())
    link.advance(10)
    assert result.result.structured_content == {"result": True}


@pytest.mark.req("ELIC-16")
def test_completion_finds_the_asked_session() -> None:
    server = Server("s")
    links = [
        Link(server, capabilities=BY_URL, elicitation=lambda *_: ElicitResult("decline"), era="handshake")
        for _ in range(2)
    ]
    links[1].session._known_url_elicitations().begin("e1")
    assert not server.notify_elicitation_complete("e2")
    assert server.notify_elicitation_complete("e1")
    assert not server.notify_elicitation_complete("e1")


def test_connection_continues_from_a_saved_session() -> None:
    from mcpio.app.session import SavedSession

    server = Server("s")
    link = Link(server)
    saved = SavedSession.read(link.session.snapshot())
    connection = server.connection(saved=saved, now=100.0, principal="ada")
    assert (connection.revision, connection.principal) == (link.session.connection.revision, "ada")
