"""Middleware and tasks: it stands around the request that becomes a task, and around the work."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from linked import Link

from mcpio.app.context import Context
from mcpio.app.middleware import CallNext
from mcpio.app.server import Server
from mcpio.errors import Refusal, RequestError
from mcpio.types import CallToolRequest, TextContent


def test_middleware_runs_around_the_request_of_a_task_and_around_its_work() -> None:
    server = Server("s")
    seen: list[Any] = []

    @server.tool(task_support="optional")
    async def work(ctx: Context) -> str:
        await ctx.session.driver.runtime.sleep(5)
        return "secret"

    @server.middleware
    async def clean(ctx: Context, request: Any, call_next: CallNext) -> Any:
        result = await call_next(request)
        if ctx.method != "tools/call":
            return result
        seen.append((ctx.task is not None, type(result).__name__, ctx.now()))
        return attrs.evolve(result, content=(TextContent("***"),)) if ctx.task is not None else result

    link = Link(server, era="handshake")
    ask = link.start(link.client.call_tool("work", task=True))
    link.advance(60)
    assert ask.result.content == (TextContent("***"),)
    assert seen == [(False, "CreateTaskResult", 0), (True, "CallToolResult", 5)]


def test_exception_in_middleware_around_the_work_fails_the_task() -> None:
    server = Server("s")
    server.tool(_five, name="work", task_support="required")

    @server.middleware
    async def refuse(ctx: Context, request: Any, call_next: CallNext) -> Any:
        if ctx.task is not None:
            raise Refusal(1014)
        return await call_next(request)

    link = Link(server, era="handshake")
    ask = link.start(link.client.call_tool("work", task=True))
    link.advance(60)
    assert isinstance(ask.error, RequestError)
    assert ask.error.code == 1014


def test_exception_in_middleware_around_the_request_creates_no_task() -> None:
    server = Server("s")
    server.tool(_five, name="work", task_support="required")

    @server.middleware
    async def refuse(ctx: Context, request: Any, call_next: CallNext) -> Any:
        if isinstance(request, CallToolRequest):
            raise Refusal(1014)
        return await call_next(request)

    link = Link(server, principal="ada", era="handshake")
    with pytest.raises(RequestError, match="Authorization denied"):
        link.do(link.client.call_tool("work", task=True))
    assert link.do(link.client.list_tasks()).tasks == ()


async def _five() -> int:
    return 5
