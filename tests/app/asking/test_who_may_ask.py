"""Which code may ask the client, and until when: the same in both eras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
import trio
from linked import Link
from questions import ELICIT

from mcpio.app.context import Context
from mcpio.app.contracts import CallNext
from mcpio.app.server import Server
from mcpio.app.tasks.receiver import TaskOptions
from mcpio.errors import LocalProtocolError, RequestError
from mcpio.trio import memory_client
from mcpio.types import CallToolResult, ElicitFormRequest, ElicitResult, ElicitURLRequest, PromptReference, TextContent

pytestmark = pytest.mark.parametrize("era", ["handshake", "stateless"])

Era = Literal["handshake", "stateless"]


def answer(_: Any, request: ElicitFormRequest | ElicitURLRequest) -> ElicitResult:
    return ElicitResult("accept", {"name": request.message})


def question(text: str) -> ElicitFormRequest:
    return ElicitFormRequest(text, ELICIT.requested_schema)


async def asked(ctx: Any, text: str) -> Any:
    result = await ctx.elicit(question(text))
    return result.content["name"]


def with_tools(middleware: Any) -> Server:
    server = Server("s", middleware=[middleware])

    @server.tool
    def plain() -> str:
        return "plain"

    @server.tool
    async def asking(ctx: Context) -> str:
        return f"the tool got {await asked(ctx, 'inner')}"

    return server


def texts(server: Server, era: Era) -> tuple[list[str], Link]:
    link = Link(server, elicitation=answer, era=era)
    return [link.text(name) for name in ("plain", "asking")], link


def test_middleware_asks_before_the_handler(era: Era) -> None:
    async def confirm(ctx: Any, request: Any, call_next: CallNext) -> Any:
        if ctx.method == "tools/call":
            assert await asked(ctx, "outer") == "outer"
        return await call_next(request)

    found, link = texts(with_tools(confirm), era)
    assert found == ["plain", "the tool got inner"]
    assert link.reports == []


def test_middleware_asks_after_the_handler(era: Era) -> None:
    seen: list[type] = []

    async def review(ctx: Any, request: Any, call_next: CallNext) -> Any:
        result = await call_next(request)
        if isinstance(result, CallToolResult):
            (block,) = result.content
            assert isinstance(block, TextContent)
            return CallToolResult((TextContent(f"{block.text}, {await asked(ctx, 'outer')}"),))
        seen.append(type(result))
        return result

    found, link = texts(with_tools(review), era)
    assert found == ["plain, outer", "the tool got inner, outer"]
    assert link.reports == []


async def _async_handler(ctx: Context, kept: list[Context]) -> str:
    kept.append(ctx)
    return "done"


async def _failing_handler(ctx: Context, kept: list[Context]) -> str:
    kept.append(ctx)
    raise ValueError("failed")


def _plain_handler(ctx: Context, kept: list[Context]) -> str:
    kept.append(ctx)
    return "done"


@pytest.mark.parametrize("handler", [_async_handler, _failing_handler, _plain_handler])
def test_context_cannot_ask_when_its_request_is_answered(era: Era, handler: Callable[..., Any]) -> None:
    """It raises an ordinary exception, which a task of the program that kept the context can catch."""
    server, kept, failures = Server("s", tasks=TaskOptions()), list[Context](), list[str]()
    server.tool(_with(handler, kept), name="keep", task_support="optional", becomes_task=True)

    async def ask() -> None:
        ctx = kept[0]
        for key in (None, "a"):
            with pytest.raises(LocalProtocolError) as caught:
                await ctx.elicit(ELICIT, key=key)
            failures.append(str(caught.value))
        if era == "stateless":
            with pytest.raises(LocalProtocolError, match="has been answered"):
                await ctx.become_task()

    async def main() -> None:
        async with memory_client(server, elicitation=answer, era=era) as client:
            await client.call_tool("keep")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)

    trio.run(main)
    assert len(set(failures)) == 1
    assert "answered" in failures[0]


def _with(handler: Callable[..., Any], kept: list[Context]) -> Callable[..., Any]:
    if handler is _plain_handler:

        def plain(ctx: Context) -> str:
            return _plain_handler(ctx, kept)

        return plain

    async def coroutine(ctx: Context) -> Any:
        return await handler(ctx, kept)

    return coroutine


@pytest.mark.req("MRTR-01")
def test_completion_asks_in_a_session_only(era: Era) -> None:
    server = Server("s")

    @server.prompt
    def greet(name: str) -> str:
        return name

    @server.completion("name", prompt="greet")
    async def complete(value: str, ctx: Context) -> list[str]:
        return [await asked(ctx, value)]

    link = Link(server, elicitation=answer, era=era)
    completing = link.client.complete(PromptReference("greet"), "name", "a")
    if era == "handshake":
        assert link.do(completing).completion.values == ("a",)
        return
    with pytest.raises(RequestError, match="-32603"):
        link.do(completing)
    (error,) = link.errors
    assert isinstance(error, LocalProtocolError)
    only = "only tools/call, resources/read, prompts/get can"
    assert str(error) == f"completion/complete cannot ask for input: {only}"
