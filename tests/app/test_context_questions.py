from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from linked import Link
from questions import ELICIT, SAMPLE, captured, said

from mcpio.app.context import Context, RequestScope
from mcpio.app.server import Server
from mcpio.errors import (
    ErrorCode,
    InvalidMessage,
    LocalProtocolError,
    RequestError,
    RequestTimeout,
    SamplingRejected,
    ToolError,
)
from mcpio.revisions import REV_2025_06_18
from mcpio.types import (
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitationCapability,
    ElicitFormRequest,
    ElicitResult,
    ElicitSchema,
    ElicitURLRequest,
    Root,
    RootsCapability,
    SamplingCapability,
    ToolChoice,
    UnknownSchema,
)


@pytest.mark.parametrize("later", [False, True])
def test_sampling_request_returns_the_message(later: bool) -> None:
    async def sample_later(scope: RequestScope, request: CreateMessageRequest) -> CreateMessageResult:
        await scope.run_in_thread(lambda: None)
        return said("later")

    sample = sample_later if later else lambda _, __: said("at once")
    found, link = captured(lambda ctx: ctx.sample(SAMPLE), sampling=sample)
    assert found == said("later" if later else "at once")
    assert link.reports == []


def test_elicitation_request_returns_the_answer() -> None:
    found, _ = captured(
        lambda ctx: ctx.elicit(ELICIT), elicitation=lambda _, request: ElicitResult("accept", {"name": request.message})
    )
    assert found == ElicitResult("accept", {"name": "Who are you?"})


@pytest.mark.req("SAMP-08")
def test_invalid_sampling_message_raises_in_the_handler() -> None:
    server, found = Server("s"), list[Any]()

    @server.tool
    async def tool(ctx: Context) -> None:
        with pytest.raises(InvalidMessage, match="the model uses a tool where it may use none") as caught:
            await ctx.sample(SAMPLE)
        found.append(caught.value.path)

    async def never(*_: Any) -> Any:
        await link.runtime.one_shot().wait()

    link = Link(server, sampling=never, era="handshake")
    link.start(link.client.call_tool("tool"))
    content = '{"type":"tool_use","id":"1","name":"a","input":{}}'
    answer = f'{{"jsonrpc":"2.0","id":1,"result":{{"role":"assistant","content":{content},"model":"m"}}}}\n'
    link.pair.server.receive_data(answer.encode(), link.pair.now)
    link.run()
    assert found == ["result.content"]


@pytest.mark.req("SAMP-12")
def test_declined_sampling_raises_sampling_rejected() -> None:
    found, _ = captured(lambda ctx: ctx.sample(SAMPLE), sampling=refuse, era="handshake")
    assert isinstance(found, SamplingRejected)
    assert (found.code, found.message) == (-1, "User rejected sampling request")


@pytest.mark.req("ROOT-03", "ROOT-06")
def test_roots_are_cached_until_they_change() -> None:
    server, found = Server("s"), list[Any]()
    asked: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> None:
        found.append(await ctx.roots())

    def roots() -> list[Root]:
        asked.append(1)
        return [Root("file:///a")]

    link = Link(server, roots=roots, era="handshake")
    link.call("tool")
    link.call("tool")
    assert (len(asked), found) == (1, [(Root("file:///a"),)] * 2)
    link.client.set_roots([Root("file:///b")])
    link.call("tool")
    assert found[2] == (Root("file:///b"),)


def test_roots_without_change_notifications_are_requested_every_time() -> None:
    asked: list[int] = []

    async def twice(ctx: Context) -> Any:
        await ctx.roots()
        return await ctx.roots()

    def roots() -> list[Root]:
        asked.append(1)
        return [Root("file:///a")]

    found, _ = captured(twice, roots=roots, capabilities=ClientCapabilities(roots=RootsCapability()))
    assert (found, len(asked)) == ((Root("file:///a"),), 2)


@pytest.mark.req("ROOT-02")
def test_roots_request_returns_the_roots() -> None:
    roots = [Root("file:///a", "A"), Root("file:///b")]
    found, _ = captured(lambda ctx: ctx.roots(), roots=roots)
    assert found == tuple(roots)


@pytest.mark.req("SAMP-01", "SAMP-05", "ELIC-02", "ROOT-06")
@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        (lambda ctx: ctx.sample(SAMPLE), "sampling/createMessage needs the capability sampling, which the peer"),
        (lambda ctx: ctx.elicit(ELICIT), "elicitation/create needs the capability elicitation, which the peer"),
        (lambda ctx: ctx.roots(), "roots/list needs the capability roots, which the peer did not declare"),
    ],
)
def test_undeclared_request_is_refused_locally(ask: Callable[[Context], Any], reason: str) -> None:
    error, link = captured(ask, era="handshake")
    assert isinstance(error, LocalProtocolError)
    assert str(error).startswith(reason)
    assert [event for event in link.pair.client_events if "request" in type(event).__name__.lower()] == []


@pytest.mark.req("SAMP-05", "SAMP-07", "ELIC-02")
@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        (lambda ctx: ctx.sample(attrs.evolve(SAMPLE, tool_choice=ToolChoice())), "toolChoice needs"),
        (
            lambda ctx: ctx.sample(attrs.evolve(SAMPLE, include_context="thisServer")),
            "includeContext 'thisServer' needs",
        ),
        (lambda ctx: ctx.elicit(ElicitURLRequest("Go", "https://example.com", "1")), "mode url needs"),
        (lambda ctx: ctx.elicit_url("Go", "https://example.com", elicitation_id="1"), "mode url needs"),
    ],
)
def test_question_with_an_undeclared_option_is_refused_locally(ask: Callable[[Context], Any], reason: str) -> None:
    declared = ClientCapabilities(sampling=SamplingCapability(), elicitation=ElicitationCapability())
    error, link = captured(
        ask, capabilities=declared, sampling=lambda *_: said("hi"), elicitation=lambda *_: None, era="handshake"
    )
    assert isinstance(error, LocalProtocolError)
    assert reason in str(error)
    assert not link.session._has_elicitation("1")


def test_request_unknown_to_the_revision_raises() -> None:
    error, _ = captured(
        lambda ctx: ctx.elicit(ElicitURLRequest("Go", "https://example.com", "1")),
        revision=REV_2025_06_18,
        capabilities=ClientCapabilities(),
        elicitation=lambda _, __: ElicitResult("cancel"),
    )
    assert isinstance(error, LocalProtocolError)


def asking(ask: Callable[[Context], Any], **options: Any) -> Link:
    """Return a link to a server whose tool asks and lets every failure pass."""
    server = Server("s")

    @server.tool(name="ask")
    async def tool(ctx: Context) -> str:
        return str(await ask(ctx))

    @server.prompt(name="ask")
    async def prompt(ctx: Context) -> str:
        return str(await ask(ctx))

    return Link(server, **options, era="handshake")


def refuse(*_: Any) -> Any:
    raise RequestError(ErrorCode.USER_REJECTED, "User rejected sampling request")


@pytest.mark.req("SAMP-12", "TOOL-10")
def test_error_of_the_client_is_not_sent_back_as_the_tools_own() -> None:
    link = asking(lambda ctx: ctx.sample(SAMPLE), sampling=refuse)
    assert link.text("ask") == "failed: 'ask' failed: SamplingRejected: User rejected sampling request (-1)"
    assert link.reports == ["the tool 'ask' failed"]
    with pytest.raises(RequestError, match=r"^Internal error \(-32603\)$"):
        link.do(link.client.get_prompt("ask"))
    assert link.reports[1:] == ["the handler of prompts/get 'ask' failed"]


def test_reraised_refusal_fails_the_tool_with_its_text() -> None:
    async def ask(ctx: Context) -> Any:
        failures = []
        for _ in range(2):
            try:
                await ctx.sample(SAMPLE)
            except RequestError as error:
                failures.append(error)
        raise failures[0]

    assert asking(ask, sampling=refuse).text("ask").startswith("failed: 'ask' failed: SamplingRejected: User rejected")


def test_handler_may_convert_a_clients_error() -> None:
    async def ask(ctx: Context) -> Any:
        try:
            return await ctx.sample(SAMPLE)
        except RequestError as error:
            raise ToolError(f"the model is away: {error.message}") from error

    link = asking(ask, sampling=refuse)
    assert link.text("ask") == "failed: the model is away: User rejected sampling request"
    assert link.reports == []


def test_a_question_has_a_key_and_a_time_limit() -> None:
    async def never(scope: RequestScope, _: Any) -> ElicitResult:
        seen.append(scope)
        await link.runtime.one_shot().wait()
        raise AssertionError

    seen: list[RequestScope] = []
    link = asking(lambda ctx: ctx.elicit(ELICIT, key="name", timeout=7), elicitation=never)
    ask = link.start(link.client.call_tool("ask", timeout=None))
    link.advance(8)
    assert "RequestTimeout: elicitation/create: no answer within 7 s" in str(ask.result.content)
    assert seen[0].cancelled
    assert link.reports == ["the tool 'ask' failed"]
    assert isinstance(link.errors[0], RequestTimeout)


def test_a_question_has_progress() -> None:
    seen: list[Any] = []

    def sample(scope: RequestScope, _: Any) -> CreateMessageResult:
        scope.progress(1, 2, "thinking")
        return said("hi")

    link = asking(lambda ctx: ctx.sample(SAMPLE, on_progress=lambda *said: seen.append(said)), sampling=sample)
    link.call("ask")
    assert seen == [(1, 2, "thinking")]


def test_cancelled_tool_cancels_its_requests() -> None:
    seen: list[RequestScope] = []

    async def never(scope: RequestScope, _: Any) -> ElicitResult:
        seen.append(scope)
        await link.runtime.one_shot().wait()
        raise AssertionError

    link = asking(lambda ctx: ctx.elicit(ELICIT), elicitation=never)
    link.start(link.client.call_tool("ask")).cancel()
    assert seen[0].cancelled
    assert link.reports == []


@pytest.mark.parametrize("end", ["by the client", "at once"])
@pytest.mark.parametrize("kind", ["tool", "prompt"])
def test_connection_end_in_a_handler_is_not_reported(kind: str, end: str) -> None:
    async def ask(ctx: Context) -> Any:
        try:
            return await ctx.elicit(ELICIT)
        finally:
            seen.append(ctx.cancelled)
            ctx.session.check_open()

    async def never(*_: Any) -> ElicitResult:
        await link.runtime.one_shot().wait()
        raise AssertionError

    seen: list[bool] = []
    link = asking(ask, elicitation=never)
    link.start(link.client.call_tool("ask") if kind == "tool" else link.client.get_prompt("ask"))
    if end == "at once":
        link.session.connection.abort()
    else:
        link.client.close(grace=1)
        link.advance(1)
    link.run()
    assert seen == [end == "at once"]
    assert link.reports == []


def odd(value: Any) -> Any:
    """Hide the kind of a value from type checkers."""
    return value


@pytest.mark.parametrize(
    ("ask", "fault"),
    [
        (
            lambda ctx: ctx.sample(odd("hi")),
            """not 'hi': CreateMessageRequest((SamplingMessage("user", TextContent('hi')),), max_tokens=500)""",
        ),
        (lambda ctx: ctx.sample(odd(5)), "request must be a CreateMessageRequest, not 5"),
        (lambda ctx: ctx.sample_with_tools(odd("hi"), []), "request must be a CreateMessageRequest, not 'hi'"),
        (
            lambda ctx: ctx.elicit(odd("hi")),
            "request must be a request, or a message with the class of its form, not 'hi'",
        ),
        (lambda ctx: ctx.elicit("hi", odd({})), "form must be a class or a Form, not {}"),
        (lambda ctx: ctx.elicit_url("hi", odd(5)), "url must be str, not 5"),
        (lambda ctx: ctx.elicit_url(odd(5), "https://example.com"), "message must be a str, not 5"),
        (lambda ctx: ctx.roots(timeout=odd("5")), "timeout must be a number of seconds, a Timeout, or None"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_a_type_error_with_its_fix(ask: Any, fault: str) -> None:
    never = RequestError(ErrorCode.INTERNAL_ERROR, "asked")
    found, _ = captured(ask, sampling=lambda *_: never, elicitation=lambda *_: never, roots=[], era="handshake")
    assert isinstance(found, TypeError)
    assert fault in str(found)


@pytest.mark.req("ELIC-04")
def test_a_form_with_an_unknown_field_is_not_sent() -> None:
    form = ElicitFormRequest("hi", ElicitSchema({"x": UnknownSchema({"type": "object"})}))
    found, _ = captured(lambda ctx: ctx.elicit(form), elicitation=refuse)
    assert isinstance(found, TypeError)
    assert "the field 'x' is not one of the fields of a form" in str(found)
