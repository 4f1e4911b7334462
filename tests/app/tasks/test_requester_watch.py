"""How tasks at a peer begin, and who hears of them. The peer is played message by message."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest
from rawpeer import played_server
from rawtasks import CALL, DONE, begin, client, state, told
from waits import Wait

from mcpio.app.context import Context
from mcpio.app.server import Server
from mcpio.engine.tasks import LONGEST
from mcpio.errors import (
    LocalProtocolError,
)
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitFormRequest,
    ElicitResult,
    ElicitSchema,
    GetTaskPayloadResult,
    ListToolsRequest,
    SamplingMessage,
    Task,
    TaskMetadata,
    TextContent,
)

SAMPLE = CreateMessageRequest((SamplingMessage("user", TextContent("hi")),), 10)
FORM = ElicitFormRequest("hi", ElicitSchema({}))


# Beginning


@pytest.mark.req("TASK-30")
def test_early_status_reaches_the_new_handle() -> None:
    played = client()
    starts = [played.start(played.session.start_task(CALL)) for _ in range(2)]
    first, second = played.got()
    for number in range(100):
        played.say(told("working", taskId=f"other{number}"))
    # All in one go: nobody waiting gets a turn before the end of it.
    for message in (told("completed"), {"id": first["id"], "result": {"task": state()}}):
        played.connection.receive_message(json.dumps({"jsonrpc": "2.0", **message}), 0.0)
    played.session._process()
    played.runtime.run()
    assert starts[0].result.last is not None
    assert starts[0].result.last.status == "completed"
    watch = played.session._task_watch
    assert watch is not None
    assert len(watch._early) == 64
    played.answer(second, task=state(id="t2"))
    assert starts[1].result.last is not None
    assert starts[1].result.last.status == "working"
    assert watch._early == {}


def test_callback_is_called_after_its_handle_was_dropped() -> None:
    played = client()
    seen: list[Task] = []
    begin(played, on_status=seen.append)
    gc.collect()
    played.say(told("failed", statusMessage="it broke"))
    assert [each.status for each in seen] == ["working", "failed"]
    assert seen[1].status_message == "it broke"


def test_failing_status_callback_is_reported() -> None:
    played = client()

    def fail(_: Task) -> None:
        raise KeyError("k")

    begin(played, on_status=fail)
    assert played.reports == ["a callback for the status of a task failed: 'k'"]
    with pytest.raises(TypeError, match="on_status must be a plain function"):
        _ = played.start(played.session.start_task(CALL, on_status=5)).result  # type: ignore[call-overload]  # the mistake


@pytest.mark.req("TASK-03")
def test_plain_result_ends_a_task_request() -> None:
    played = client()
    started = played.start(played.session.start_task(CALL))
    played.answer(played.asked("tools/call"), content=[])
    task = started.result
    assert (task.id, task.last, task.done) == ("", None, True)
    assert played.start(task.result()).result == CallToolResult(())

    async def states() -> list[Task]:
        return [each async for each in task]

    assert played.start(states()).result == []
    with pytest.raises(LocalProtocolError, match="made no task of it"):
        _ = played.start(task.status()).result


@pytest.mark.parametrize("said", ["I am on it", 5])
def test_immediate_response_is_exposed(said: Any) -> None:
    played = client()
    started = played.start(played.session.start_task(CALL))
    meta = {"io.modelcontextprotocol/model-immediate-response": said}
    played.answer(played.asked("tools/call"), task=state(), _meta=meta)
    assert started.result.immediate_response == (said if isinstance(said, str) else None)


# What may be a task


@pytest.mark.parametrize(("ttl", "sent"), [(None, {}), (60, {"ttl": 60000}), (0.5, {"ttl": 500}), (0.0005, {"ttl": 1})])
def test_a_time_to_live_is_in_seconds(ttl: float | None, sent: dict[str, Any]) -> None:
    played = client()
    played.start(played.session.start_task(CALL, ttl=ttl))
    assert played.asked("tools/call")["params"]["task"] == sent


def test_request_with_task_params_is_sent_unchanged() -> None:
    played = client()
    played.start(played.session.start_task(CallToolRequest("slow", task=TaskMetadata(5))))
    assert played.asked("tools/call")["params"]["task"] == {"ttl": 5}


def test_ttl_of_ages_is_sent_as_the_longest_there_is() -> None:
    played = client()
    played.start(played.session.start_task(CALL, ttl=1e306))
    assert played.asked("tools/call")["params"]["task"] == {"ttl": LONGEST}


@pytest.mark.parametrize("ttl", [0, -1, float("inf"), float("nan"), "5", True])
def test_invalid_ttl_raises(ttl: Any) -> None:
    played = client()
    with pytest.raises(ValueError, match="a ttl must be a number of seconds, more than 0"):
        _ = played.start(played.session.start_task(CALL, ttl=ttl)).result


@pytest.mark.req("TASK-08")
@pytest.mark.parametrize("request_", [ListToolsRequest(), 5])
def test_other_methods_cannot_be_tasks(request_: Any) -> None:
    played = client()
    with pytest.raises(LocalProtocolError, match="cannot be a task"):
        _ = played.start(played.session.start_task(request_)).result


@pytest.mark.req("TASK-02", "TASK-05")
@pytest.mark.parametrize("tasks", [None, {}, {"list": {}, "cancel": {}}])
def test_undeclared_task_support_raises_without_sending(tasks: Any) -> None:
    played = client(tasks)
    with pytest.raises(LocalProtocolError, match=r"tasks\.requests\.tools\.call"):
        _ = played.start(played.session.start_task(CALL)).result
    assert played.got() == []


# By id


@pytest.mark.req("TASK-19", "TASK-24", "TASK-25", "TASK-29")
def test_tasks_are_queried_by_id() -> None:
    played = client()
    session = played.session
    calls: list[tuple[Any, str, dict[str, Any], dict[str, Any]]] = [
        (session.get_task("t1"), "tasks/get", {"taskId": "t1"}, state(more=5)),
        (session.cancel_task("t1"), "tasks/cancel", {"taskId": "t1"}, state("cancelled")),
        (session.list_tasks(), "tasks/list", {}, {"tasks": [state(), state(id="t2")]}),
        (session.list_tasks("next"), "tasks/list", {"cursor": "next"}, {"tasks": []}),
    ]
    results = []
    for call, method, params, answer in calls:
        asking = played.start(call)
        message = played.asked(method)
        assert message.get("params", {}) == params
        played.answer(message, **answer)
        results.append(asking.result)
    assert isinstance(results[0], Task)
    assert results[0].extra == {"more": 5}
    assert results[1].status == "cancelled"
    assert [task.task_id for task in results[2].tasks] == ["t1", "t2"]


@pytest.mark.req("TASK-24")
def test_all_tasks_page_by_page() -> None:
    played = client()

    async def ids() -> list[str]:
        return [task.task_id async for task in played.session.tasks()]

    listing = played.start(ids())
    played.answer(played.asked("tasks/list"), tasks=[state(), {"taskId": 5}], nextCursor="2")
    message = played.asked("tasks/list")
    assert message["params"] == {"cursor": "2"}
    played.answer(message, tasks=[state(id="t2")])
    assert listing.result == ["t1", "t2"]
    assert len(played.reports) == 1


def test_a_result_by_id_is_of_the_type_that_is_asked_for() -> None:
    played = client()
    for result_type, expected in (
        (None, CallToolResult((TextContent("done"),), meta=DONE["_meta"])),
        (GetTaskPayloadResult, GetTaskPayloadResult(meta=DONE["_meta"], extra={"content": DONE["content"]})),
    ):
        asking: Wait[Any] = played.start(played.session.task_result("t1", result_type))
        played.answer(played.asked("tasks/get"), **state("completed"))
        played.answer(played.asked("tasks/result"), **DONE)
        assert asking.result == expected


def test_handle_of_a_task_by_its_id_has_no_immediate_response() -> None:
    assert client().session.task("t").immediate_response is None


def test_dropped_handles_free_their_memory() -> None:
    played = client()
    for number in range(1000):
        played.session.task(f"t{number}")
    watch = played.session._task_watch
    assert watch is not None
    assert len(watch._handles) < 200
    kept = [played.session.task("t1", on_status=lambda _: None) for _ in range(2)]
    played.say(told("completed"))
    assert [handle.done for handle in kept] == [True, True]
    assert not watch._kept


# A server asks its client


@pytest.mark.req("TASK-31")
@pytest.mark.parametrize(
    ("request_", "tasks", "answer", "expected"),
    [
        (
            SAMPLE,
            {"sampling": {"createMessage": {}}},
            {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"},
            CreateMessageResult("assistant", TextContent("x"), "m"),
        ),
        (FORM, {"elicitation": {"create": {}}}, {"action": "decline"}, ElicitResult("decline")),
    ],
    ids=["sampling", "elicitation"],
)
def test_a_server_has_tasks_at_its_client(request_: Any, tasks: Any, answer: dict[str, Any], expected: Any) -> None:
    played = played_server(
        Server("s"), {"sampling": {}, "elicitation": {}, "tasks": {"requests": tasks, "cancel": {}, "list": {}}}
    )
    task = begin(played, request_)
    waiting = played.start(task.result())
    played.advance(2)
    played.answer(played.asked("tasks/get"), **state("completed"))
    played.answer(played.asked("tasks/result"), **answer)
    assert waiting.result == expected
    assert played.session.task("t1")._result_type is GetTaskPayloadResult


@pytest.mark.req("TASK-31")
def test_request_of_a_handler_may_be_a_task() -> None:
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit(FORM, task=60)
        message = await ctx.sample(SAMPLE, task=True)
        return f"{answer.action} {message.model}"

    requests: dict[str, Any] = {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}}
    played = played_server(server, {"sampling": {}, "elicitation": {}, "tasks": {"requests": requests}})
    played.say({"id": 5, "method": "tools/call", "params": {"name": "ask"}})
    for method, ttl, answer in (
        ("elicitation/create", {"ttl": 60000}, {"action": "accept", "content": {}}),
        ("sampling/createMessage", {}, {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}),
    ):
        message = played.asked(method)
        assert message["params"]["task"] == ttl
        played.answer(message, task=state(id=method))
        played.say(told("completed", id=method))
        played.answer(played.asked("tasks/result"), **answer)
    (result,) = played.got()
    assert result["result"]["content"][0]["text"] == "accept m"


def test_other_notifications_are_ignored_by_handles() -> None:
    played = client()
    task = begin(played)
    played.say({"method": "notifications/tools/list_changed"})
    assert not task.done
