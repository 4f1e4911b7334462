"""Rules of revision 2026-07-28, each side of ours towards a peer that a test plays: rounds of questions, and caches."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from rawpeer import INFO, Played
from stateless import SERVER, SUBSCRIPTION, meta

from mcpio import Context, Server
from mcpio.app.caching import ResultCache
from mcpio.app.client import Client, client_connection
from mcpio.app.contracts import CacheHint
from mcpio.app.tasks.receiver import TaskOptions
from mcpio.engine.options import Options
from mcpio.errors import RequestError, SamplingRejected, TooManyRounds
from mcpio.revisions import REVISIONS
from mcpio.types import CallToolResult, CreateMessageResult, ElicitResult, SubscriptionFilter, TextContent
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


def stateless_client(offers: dict[str, Any] = OFFERS, /, **options: Any) -> Played[Client]:
    """Return a client that has discovered a stateless server with these capabilities."""
    connection = client_connection(era="stateless", **options)
    played: Played[Client] = Played(connection)
    played.session = Client(connection, played, era="stateless", **options)
    opening = played.start(played.session.initialize())
    discovered: dict[str, Any] = {"supportedVersions": ["2026-07-28"], "capabilities": offers, "_meta": {SERVER: INFO}}
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

    @server.tool(task_support="required")
    async def drop(ctx: Context, how: str) -> str:
        raise RequestError(-32001, "dropped") if how == "by the protocol" else ValueError("dropped")

    @server.tool
    async def greet(ctx: Context) -> str:
        who = await ctx.elicit("Who?", Guest)
        again = await ctx.elicit("Really?", Guest)
        return f"{type(who).__name__} {type(again).__name__}"

    server.resource("bench://{name}", name="of a template")(lambda name: name)

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


WITH_FORMS: dict[str, Any] = {"elicitation": {"form": {}}}
WITH_TASKS: dict[str, Any] = {**WITH_FORMS, "extensions": {TASKS_EXTENSION: {}}}


@pytest.mark.req("ENV-14", "ENV-16")
def test_lists_are_the_same_for_each_connection_and_may_be_empty() -> None:
    first, second = stateless_server(), stateless_server()
    asked_of(first, "tools/call", WITH_FORMS, name="greet")
    assert asked_of(first, "tools/call", name="none")["error"]["code"] == -32602
    for method, kind in (("tools/list", "tools"), ("resources/list", "resources"), ("resources/templates/list", None)):
        one, other = asked_of(first, method), asked_of(second, method, WITH_TASKS)
        assert one == other
        if kind == "resources":
            assert one["result"][kind] == []


@pytest.mark.req("MRTR-09", "MRTR-11", "MRTR-17")
def test_server_asks_again_where_a_retry_has_no_answers_and_takes_a_refusal_for_one() -> None:
    peer = stateless_server()
    first = asked_of(peer, "tools/call", WITH_FORMS, name="greet")["result"]
    ((key, question),) = first["inputRequests"].items()
    again = asked_of(peer, "tools/call", WITH_FORMS, name="greet")["result"]
    assert [asked["params"]["message"] for asked in again["inputRequests"].values()] == ["Who?"]
    assert question["params"]["message"] == "Who?"
    state = {name: first[name] for name in ("requestState",) if name in first}
    declined = {"inputResponses": {key: {"action": "decline"}}, **state}
    second = asked_of(peer, "tools/call", WITH_FORMS, name="greet", **declined)["result"]
    ((key, question),) = second["inputRequests"].items()
    assert question["params"]["message"] == "Really?"
    cancelled = {"inputResponses": {key: {"action": "cancel"}}, "requestState": second["requestState"]}
    done = asked_of(stateless_server(), "tools/call", WITH_FORMS, name="greet", **cancelled)
    assert done["error"]["code"] == -32602, "the state is sealed by another server"
    done = asked_of(peer, "tools/call", WITH_FORMS, name="greet", **cancelled)["result"]
    assert done["content"][0]["text"] == "Declined Cancelled"


@pytest.mark.req("MRTR-09", "MRTR-10")
@pytest.mark.parametrize("wrong", ["altered", "empty", "of another call"])
def test_state_that_is_altered_or_of_another_call_is_refused(wrong: str) -> None:
    peer = stateless_server()
    answers: dict[str, Any] = {}
    state = ""
    for _ in range(2):
        more = {"requestState": state} if state else {}
        asked = asked_of(peer, "tools/call", WITH_FORMS, name="greet", inputResponses=answers, **more)["result"]
        answers, state = {key: {"action": "decline"} for key in asked["inputRequests"]}, asked.get("requestState", "")
    middle = len(state) // 2
    altered = state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]
    states = {"altered": altered, "empty": "", "of another call": state}
    name = "book" if wrong == "of another call" else "greet"
    refused = asked_of(peer, "tools/call", WITH_TASKS, name=name, inputResponses=answers, requestState=states[wrong])
    assert refused["error"]["code"] == -32602


@pytest.mark.req("XTASK-05", "XTASK-07")
@pytest.mark.parametrize("how", ["by the protocol", "by itself"])
def test_only_an_error_of_the_protocol_makes_a_task_failed(how: str) -> None:
    peer = stateless_server()
    created = asked_of(peer, "tools/call", WITH_TASKS, name="drop", arguments={"how": how})["result"]
    task = asked_of(peer, "tasks/get", WITH_TASKS, taskId=created["taskId"])["result"]
    if how == "by the protocol":
        assert (task["status"], task["error"]["code"], "result" in task) == ("failed", -32001, False)
    else:
        assert (task["status"], task["result"]["isError"], "error" in task) == ("completed", True, False)


@pytest.mark.req("XTASK-09")
def test_question_that_a_task_asks_again_has_a_key_of_its_own() -> None:
    peer = stateless_server()
    asked = asked_of(peer, "tools/call", WITH_TASKS, name="book")["result"]
    answers = {key: {"action": "accept", "content": {"name": "Ada"}} for key in asked["inputRequests"]}
    state = {name: asked[name] for name in ("requestState",) if name in asked}
    id = asked_of(peer, "tools/call", WITH_TASKS, name="book", inputResponses=answers, **state)["result"]["taskId"]
    keys = []
    for content in ({"name": 5}, {}, {"name": "Bob"}):
        (key,) = asked_of(peer, "tasks/get", WITH_TASKS, taskId=id)["result"]["inputRequests"]
        keys.append(key)
        answer = {key: {"action": "accept", "content": content}}
        asked_of(peer, "tasks/update", WITH_TASKS, taskId=id, inputResponses=answer)
    assert len(set(keys)) == 3
    assert asked_of(peer, "tasks/get", WITH_TASKS, taskId=id)["result"]["status"] == "completed"


@pytest.mark.req("CACHE-06", "SUB-04")
def test_client_drops_a_kept_list_once_it_is_told_of_a_change() -> None:
    peer = stateless_client({"tools": {"listChanged": True}, "prompts": {"listChanged": True}})
    wait = peer.start(peer.session.listen(tools=True, prompts=True).__aenter__())
    listening = peer.asked("subscriptions/listen")
    assert listening["params"]["notifications"] == {"toolsListChanged": True, "promptsListChanged": True}
    subscribed = {SUBSCRIPTION: listening["id"]}
    honoured = {"notifications": {"toolsListChanged": True}, "_meta": subscribed}
    peer.say({"method": "notifications/subscriptions/acknowledged", "params": honoured})
    assert wait.result.honoured == SubscriptionFilter(tools_list_changed=True)
    assert listed(peer, ttl=60000) == ["after None"]
    assert listed(peer) == ["after None"]
    peer.say({"method": "notifications/tools/list_changed", "params": {"_meta": subscribed}})
    assert listed(peer, ttl=60000) == ["after None"]


@pytest.mark.req("CACHE-05")
@pytest.mark.parametrize("scope", ["private", "public"])
def test_clients_with_one_cache_share_public_results_alone(scope: str) -> None:
    shared = ResultCache()
    ann, bob = stateless_client(shared_cache=shared), stateless_client(shared_cache=shared)
    assert listed(ann, ttl=60000, cacheScope=scope) == ["after None"]
    assert listed(bob, ttl=None if scope == "public" else 60000) == ["after None"]
