from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from linked import Link

from mcpio.app.client import OutgoingCall
from mcpio.app.context import Context, RequestScope
from mcpio.app.middleware import CallNext, checked_middleware
from mcpio.app.server import Server
from mcpio.errors import LocalProtocolError, Refusal, RequestError, ToolError
from mcpio.testing import ManualCancelled
from mcpio.trio import memory_client
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    CreateMessageRequest,
    CreateMessageResult,
    CustomRequest,
    ListToolsRequest,
    ListToolsResult,
    SamplingMessage,
    TextContent,
    Tool,
)


def text(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


class Noting:
    """Middleware that notes what passes."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self.name = name
        self.seen = seen

    async def __call__(self, ctx: Any, request: Any, call_next: CallNext) -> Any:
        self.seen.append(f"{self.name} > {ctx.method}")
        try:
            return await call_next(request)
        finally:
            self.seen.append(f"{self.name} < {ctx.method}")


def greeter(**options: Any) -> Server:
    server = Server("s", **options)

    @server.tool
    def greet(who: str) -> str:
        return f"Hello, {who}!"

    @server.tool
    async def wait(ctx: Context) -> str:
        await ctx.session.driver.runtime.one_shot().wait()
        return "never"

    return server


# Around what a server serves


def test_middleware_runs_around_every_request_outermost_first() -> None:
    seen: list[str] = []
    server = greeter(middleware=[Noting("a", seen), Noting("b", seen)])
    server.middleware(Noting("c", seen))
    server.prompt(lambda: "hi", name="hi")
    server.resource("a:b", name="b")(lambda: "text")
    server.handlers["test/own"] = lambda _, __: {"x": 1}
    link = Link(server, era="handshake")
    assert link.text("greet", who="Ada") == "Hello, Ada!"
    assert seen == [f"{name} > tools/call" for name in "abc"] + [f"{name} < tools/call" for name in "cba"]
    for call in (
        link.client.list_tools(),
        link.client.get_prompt("hi"),
        link.client.read_resource("a:b"),
        link.client.subscribe_resource("a:b"),
        link.client.set_log_level("error"),
        link.client.request(CustomRequest("test/own")),
    ):
        seen.clear()
        link.do(call)
        assert len(seen) == 6
    assert not link.reports


def test_requests_answered_by_the_engine_bypass_middleware() -> None:
    seen: list[str] = []
    link = Link(greeter(middleware=[Noting("a", seen)]), era="handshake")
    link.do(link.client.ping())
    with pytest.raises(RequestError, match="Method not found"):
        link.do(link.client.request(CustomRequest("no/such")))
    assert not seen


def test_middleware_sees_the_request_typed_and_its_scope() -> None:
    server = greeter()
    seen: list[Any] = []

    @server.middleware
    async def look(ctx: Context, request: CallToolRequest, call_next: CallNext) -> Any:
        seen.extend((type(ctx), ctx.session, ctx.meta, ctx.peer.principal, request))
        ctx.info("on its way")
        return await call_next(request)

    logs: list[Any] = []
    link = Link(server, principal="ada", on_log=lambda told: logs.append(told.data), era="handshake")
    link.do(link.client.call_tool("greet", {"who": "Ada"}, meta={"a": 1}))
    assert seen == [Context, link.session, {"a": 1}, "ada", CallToolRequest("greet", {"who": "Ada"}, meta={"a": 1})]
    assert logs == ["on its way"]


def test_middleware_answers_itself_or_changes_the_request_or_the_result() -> None:
    server = greeter()

    @server.middleware
    async def change(ctx: Context, request: Any, call_next: CallNext) -> Any:
        if isinstance(request, ListToolsRequest):
            return ListToolsResult((Tool("none", {"type": "object"}),))
        request = attrs.evolve(request, arguments={"who": request.arguments["who"].upper()})
        result = await call_next(request)
        return attrs.evolve(result, content=(TextContent(text(result) + "!"),))

    link = Link(server)
    assert link.text("greet", who="Ada") == "Hello, ADA!!"
    assert [tool.name for tool in link.do(link.client.list_tools()).tools] == ["none"]


def test_middleware_may_call_next_several_times() -> None:
    tries: list[int] = []
    server = Server("s")

    @server.tool
    def unsteady() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ToolError("not yet")
        return "at last"

    @server.middleware
    async def insist(ctx: Context, request: Any, call_next: CallNext) -> Any:
        while (result := await call_next(request)).is_error:
            pass
        return result

    assert Link(server).text("unsteady") == "at last"


@pytest.mark.parametrize(
    ("error", "code", "reports"),
    [
        (Refusal(1014), 1014, []),
        (RequestError(7, "no"), 7, []),
        (ValueError("secret"), -32603, ["the handler of tools/call 'greet' failed"]),
        (ExceptionGroup("nursery", [Refusal(1056)]), 1056, []),
    ],
)
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_an_exception_in_middleware_is_a_failure_of_that_request_only(
    error: Exception, code: int, reports: list[str], before: bool
) -> None:
    server = greeter()

    @server.middleware
    async def fail(ctx: Context, request: Any, call_next: CallNext) -> Any:
        if isinstance(request, CallToolRequest):
            if not before:
                await call_next(request)
            raise error
        return await call_next(request)

    link = Link(server)
    with pytest.raises(RequestError) as caught:
        link.call("greet", who="Ada")
    assert caught.value.code == code
    assert "secret" not in str(caught.value)
    assert link.reports == reports
    assert len(link.do(link.client.list_tools()).tools) == 2


@pytest.mark.parametrize("result", [None, "text", ListToolsResult(())])
def test_a_result_of_another_type_is_an_internal_error(result: Any) -> None:
    server = greeter()

    @server.middleware
    async def replace(ctx: Context, request: Any, call_next: CallNext) -> Any:
        return result

    link = Link(server)
    with pytest.raises(RequestError, match="Internal error"):
        link.call("greet", who="Ada")
    assert link.reports == ["the result of tools/call 'greet' cannot be sent"]


def test_a_cancellation_passes_through_middleware_to_the_handler() -> None:
    server = greeter()
    seen: list[Any] = []

    @server.middleware
    async def watch(ctx: Context, request: Any, call_next: CallNext) -> Any:
        try:
            return await call_next(request)
        except ManualCancelled:
            seen.append(ctx.cancelled)
            raise

    link = Link(server)
    ask = link.start(link.client.call_tool("wait"))
    ask.cancel()
    assert (seen, ask.state, link.reports) == ([True], "cancelled", [])


def test_blocking_tool_behind_middleware_is_reported_by_name() -> None:
    server = Server("s")
    seen: list[str] = []
    server.middleware(Noting("a", seen))
    links: list[Link] = []

    @server.tool
    def slow() -> str:
        links[0].pair.now += 0.2
        return "done"

    link = Link(server)
    links.append(link)
    assert link.text("slow") == "done"
    (report,) = link.reports
    assert report.startswith(
        "tools/call 'slow' held up everything else for 200 ms: call what blocks by await ctx.run_in"
    )


def test_middleware_uses_the_context_also_after_a_handler_in_a_thread() -> None:
    server = Server("s")
    seen: list[Any] = []

    @server.tool(blocking=True)
    def work(ctx: Context) -> str:
        ctx.progress(1, 2)
        return "done"

    @server.middleware
    async def report(ctx: Context, request: Any, call_next: CallNext) -> Any:
        result = await call_next(request)
        ctx.progress(2, 2)
        return result

    async def main() -> None:
        async with memory_client(server) as client:
            told = client.call_tool("work", on_progress=lambda *progress: seen.append(progress[0]))
            assert text(await told) == "done"

    trio.run(main)
    assert seen[-1] == 2.0


async def _async(ctx: Any, request: Any, call_next: CallNext) -> Any:
    return await call_next(request)


@pytest.mark.parametrize("wrong", [5, lambda ctx, request, call_next: None, asyncio.sleep(0).close, object()])
def test_plain_function_as_middleware_is_refused(wrong: Any) -> None:
    for give in (Server("s").middleware, lambda found: Server("s", middleware=[found])):
        with pytest.raises(TypeError, match=r"middleware must be an async function of \(ctx, request, call_next\)"):
            give(wrong)


def test_middleware_outside_a_list_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^middleware must be a list, not <function _async"):
        Server("s", middleware=_async)  # type: ignore[arg-type]  # the mistake is the test


def test_async_functions_objects_and_partial_ones_are_middleware() -> None:
    found = [_async, Noting("a", []), partial(_async)]
    assert checked_middleware(found) == tuple(found)


def test_handler_without_middleware_is_not_wrapped() -> None:
    server = greeter()
    link = Link(server)
    assert server.middlewares == ()
    handler = link.session._handler_for  # the hot path
    (event,) = [each for each in _requests(link) if each.raw["method"] == "tools/list"]
    assert handler(event) == server.handlers["tools/list"]


def _requests(link: Link) -> list[Any]:
    link.do(link.client.list_tools())
    return [event for event in link.pair.server_events if hasattr(event, "request")]


# Around what a client sends


def counting(seen: list[str]) -> Callable[..., Any]:
    async def count(call: OutgoingCall, request: Any, call_next: CallNext) -> Any:
        seen.append(call.method)
        return await call_next(request)

    return count


def test_middleware_wraps_requests_of_a_client() -> None:
    seen: list[str] = []
    server = greeter()
    server.handlers["test/own"] = lambda _, __: {"x": 1}
    link = Link(server, middleware=[Noting("a", seen), Noting("b", seen)], era="handshake")
    assert seen == []
    link.do(link.client.ping())
    assert seen == ["a > ping", "b > ping", "b < ping", "a < ping"]
    link.do(link.client.request(CustomRequest("test/own")))
    assert seen[4] == "a > test/own"


def test_each_page_of_a_list_passes_the_middleware() -> None:
    seen: list[str] = []
    link = Link(greeter(page_size=1), middleware=[counting(seen)])

    async def names() -> list[str]:
        return [tool.name async for tool in link.client.tools()]

    assert link.do(names()) == ["greet", "wait"]
    assert seen == ["tools/list", "tools/list"]


@pytest.mark.req("COMP-06")
def test_client_middleware_can_cache_results() -> None:
    kept: dict[Any, tuple[float, Any]] = {}

    async def keep(call: OutgoingCall, request: Any, call_next: CallNext) -> Any:
        now, key = call.now(), (call.method, request.cursor)
        if key not in kept or now - kept[key][0] > 60:
            kept[key] = now, await call_next(request)
        return kept[key][1]

    asked: list[str] = []
    link = Link(greeter(middleware=[Noting("server", asked)]), middleware=[keep])
    for _ in range(3):
        assert len(link.do(link.client.list_tools()).tools) == 2
    assert len(asked) == 2
    link.advance(61)
    link.do(link.client.list_tools())
    assert len(asked) == 4


def test_client_middleware_changes_requests_and_results() -> None:
    async def shout(call: OutgoingCall, request: Any, call_next: CallNext) -> Any:
        assert (call.session, call.method, call.retry) == (link.client, "tools/call", None)
        result = await call_next(attrs.evolve(request, arguments={"who": "ADA"}))
        return attrs.evolve(result, content=(TextContent(text(result) + "?"),))

    link = Link(greeter(), middleware=[shout])
    assert link.text("greet", who="Ada") == "Hello, ADA!?"


def test_exception_in_client_middleware_is_raised_at_the_call() -> None:
    async def refuse(call: OutgoingCall, request: Any, call_next: CallNext) -> Any:
        raise Refusal(1014)

    link = Link(greeter(), middleware=[refuse])
    with pytest.raises(Refusal, match="Authorization denied"):
        link.do(link.client.list_tools())


def test_timeouts_and_progress_pass_through_a_client_s_middleware() -> None:
    link = Link(greeter(), middleware=[counting([])])
    ask = link.start(link.client.call_tool("wait", timeout=3))
    link.advance(3)
    assert str(ask.error) == "tools/call: no answer within 3 s"


def test_a_cancelled_call_is_cancelled_through_middleware() -> None:
    link = Link(greeter(), middleware=[counting([])])
    ask = link.start(link.client.call_tool("wait"))
    assert link.session._running
    ask.cancel()
    assert (ask.state, link.session._running) == ("cancelled", {})


def test_non_request_through_middleware_raises() -> None:
    link = Link(greeter(), middleware=[counting([])])
    with pytest.raises(LocalProtocolError, match="payload must be a request, not int"):
        link.do(link.client.request(5))


@pytest.mark.parametrize("option", ["middleware", "handler_middleware"])
def test_invalid_client_middleware_is_refused_before_opening(option: str) -> None:
    with pytest.raises(TypeError, match="middleware must be an async function"):
        Link(greeter(), **{option: [5]})  # type: ignore[arg-type]  # the mistake is the test


# Around what a server asks of its client


def asking() -> Server:
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> str:
        result = await ctx.sample(CreateMessageRequest((SamplingMessage("user", TextContent("hi")),), 10))
        return result.model

    return server


ANSWER = CreateMessageResult("assistant", TextContent("secret 123"), "m")


@pytest.mark.req("SAMP-15", "SAMP-17", "SEC-09")
def test_s_6_middleware_can_ask_the_user_before_each_question_and_answer() -> None:
    verdicts = [True, False]
    seen: list[Any] = []

    async def consent(ctx: RequestScope, request: CreateMessageRequest, call_next: CallNext) -> CreateMessageResult:
        assert (type(ctx), ctx.session, ctx.method) == (RequestScope, link.client, "sampling/createMessage")
        if not verdicts.pop(0):
            raise RequestError(-1, "User rejected sampling request")
        seen.append(request.messages[0])
        result: CreateMessageResult = await call_next(request)
        return attrs.evolve(result, model="approved", content=TextContent("secret ***"))

    link = Link(asking(), sampling=lambda _, __: ANSWER, handler_middleware=[consent], era="handshake")
    assert link.text("ask") == "approved"
    assert len(seen) == 1
    assert "User rejected sampling request" in link.text("ask")
    assert not verdicts


def test_sent_and_served_requests_have_separate_middleware() -> None:
    sent: list[str] = []
    served: list[str] = []
    link = Link(
        asking(),
        sampling=lambda _, __: ANSWER,
        middleware=[Noting("sent", sent)],
        handler_middleware=[Noting("served", served)],
    )
    assert link.text("ask") == "m"
    assert sent == ["sent > tools/call", "sent < tools/call"]
    assert served == ["served > sampling/createMessage", "served < sampling/createMessage"]
