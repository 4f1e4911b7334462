"""Rules of revision 2026-07-28, each side of ours towards a peer that a test plays: rounds of questions, and caches."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from rawpeer import INFO, Played
from stateless import SERVER, meta

from mcpio import Context, Server
from mcpio.app.client import Client, client_connection
from mcpio.app.contracts import CacheHint
from mcpio.app.tasks.receiver import TaskOptions
from mcpio.engine.options import Options
from mcpio.errors import RequestError, SamplingRejected, TooManyRounds
from mcpio.revisions import REVISIONS
from mcpio.types import CallToolResult, CreateMessageResult, ElicitResult, TextContent
from mcpio.types.base import TASKS_EXTENSION

FORM = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}},
}
SAMPLE = {
    "method": "sampling/createMessage",
    "params": {"maxTokens": 5, "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]},
}
OFFERS: dict[str, Any] = {"tools": {}, "resources": {}}


def stateless_client(**options: Any) -> Played[Client]:
    """Return a client that has discovered a stateless server."""
    connection = client_connection(era="stateless", **options)
    played: Played[Client] = Played(connection)
    played.session = Client(connection, played, era="stateless", **options)
    opening = played.start(played.session.initialize())
    discovered: dict[str, Any] = {"supportedVersions": ["2026-07-28"], "capabilities": OFFERS, "_meta": {SERVER: INFO}}
    completed(played, played.asked("server/discover"), **discovered)
    assert opening.state == "returned"
    return played


def completed(played: Played[Any], request: dict[str, Any], *, ttl: int = 0, **result: Any) -> None:
    hint = {"ttlMs": ttl, "cacheScope": "private"}
    played.answer(request, resultType="complete", **{**hint, **result})


def wants(played: Played[Any], request: dict[str, Any], **more: Any) -> None:
    """Answer a request by questions, or by a state."""
    played.answer(request, resultType="input_required", **more)


def of_call(request: dict[str, Any]) -> dict[str, Any]:
    """Return the params of a request without its envelope."""
    return {name: value for name, value in request["params"].items() if name != "_meta"}


def contents(text: str) -> list[dict[str, Any]]:
    return [{"uri": "a:1", "text": text}]


# Rounds


@pytest.mark.req("MRTR-05", "MRTR-13")
@pytest.mark.parametrize("answer", [{"action": "decline"}, {"action": "cancel"}, {"action": "accept", "content": {}}])
def test_client_asks_its_user_and_repeats_the_call_with_the_answer(answer: dict[str, Any]) -> None:
    peer = stateless_client(elicitation=lambda _, __: ElicitResult(answer["action"], answer.get("content")))
    wait = peer.start(peer.session.call_tool("x", {"a": 1}))
    first = peer.asked("tools/call")
    wants(peer, first, inputRequests={"who": FORM}, requestState="s1")
    second = peer.asked("tools/call")
    assert of_call(second) == {**of_call(first), "inputResponses": {"who": answer}, "requestState": "s1"}
    assert second["id"] != first["id"]
    completed(peer, second, content=[{"type": "text", "text": "done"}])
    assert wait.result.text == "done"


@pytest.mark.req("MRTR-05")
def test_client_repeats_a_call_with_a_state_only_some_time_later() -> None:
    peer = stateless_client()
    wait = peer.start(peer.session.call_tool("x"))
    wants(peer, peer.asked("tools/call"), requestState="s1")
    assert peer.got() == []
    peer.advance(60.0)
    again = peer.asked("tools/call")
    assert of_call(again) == {"name": "x", "requestState": "s1"}
    completed(peer, again, content=[])
    assert wait.state == "returned"


@pytest.mark.req("MRTR-05")
@pytest.mark.parametrize("rounds", [1, None])
def test_client_gives_up_after_a_number_of_rounds(rounds: int | None) -> None:
    peer = stateless_client(elicitation=lambda _, __: ElicitResult("decline"), rounds=rounds)
    wait = peer.start(peer.session.call_tool("x"))
    for _ in range(1 + (rounds or 10)):
        wants(peer, peer.asked("tools/call"), inputRequests={"who": FORM})
    assert peer.got() == []
    with pytest.raises(TooManyRounds):
        wait.result  # noqa: B018 - it raises the failure of the call


@pytest.mark.req("MRTR-13")
def test_client_that_rejects_sampling_does_not_repeat_the_call() -> None:
    def reject(*_: Any) -> Any:
        raise SamplingRejected

    peer = stateless_client(sampling=reject)
    wait = peer.start(peer.session.call_tool("x"))
    wants(peer, peer.asked("tools/call"), inputRequests={"model": SAMPLE})
    assert peer.got() == []
    with pytest.raises(SamplingRejected):
        wait.result  # noqa: B018 - it raises the failure of the call


@pytest.mark.req("MRTR-16")
def test_sampled_message_in_an_answer_is_a_plain_value() -> None:
    asked: list[int] = []

    def sample(_: Any, request: Any) -> CreateMessageResult:
        asked.append(request.max_tokens)
        return CreateMessageResult("assistant", TextContent("yes"), "small")

    peer = stateless_client(sampling=sample)
    peer.start(peer.session.call_tool("x"))
    wants(peer, peer.asked("tools/call"), inputRequests={"model": SAMPLE})
    message = {"role": "assistant", "content": {"type": "text", "text": "yes"}, "model": "small"}
    assert peer.asked("tools/call")["params"]["inputResponses"] == {"model": message}
    assert asked == [5]


# Caches


def read(peer: Played[Client], uri: str = "a:1", *, answer: str | None = None, ttl: int = 60000) -> str:
    """Read a resource, which the server is asked for if the test has its answer."""
    wait = peer.start(peer.session.read_resource(uri))
    if answer is not None:
        completed(peer, peer.asked("resources/read"), ttl=ttl, contents=contents(answer))
    assert peer.got() == []
    block: Any = wait.result.contents[0]
    return str(block.text)


@pytest.mark.req("CACHE-03", "CACHE-04")
def test_client_keeps_a_result_for_its_params_only() -> None:
    peer = stateless_client()
    assert read(peer, answer="one") == "one"
    assert read(peer, "a:2", answer="two") == "two"
    assert (read(peer), read(peer, "a:2")) == ("one", "two")
    peer.advance(59.5)
    assert read(peer) == "one"
    peer.advance(0.5)
    assert read(peer, answer="new") == "new"
    assert read(peer, "a:3", answer="three", ttl=0) == "three"
    assert read(peer, "a:3", answer="four", ttl=0) == "four"


@pytest.mark.req("CACHE-07", "MRTR-14")
def test_client_keeps_no_result_of_a_call_with_answers() -> None:
    peer = stateless_client(elicitation=lambda _, __: ElicitResult("decline"))
    for text in ("first", "second"):
        wait = peer.start(peer.session.read_resource("a:1"))
        wants(peer, peer.asked("resources/read"), inputRequests={"who": FORM})
        completed(peer, peer.asked("resources/read"), ttl=60000, contents=contents(text))
        assert wait.state == "returned"
    assert read(peer, answer="for all") == "for all"
    assert read(peer) == "for all"


def listed(peer: Played[Client], cursor: str | None = None, *, ttl: int | None = None, **more: Any) -> list[str]:
    """List tools, which the server is asked for if the test says how long its answer is fresh."""
    wait = peer.start(peer.session.list_tools(cursor=cursor))
    if ttl is not None:
        tool = {"name": f"after {cursor}", "inputSchema": {"type": "object"}}
        completed(peer, peer.asked("tools/list"), ttl=ttl, tools=[tool], **more)
    assert peer.got() == []
    return [tool.name for tool in wait.result.tools]


@pytest.mark.req("CACHE-04", "CACHE-08")
def test_client_keeps_each_page_for_its_own_time() -> None:
    peer = stateless_client()
    assert listed(peer, ttl=60000, nextCursor="p2") == ["after None"]
    peer.advance(30.0)
    assert listed(peer, "p2", ttl=60000) == ["after p2"]
    peer.advance(30.0)
    assert listed(peer, "p2") == ["after p2"]
    assert listed(peer, ttl=60000, nextCursor="p2") == ["after None"]


@pytest.mark.req("CACHE-08", "PAGE-05")
def test_refused_cursor_drops_the_pages_that_were_kept() -> None:
    peer = stateless_client()
    listed(peer, ttl=60000, nextCursor="p2")
    wait = peer.start(peer.session.list_tools(cursor="p2"))
    peer.refuse(peer.asked("tools/list"), -32602)
    with pytest.raises(RequestError):
        wait.result  # noqa: B018 - it raises the failure of the call
    assert listed(peer, ttl=60000) == ["after None"]


# A server


@attrs.frozen
class Guest:
    name: str


def workshop() -> Server:
    server = Server(
        "workshop",
        page_size=2,
        tasks=TaskOptions(),
        cache=CacheHint(60.0, "public"),
        options=Options(revisions=REVISIONS),
    )

    @server.tool
    def measure(kind: str) -> CallToolResult:
        value: Any = {"array": [1], "zero": 0, "text": ""}[kind]
        return CallToolResult((), value)

    @server.tool(task_support="required")
    async def dig(ctx: Context) -> str:
        return "a hole"

    @server.tool(task_support="optional", becomes_task=True)
    async def book(ctx: Context) -> str:
        who = await ctx.elicit("Who?", Guest, key="who")
        await ctx.become_task()
        again = await ctx.elicit("Sure?", Guest, key="who again")
        return f"{type(who).__name__} {type(again).__name__}"

    return server


def stateless_server() -> Played[Any]:
    server = workshop()
    connection = server.connection()
    played: Played[Any] = Played(connection)
    played.session = server.session(connection, played, None)
    return played


def asked_of(peer: Played[Any], method: str, declared: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    """Return the answer of a server to one request."""
    peer.say({"id": "q", "method": method, "params": {**params, "_meta": meta(declared)}})
    (answer,) = peer.got()
    assert answer["id"] == "q"
    peer.runtime.run()
    return answer


def answer_of(method: str, declared: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    """Return the answer of a new server to its first request."""
    return asked_of(stateless_server(), method, declared, **params)


@pytest.mark.req("XTASK-02", "EXT-02")
def test_tool_that_must_be_a_task_needs_a_client_that_declares_tasks() -> None:
    error = answer_of("tools/call", name="dig")["error"]
    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
    created = answer_of("tools/call", {"extensions": {TASKS_EXTENSION: {}}}, name="dig")["result"]
    assert created["resultType"] == "task"


@pytest.mark.req("XTASK-15")
def test_questions_before_a_task_are_asked_by_the_call_and_later_ones_by_the_task() -> None:
    peer = stateless_server()
    declared: dict[str, Any] = {"elicitation": {"form": {}}, "extensions": {TASKS_EXTENSION: {}}}
    asked = asked_of(peer, "tools/call", declared, name="book")["result"]
    assert (asked["resultType"], list(asked["inputRequests"])) == ("input_required", ["who"])
    answers = {"who": {"action": "accept", "content": {"name": "Ada"}}}
    state = {name: asked[name] for name in ("requestState",) if name in asked}
    created = asked_of(peer, "tools/call", declared, name="book", inputResponses=answers, **state)["result"]
    assert (created["resultType"], created["status"]) == ("task", "working")
    assert "inputRequests" not in created
    task = asked_of(peer, "tasks/get", declared, taskId=created["taskId"])["result"]
    assert task["status"] == "input_required"
    assert [question["params"]["message"] for question in task["inputRequests"].values()] == ["Sure?"]


@pytest.mark.req("CACHE-01", "CACHE-08")
def test_pages_of_a_list_have_the_same_scope() -> None:
    first = answer_of("tools/list")["result"]
    second = answer_of("tools/list", cursor=first["nextCursor"])["result"]
    assert [(page["ttlMs"], page["cacheScope"]) for page in (first, second)] == [(60000, "public")] * 2


@pytest.mark.req("GONE-07")
@pytest.mark.parametrize(("kind", "value"), [("array", [1]), ("zero", 0), ("text", "")])
def test_server_sends_structured_content_of_every_kind(kind: str, value: Any) -> None:
    result = answer_of("tools/call", name="measure", arguments={"kind": kind})["result"]
    assert result["structuredContent"] == value


@pytest.mark.req("GONE-07")
@pytest.mark.parametrize("value", [[1], 0, "", False, {}, None])
def test_client_reads_structured_content_of_every_kind(value: Any) -> None:
    peer = stateless_client()
    wait = peer.start(peer.session.call_tool("x"))
    completed(peer, peer.asked("tools/call"), content=[], structuredContent=value)
    result = wait.result
    assert (type(result.structured_content), result.structured_content) == (type(value), value)
    assert result.has_structured_content
    wait = peer.start(peer.session.call_tool("x"))
    completed(peer, peer.asked("tools/call"), content=[])
    assert not wait.result.has_structured_content
