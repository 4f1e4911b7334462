"""The explicit form: a handler returns its questions, and is called again with the answers, in both eras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
from linked import Link
from loops import runtimes, under_trio
from questions import ELICIT, SAMPLE, said
from statelessly import EVERYTHING, StatelessClient, accept

from mcpio.app.context import Context
from mcpio.app.contracts import InputRequired
from mcpio.app.rounds import RequestStates
from mcpio.app.runtime import Runtime
from mcpio.app.server import Server
from mcpio.errors import RequestError
from mcpio.types import (
    CallToolRequest,
    ClientCapabilities,
    CreateMessageResult,
    ElicitFormRequest,
    ElicitResult,
    ElicitURLRequest,
    GetPromptRequest,
    ListRootsRequest,
    ListRootsResult,
    ReadResourceRequest,
    Root,
    TextContent,
    Tool,
)

QUESTIONS = {"name": ELICIT, "model": SAMPLE, "roots": ListRootsRequest()}
ANSWERS = {
    "name": accept(name="Ada"),
    "model": {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"},
    "roots": {"roots": [{"uri": "file:///a"}]},
}


def shop(*, is_async: bool = False, **options: Any) -> tuple[Server, list[Mapping[str, Any]]]:
    """Return a server with a tool that asks three questions, then one more; and the answers that it saw."""
    server, seen = Server("shop", **options), list[Mapping[str, Any]]()

    def work(ctx: Context) -> Any:
        seen.append(ctx.answers)
        match ctx.request_state:
            case None:
                return InputRequired(QUESTIONS, state=b"1")
            case b"1":
                return InputRequired({"visit": ElicitURLRequest("Go", "https://example.com", "7")}, state=b"2")
        return f"done after {ctx.request_state!r}"

    async def work_later(ctx: Context) -> Any:
        return work(ctx)

    server.tool(work_later if is_async else work, name="work")
    return server, seen


def handshake(server: Server, **options: Any) -> Link:
    def elicit(_: Any, request: Any) -> ElicitResult:
        return ElicitResult("accept", {"name": "Ada"} if isinstance(request, ElicitFormRequest) else None)

    return Link(
        server,
        elicitation=elicit,
        sampling=lambda *_: said("hi"),
        roots=[Root("file:///a")],
        capabilities=EVERYTHING,
        **options,
        era="handshake",
    )


TYPES = {"name": ElicitResult, "model": CreateMessageResult, "roots": ListRootsResult}


@pytest.mark.req("ERA-15", "MRTR-02")
@pytest.mark.parametrize("is_async", [False, True])
@runtimes
def test_stateless_client_gets_the_questions(run: Any, is_async: bool) -> None:
    async def main(runtime: Runtime) -> None:
        server, seen = shop(is_async=is_async)
        client = StatelessClient(server, runtime)
        found = await client.talk("work", lambda key, _: ANSWERS.get(key, {"action": "accept"}))
        assert found["content"][0]["text"] == "done after b'2'"
        assert [list(each.get("inputRequests", {})) for each in client.rounds] == [list(QUESTIONS), ["visit"], []]
        assert (seen[0], {key: type(answer) for key, answer in seen[1].items()}) == ({}, TYPES)
        assert seen[2] == {"visit": ElicitResult("accept")}

    run(main)


@pytest.mark.parametrize("is_async", [False, True])
def test_client_with_a_session_is_asked_by_requests(is_async: bool) -> None:
    server, seen = shop(is_async=is_async)
    link = handshake(server)
    assert link.text("work") == "done after b'2'"
    assert (seen[0], {key: type(answer) for key, answer in seen[1].items()}) == ({}, TYPES)
    assert seen[2] == {"visit": ElicitResult("accept")}
    assert link.reports == []


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_prompts_and_resources_take_the_explicit_form_too(era: str) -> None:
    server = Server("s")

    def work(ctx: Context) -> Any:
        return f"I am {ctx.answers['name'].content['name']}" if ctx.answers else InputRequired({"name": ELICIT})

    server.prompt(work)
    server.resource("work://it")(work)
    if era == "handshake":
        link = handshake(server)
        assert "I am Ada" in str(link.do(link.client.request(GetPromptRequest("work"))))
        assert "I am Ada" in str(link.do(link.client.request(ReadResourceRequest("work://it"))))
        return

    async def main(runtime: Runtime) -> None:
        client = StatelessClient(server, runtime)
        for method, params in (("prompts/get", {"name": "work"}), ("resources/read", {"uri": "work://it"})):
            answer = await client.talk("", lambda *_: accept(name="Ada"), method=method, params=params)
            assert "I am Ada" in str(answer)

    under_trio(main)


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_state_alone_has_the_handler_called_again(era: str) -> None:
    server = Server("s", states=RequestStates([bytes(32)]))

    @server.tool
    def work(ctx: Context) -> Any:
        return InputRequired(state=b"") if ctx.request_state is None else f"{ctx.request_state!r} {ctx.answers}"

    if era == "handshake":
        assert handshake(server).text("work") == "b'' {}"
        return

    async def main(runtime: Runtime) -> None:
        client = StatelessClient(server, runtime)
        assert (await client.talk("work", lambda *_: None))["content"][0]["text"] == "b'' {}"
        assert "inputRequests" not in client.rounds[0]

    under_trio(main)


@pytest.mark.req("MRTR-12")
def test_malformed_answers_are_refused_with_their_place() -> None:
    server, seen = shop()

    async def main(runtime: Runtime) -> None:
        client = StatelessClient(server, runtime)
        malformed: list[Any] = [1, None, [], {}, {"action": "odd"}, {"roots": 1}, {"role": "assistant"}]
        for bad in malformed:
            with pytest.raises(RequestError, match=r"params\.inputResponses\.a"):
                await client.call("work", answers={"a": bad, "b": {"action": "cancel"}})
        assert seen == []

    under_trio(main)


@pytest.mark.parametrize("era", ["handshake", "stateless"])
@pytest.mark.parametrize("first", ["context", "result"])
def test_both_forms_in_one_call_are_a_fault_of_the_handler(era: str, first: str) -> None:
    server = Server("s")

    @server.tool
    async def work(ctx: Context) -> Any:
        if first == "context" or ctx.answers:
            await ctx.elicit(ELICIT, key="again")
        return InputRequired({"name": ELICIT})

    if era == "handshake":
        link = handshake(server)
        with pytest.raises(RequestError, match="Internal error"):
            link.call("work")
        reports = [f"{report}: {error!r}" for report, error in zip(link.reports, link.errors, strict=True)]
    else:
        reports = []

        async def main(runtime: Runtime) -> None:
            client = StatelessClient(server, runtime)
            with pytest.raises(RequestError, match="Internal error"):
                await client.talk("work", lambda *_: accept(name="Ada"))
            reports.extend(client.reports)

        under_trio(main)
    assert ["not both in one call" in report for report in reports] == [True]


def test_handler_with_endless_questions_is_stopped() -> None:
    server = Server("s")
    server.tool(lambda: InputRequired(state=b"again"), name="work")
    link = handshake(server)
    with pytest.raises(RequestError, match="Internal error"):
        link.call("work")
    assert "more than 10 times in one call" in str(link.errors[0])


@pytest.mark.req("MRTR-04")
def test_missing_capability_is_an_error_to_stateless_clients() -> None:
    server, _ = shop()

    async def main(runtime: Runtime) -> None:
        with pytest.raises(RequestError) as caught:
            await StatelessClient(server, runtime, capabilities=ClientCapabilities()).call("work")
        assert caught.value.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}

    under_trio(main)
    link = Link(server, era="handshake")
    with pytest.raises(RequestError, match="needs the capability elicitation"):
        link.call("work")


def test_failed_question_fails_the_call() -> None:
    server, _ = shop()
    link = Link(
        server,
        elicitation=cast("Any", lambda *_: 1 / 0),
        sampling=lambda *_: said("hi"),
        capabilities=EVERYTHING,
        era="handshake",
    )
    with pytest.raises(RequestError, match="Internal error"):
        link.call("work")


def test_cancelled_call_cancels_its_questions() -> None:
    server, _ = shop()
    started: list[int] = []
    ended: list[int] = []

    async def never(*_: Any) -> Any:
        started.append(1)
        try:
            await link.runtime.one_shot().wait()
        finally:
            ended.append(1)

    link = Link(server, elicitation=never, sampling=never, roots=never, capabilities=EVERYTHING)
    asked = link.start(link.client.call_tool("work"))
    asked.cancel()
    link.run()
    assert len(started) == len(ended) > 0


def test_task_takes_the_explicit_form() -> None:
    server, seen = Server("s"), list[Any]()

    @server.tool(task_support="required")
    async def work(ctx: Context) -> Any:
        seen.append(ctx.request_state)
        if ctx.request_state is None:
            return InputRequired({"name": ELICIT}, state=b"1")
        return ctx.answers["name"].content["name"]

    @server.tool(task_support="required")
    async def at_once() -> str:
        return "at once"

    link = handshake(server)

    async def started(name: str) -> str:
        handle = await link.client.start_task(CallToolRequest(name))
        return (await handle.result()).text

    assert link.do(started("work")) == "Ada"
    assert link.do(started("at_once")) == "at once"
    assert seen == [None, b"1"]


def test_client_handlers_do_not_ask() -> None:
    server = Server("s")

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.elicit(ELICIT)
        return "unreached"

    link = Link(server, elicitation=cast("Any", lambda *_: InputRequired(state=b"")), era="handshake")
    assert link.call("work").is_error
    assert any("InputRequired" in f"{error}" for error in link.errors)


WRONG: list[tuple[Any, type[Exception], str]] = [
    (InputRequired, ValueError, "requests, a state, or both"),
    (lambda: InputRequired(state=cast("Any", "text")), TypeError, "state must be bytes"),
    (lambda: InputRequired({"a": Tool("t", {})}), TypeError, "requests to a client"),
    (lambda: InputRequired({"a": TextContent("t")}), TypeError, "requests to a client"),
    (lambda: InputRequired(cast("Any", {1: ELICIT})), TypeError, "a mapping from names to requests"),
    (lambda: InputRequired({"a": GetPromptRequest("a")}), TypeError, "requests to a client"),
]


@pytest.mark.parametrize(("make", "error", "text"), WRONG)
def test_wrong_members_are_refused(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()
