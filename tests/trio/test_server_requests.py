"""What a server asks its client in the middle of a call: a model, a user, the roots; and how that is given up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from peers import run
from runners import run_by

from mcpio.app.client import Client
from mcpio.app.context import Context, RequestScope
from mcpio.app.server import Server
from mcpio.errors import ConnectionLost, ErrorCode, RequestError
from mcpio.trio import memory_client, open_transport, serve
from mcpio.types.asking import (
    CreateMessageRequest,
    CreateMessageResult,
    ElicitFormRequest,
    ElicitRequest,
    ElicitResult,
    ElicitSchema,
    Root,
    SamplingMessage,
    StringSchema,
)
from mcpio.types.content import TextContent
from mcpio.types.features import CallToolResult

QUESTION = CreateMessageRequest((SamplingMessage("user", TextContent("2+2?")),), 10)


server = Server("asking")


@server.tool
async def ask_model(ctx: Context, timeout: float = 60) -> str:
    result = await ctx.sample(QUESTION, timeout=timeout)
    assert isinstance(result.content, TextContent)
    return f"{result.model} says {result.content.text}"


reports: list[tuple[float, float | None, str | None]] = []


@server.tool
async def ask_with_progress(ctx: Context) -> None:
    await ctx.sample(QUESTION, on_progress=lambda *report: reports.append(report))


@server.tool
async def ask_user(ctx: Context) -> str:
    form = ElicitFormRequest("Who are you?", ElicitSchema({"name": StringSchema()}, ("name",)))
    result = await ctx.elicit(form)
    return f"{result.action} {dict(result.content or {})}"


@server.tool
async def ask_roots(ctx: Context) -> str:
    return " ".join(root.uri for root in await ctx.roots())


@server.tool
async def ask_both_at_once(ctx: Context) -> str:
    answers: dict[str, str] = {}

    async def ask(number: int) -> None:
        result = await ctx.sample(QUESTION)
        answers[str(number)] = result.model

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(ask, number)
    return str(len(answers))


@server.tool(blocking=True)
def ask_from_a_thread(ctx: Context) -> str:
    try:
        _ = ctx.sample(QUESTION)
    except RuntimeError as error:
        return str(error)
    return "?"


@asynccontextmanager
async def over_streams(**options: Any) -> AsyncIterator[Client]:
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, server, far)
        async with open_transport(near, **options, era="handshake") as client:
            yield client


over_each = pytest.mark.parametrize(
    "connected",
    [over_streams, lambda **options: memory_client(server, **options, era="handshake")],
    ids=["streams", "memory"],
)


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def answer_at_once(scope: RequestScope, request: CreateMessageRequest) -> CreateMessageResult:
    return CreateMessageResult("assistant", TextContent("4"), "quick")


async def answer_later(scope: RequestScope, request: CreateMessageRequest) -> CreateMessageResult:
    await trio.sleep(1)
    return CreateMessageResult("assistant", TextContent("four"), "slow")


@over_each
@pytest.mark.parametrize(("sampler", "said"), [(answer_at_once, "quick says 4"), (answer_later, "slow says four")])
@run_by(run)
async def test_sampling_callback_answers_a_tool(connected: Any, sampler: Any, said: str) -> None:
    async with connected(sampling=sampler) as client:
        assert text_of(await client.call_tool("ask_model")) == said
        assert text_of(await client.call_tool("ask_both_at_once")) == "20"


@pytest.mark.req("PROG-08")
@over_each
def test_a_client_reports_progress_too(connected: Any) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def work(scope: RequestScope, request: CreateMessageRequest) -> CreateMessageResult:
        for number in (1, 2):
            scope.progress(number, 2, "thinking")
            await trio.sleep(1)
        return CreateMessageResult("assistant", TextContent("4"), "busy")

    async def main() -> None:
        async with connected(sampling=work) as client:
            reports.clear()
            await client.call_tool("ask_with_progress")
            seen.extend(reports)

    run(main)
    assert seen == [(1, 2, "thinking"), (2, 2, "thinking")]


@over_each
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ElicitResult("accept", {"name": "Ada"}), "accept {'name': 'Ada'}"),
        (ElicitResult("decline"), "decline {}"),
        (ElicitResult("cancel"), "cancel {}"),
    ],
)
def test_elicitation_callback_answers_a_tool(connected: Any, answer: ElicitResult, said: str) -> None:
    asked: list[ElicitRequest] = []

    async def elicit(scope: RequestScope, request: ElicitRequest) -> ElicitResult:
        asked.append(request)
        return answer

    async def main() -> None:
        async with connected(elicitation=elicit) as client:
            assert text_of(await client.call_tool("ask_user")) == said

    run(main)
    assert [request.message for request in asked] == ["Who are you?"]


@over_each
def test_roots_are_requested_from_the_client(connected: Any) -> None:
    roots = [Root("file:///a"), Root("file:///b", "b")]

    async def main() -> None:
        async with connected(roots=roots) as client:
            assert text_of(await client.call_tool("ask_roots")) == "file:///a file:///b"
        async with connected(roots=lambda: roots[:1]) as client:
            assert text_of(await client.call_tool("ask_roots")) == "file:///a"

    run(main)


@over_each
@run_by(run)
async def test_undeclared_requests_fail_the_tool(connected: Any) -> None:
    async with connected() as client:
        for tool in ("ask_model", "ask_user", "ask_roots"):
            result = await client.call_tool(tool)
            assert result.is_error
            assert "did not declare" in text_of(result)


@over_each
def test_rejected_sampling_fails_the_tool(connected: Any) -> None:
    def refuse(*_: object) -> CreateMessageResult:
        raise RequestError(ErrorCode.USER_REJECTED, "User rejected sampling request")

    async def main() -> None:
        async with connected(sampling=refuse) as client:
            result = await client.call_tool("ask_model")
            assert result.is_error
            assert "User rejected sampling request (-1)" in text_of(result)

    run(main)


@over_each
def test_failing_callback_fails_the_tool_without_details(connected: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> CreateMessageResult:
        raise ValueError("a secret")

    async def main() -> None:
        async with connected(sampling=fail) as client:
            result = await client.call_tool("ask_model")
            assert result.is_error
            assert "the client's handler of sampling/createMessage failed (-32603)" in text_of(result)
            assert "a secret" not in text_of(result)

    run(main)
    assert caplog.records[0].getMessage() == "the handler of sampling/createMessage failed"


class Sampler:
    """A callback that never answers, and notes when it is given up."""

    def __init__(self) -> None:
        self.ended: list[float] = []

    async def __call__(self, scope: RequestScope, request: CreateMessageRequest) -> CreateMessageResult:
        try:
            await trio.sleep_forever()
        finally:
            self.ended.append(trio.current_time())
        raise AssertionError


@pytest.mark.req("CANC-05", "TIME-01")
@over_each
@pytest.mark.parametrize("how", ["timeout of the server", "cancelled by the client"])
def test_cancelled_question_cancels_the_callback_of_the_client(connected: Any, how: str) -> None:
    sampler = Sampler()

    async def main() -> None:
        async with connected(sampling=sampler) as client:
            if how == "timeout of the server":
                result = await client.call_tool("ask_model", {"timeout": 3})
                assert result.is_error
                assert "sampling/createMessage: no answer within 3 s" in text_of(result)
            else:
                with trio.move_on_after(3):
                    await client.call_tool("ask_model")
            await client.ping()
            await trio.testing.wait_all_tasks_blocked()
            assert sampler.ended == [3]

    run(main)


@over_each
def test_closed_connection_cancels_the_callback(connected: Any) -> None:
    sampler = Sampler()

    async def main() -> None:
        async with trio.open_nursery() as nursery, connected(sampling=sampler) as client:

            async def call() -> None:
                with pytest.raises(ConnectionLost):
                    await client.call_tool("ask_model")

            nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
            await client.aclose(1)
            assert sampler.ended == [1]

    run(main)


@over_each
@run_by(trio.run)
async def test_a_thread_cannot_wait_for_the_client(connected: Any) -> None:
    async with connected(sampling=answer_at_once) as client:
        assert "make it async" in text_of(await client.call_tool("ask_from_a_thread"))
