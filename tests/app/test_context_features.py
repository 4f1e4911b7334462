"""What a handler's context has for those who use it: doors to modules of their own, which have further tests."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from linked import Link

from mcpio.app.asking import Accepted
from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.app.tasks.receiver import TaskOptions
from mcpio.errors import LocalProtocolError
from mcpio.types import (
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitationCapability,
    ElicitFormRequest,
    ElicitResult,
    ElicitSchema,
    SamplingCapability,
    SamplingMessage,
    TextContent,
)

QUESTION = CreateMessageRequest((SamplingMessage("user", TextContent("?")),), 10)
BOTH = ClientCapabilities(sampling=SamplingCapability(tools={}), elicitation=ElicitationCapability(form={}, url={}))


@attrs.frozen
class Person:
    """A form."""

    name: str


def in_tool(work: Any, **options: Any) -> Any:
    """Return what ``work`` returns of the context of a call."""
    server, seen = Server("s"), []

    @server.tool
    async def do(ctx: Context) -> None:
        seen.append(await work(ctx))

    link = Link(server, **options, era="handshake")
    result = link.call("do")
    assert not result.is_error, result.text
    return seen[0]


def test_scope_exposes_the_request() -> None:
    async def look(ctx: Context) -> Any:
        interrupted = ctx.interrupt_stream(1.0)
        return ctx.method, ctx.raw["params"]["name"], ctx.now(), ctx.task, interrupted, ctx.session.server.info.name

    assert in_tool(look) == ("tools/call", "do", 0.0, None, False, "s")


def test_a_stream_is_interrupted_where_the_driver_can() -> None:
    asked: list[Any] = []

    def interrupted(via: Any, retry: float | None) -> bool:
        asked.append((via, retry))
        return True

    async def interrupt(ctx: Context) -> bool:
        driver: Any = ctx.session.driver
        driver.interrupt = interrupted
        return ctx.interrupt_stream(1.5)

    assert in_tool(interrupt)
    assert asked == [(None, 1.5)]


def test_sample_with_tools_passes_functions_to_the_model() -> None:
    async def ask(ctx: Context) -> Any:
        return (await ctx.sample_with_tools(QUESTION, [len_of])).content

    def len_of(text: str) -> int:
        return len(text)

    answer = CreateMessageResult("assistant", TextContent("done"), "m")
    assert in_tool(ask, sampling=lambda *_: answer, capabilities=BOTH) == TextContent("done")


@pytest.mark.req("ELIC-14", "ELIC-20")
def test_url_elicitation_has_a_random_id() -> None:
    seen: list[Any] = []

    def agree(_: Any, request: Any) -> ElicitResult:
        seen.append(request)
        return ElicitResult("accept")

    async def ask(ctx: Context) -> Any:
        given = await ctx.elicit_url("Pay", "https://example.com/pay", elicitation_id="mine")
        made = await ctx.elicit_url("Pay", lambda id: f"https://example.com/{id}")
        return given, made

    given, made = in_tool(ask, elicitation=agree, capabilities=BOTH)
    assert given == Accepted("mine")
    assert (seen[1].url, seen[1].elicitation_id) == (f"https://example.com/{made.value}", made.value)
    assert len(made.value) == 32


def test_elicit_url_needs_the_url_capability() -> None:
    async def ask(ctx: Context) -> Any:
        with pytest.raises(LocalProtocolError, match=r"elicitation/create: .*elicitation\.url"):
            await ctx.elicit_url("Pay", "https://example.com/pay")

    in_tool(ask, elicitation=lambda *_: ElicitResult("accept"))


def test_elicited_form_becomes_an_instance_of_its_class() -> None:
    async def ask(ctx: Context) -> Any:
        return await ctx.elicit("Who?", Person)

    answer = in_tool(ask, elicitation=lambda *_: ElicitResult("accept", {"name": "Ada"}))
    assert answer == Accepted(Person("Ada"))


@pytest.mark.req("TASK-31")
def test_a_question_may_be_a_task_of_the_clients() -> None:
    form = ElicitFormRequest("?", ElicitSchema({}))

    async def ask(ctx: Context) -> Any:
        return (await ctx.elicit(form, task=True)).action

    async def refused(ctx: Context) -> Any:
        with pytest.raises(LocalProtocolError, match=r"tasks\.requests\.elicitation\.create"):
            await ctx.elicit(form, task=5.0)

    assert in_tool(ask, elicitation=lambda *_: ElicitResult("decline"), tasks=TaskOptions()) == "decline"
    in_tool(refused, elicitation=lambda *_: ElicitResult("decline"))
