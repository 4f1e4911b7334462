"""Tasks at a peer, as whoever asked for them sees them. The peer is played message by message."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest
from rawpeer import Wait, played_server
from rawtasks import CALL, DONE, RELATED, begin, client, state, told

from mcpio.app.context import Context
from mcpio.app.server import Server
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


def test_a_task_from_its_beginning_to_its_result() -> None:
    played = client()
    started = played.start(played.session.start_task(CALL, ttl=60))
    message = played.asked("tools/call")
    assert message["params"] == {"name": "slow", "task": {"ttl": 60000}}
    played.answer(message, task=state())
    task = started.result
    assert (task.id, task.owned, task.done, task.operation) == ("t1", True, False, "tools/call 'slow'")
    assert task.last is not None
    assert (task.last.status, task.immediate_response) == ("working", None)
    assert repr(task) == "<TaskHandle 't1' tools/call 'slow': working>"

    waiting = played.start(task.result())
    played.advance(2)
    played.answer(played.asked("tasks/get"), **state("completed"))
    played.answer(played.asked("tasks/result"), **DONE)
    assert waiting.result == CallToolResult((TextContent("done"),), meta={RELATED: {"taskId": "t1"}})
    assert task.done
    # It is kept.
    assert played.start(task.result()).result == waiting.result
    assert played.got() == []


# Looking


@pytest.mark.req("TASK-19")
@pytest.mark.parametrize(
    ("said", "expected"), [(2000, 2.0), (None, 1.0), (500, 0.5), (0, 0.05), (-3, 0.05), (600_000, 600.0)]
)
def test_the_state_is_looked_at_as_often_as_the_peer_wants(said: float | None, expected: float) -> None:
    played = client()
    created = state() if said is None else state(pollInterval=said)
    if said is None:
        del created["pollInterval"]
    task = begin(played, created=created)
    played.start(task.result())
    for _ in range(3):
        played.advance(expected * 0.99)
        assert played.got() == []
        played.advance(expected * 0.02)
        message = played.asked("tasks/get")
        assert message["params"] == {"taskId": "t1"}
        played.answer(message, **created)


@pytest.mark.req("TASK-17")
def test_the_result_is_asked_for_at_once_when_the_task_wants_input() -> None:
    played = client()
    task = begin(played)
    waiting = played.start(task.result())
    played.advance(2)
    played.answer(played.asked("tasks/get"), **state("input_required"))
    message = played.asked("tasks/result")
    assert message["params"] == {"taskId": "t1"}
    played.advance(100)
    assert played.got() == []
    played.answer(message, **DONE)
    assert waiting.state == "returned"


@pytest.mark.req("TASK-20")
def test_the_waiting_may_be_left_to_the_peer() -> None:
    played = client()
    task = begin(played)
    waits = [played.start(task.result(poll=False)) for _ in range(2)]
    messages = played.got()
    assert [message["method"] for message in messages] == ["tasks/result"] * 2
    played.advance(50)
    assert played.got() == []
    for message in messages:
        played.answer(message, **DONE)
    assert [each.state for each in waits] == ["returned"] * 2


@pytest.mark.req("TASK-30")
def test_what_the_peer_tells_is_used_and_not_needed() -> None:
    played = client()
    seen: list[str] = []
    task = begin(played, on_status=lambda each: seen.append(each.status))
    waiting = played.start(task.result())
    played.say(told("completed", id="other"), told("working"), told("completed"))
    assert seen == ["working", "completed"]
    played.answer(played.asked("tasks/result"), **DONE)
    assert waiting.state == "returned"
    # What is over stays as it is, whatever is told.
    played.say(told("working"))
    assert seen == ["working", "completed"]
    assert task.last is not None
    assert task.last.status == "completed"


@pytest.mark.req("TASK-30")
def test_what_is_told_before_the_handle_is_made_counts() -> None:
    played = client()
    starts = [played.start(played.session.start_task(CALL)) for _ in range(2)]
    first, second = played.got()
    for number in range(100):
        played.say(told("working", taskId=f"other{number}"))
    # All in one go: nobody waiting gets a turn before the end of it.
    for message in (told("completed"), {"id": first["id"], "result": {"task": state()}}):
        played.connection.receive_message(json.dumps({"jsonrpc": "2.0", **message}), 0.0)
    played.session.process()
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


def test_a_callback_is_called_though_the_handle_is_gone() -> None:
    played = client()
    seen: list[Task] = []
    begin(played, on_status=seen.append)
    gc.collect()
    played.say(told("failed", statusMessage="it broke"))
    assert [each.status for each in seen] == ["working", "failed"]
    assert seen[1].status_message == "it broke"


def test_a_callback_that_fails_costs_a_report() -> None:
    played = client()

    def fail(_: Task) -> None:
        raise KeyError("k")

    begin(played, on_status=fail)
    assert played.reports == ["a callback for the status of a task failed: 'k'"]
    with pytest.raises(TypeError, match="on_status is a plain function"):
        _ = played.start(played.session.start_task(CALL, on_status=5)).result  # type: ignore[call-overload]  # the mistake


def test_the_states_come_one_after_the_other() -> None:
    played = client()
    task = begin(played)
    seen: list[str] = []

    async def watch() -> None:
        nonlocal seen
        async for each in task:
            seen += [f"{each.status} {each.status_message}"]

    watching = played.start(watch())
    assert seen == ["working None"]
    played.advance(2)
    played.answer(played.asked("tasks/get"), **state(statusMessage="half"))
    played.advance(2)
    played.answer(played.asked("tasks/get"), **state(statusMessage="half", lastUpdatedAt="2025-11-25T10:31:00Z"))
    assert seen == ["working None", "working half"]
    played.say(told("failed"))
    assert seen[2:] == ["failed None"]
    assert watching.state == "returned"


@pytest.mark.req("TASK-17", "TASK-19")
def test_whoever_watches_opens_a_stream_for_the_peers_questions_and_goes_on_looking() -> None:
    played = client()
    task = begin(played)
    seen: list[str] = []

    async def watch() -> None:
        nonlocal seen
        async for each in task:
            seen += [each.status]

    watching = played.start(watch())
    played.say(told("input_required"))
    result = played.asked("tasks/result")
    played.advance(2)
    played.answer(played.asked("tasks/get"), **state("working"))
    played.say(told("input_required"))
    assert played.got() == []  # it is open
    played.answer(result, **DONE)
    played.answer(played.asked("tasks/get"), **state("completed"))
    assert seen == ["working", "input_required", "working", "input_required", "completed"]
    assert watching.state == "returned"
    assert played.start(task.result()).result.content == (TextContent("done"),)
    assert played.got() == []


def test_a_stream_that_the_peer_refuses_is_asked_for_again() -> None:
    played = client()
    task = begin(played)

    async def watch() -> None:
        async for _ in task:
            pass

    played.start(watch())
    for status in ("input_required", "working", "input_required"):
        played.say(told(status))
        for message in played.got():
            played.refuse(message, -32603)
    played.say(told("working"))
    played.say(told("input_required"))
    assert played.asked("tasks/result")


def test_a_task_known_by_its_id_is_looked_at_first() -> None:
    played = client()
    task = played.session.task("t1")
    assert (task.owned, task.last, task.done) == (False, None, False)
    assert repr(task) == "<TaskHandle 't1' tasks/result: unseen>"
    waiting = played.start(task.result())
    played.answer(played.asked("tasks/get"), **state("completed"))
    played.answer(played.asked("tasks/result"), **DONE)
    assert waiting.result.content == (TextContent("done"),)


# What may be a task


@pytest.mark.parametrize(
    ("ttl", "sent"), [(None, {}), (60, {"ttl": 60000}), (0.5, {"ttl": 500}), (0.0005, {"ttl": 0.5})]
)
def test_a_time_to_live_is_in_seconds(ttl: float | None, sent: dict[str, Any]) -> None:
    played = client()
    played.start(played.session.start_task(CALL, ttl=ttl))
    assert played.asked("tools/call")["params"]["task"] == sent


def test_a_request_that_asks_by_itself_is_left_as_it_is() -> None:
    played = client()
    played.start(played.session.start_task(CallToolRequest("slow", task=TaskMetadata(5))))
    assert played.asked("tools/call")["params"]["task"] == {"ttl": 5}


@pytest.mark.parametrize("ttl", [0, -1, float("inf"), float("nan")])
def test_a_time_to_live_that_is_none(ttl: float) -> None:
    played = client()
    with pytest.raises(ValueError, match="a ttl is a number of seconds, more than 0"):
        _ = played.start(played.session.start_task(CALL, ttl=ttl)).result


@pytest.mark.req("TASK-08")
@pytest.mark.parametrize("request_", [ListToolsRequest(), 5])
def test_other_requests_are_no_tasks(request_: Any) -> None:
    played = client()
    with pytest.raises(LocalProtocolError, match="cannot be a task"):
        _ = played.start(played.session.start_task(request_)).result


@pytest.mark.req("TASK-02", "TASK-05")
@pytest.mark.parametrize("tasks", [None, {}, {"list": {}, "cancel": {}}])
def test_a_server_that_did_not_declare_it_is_not_asked(tasks: Any) -> None:
    played = client(tasks)
    with pytest.raises(LocalProtocolError, match=r"tasks\.requests\.tools\.call"):
        _ = played.start(played.session.start_task(CALL)).result
    assert played.got() == []


# By id


@pytest.mark.req("TASK-19", "TASK-24", "TASK-25", "TASK-29")
def test_tasks_are_asked_about_by_their_ids() -> None:
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


def test_handles_that_are_gone_leave_nothing_behind() -> None:
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
def test_what_a_handler_asks_of_its_client_may_be_a_task() -> None:
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
