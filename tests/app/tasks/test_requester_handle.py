"""Tasks at a peer, as whoever asked for them sees them. The peer is played message by message."""

from __future__ import annotations

from typing import Any

import pytest
from rawtasks import CALL, DONE, RELATED, begin, client, state, told

from mcpio.app.tasks.requester import LONGEST_WAIT, _may_pass
from mcpio.engine.limits import Timeout
from mcpio.errors import (
    ConnectionLost,
    InvalidMessage,
    LocalProtocolError,
    NoBackChannel,
    RequestCancelled,
    RequestError,
    RequestTimeout,
    UnexpectedResponse,
)
from mcpio.types import (
    CallToolResult,
    TextContent,
)


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


def test_repr_of_a_handle_names_its_request() -> None:
    played = client()
    assert repr(begin(played)) == "<TaskHandle 't1' tools/call 'slow': working>"
    assert repr(played.session.task("t2")) == "<TaskHandle 't2' tasks/result: unseen>"


def test_handle_without_a_task_has_only_a_result() -> None:
    played = client()
    started = played.start(played.session.start_task(CALL))
    played.answer(played.asked("tools/call"), content=[])
    assert played.start(started.result.result()).result == CallToolResult(())
    with pytest.raises(LocalProtocolError, match="made no task of it"):
        _ = played.start(started.result.cancel()).result


# Looking


@pytest.mark.req("TASK-19")
@pytest.mark.parametrize(
    ("said", "expected"), [(2000, 2.0), (None, 1.0), (500, 0.5), (0, 0.05), (-3, 0.05), (600_000, 600.0)]
)
def test_state_is_polled_at_the_interval_of_the_peer(said: float | None, expected: float) -> None:
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


def test_huge_poll_interval_is_kept() -> None:
    played = client()
    task = begin(played, created=state(pollInterval=10**400))
    waiting = played.start(task.result(timeout=None))
    played.advance(10**9)
    assert (waiting.state, played.got()) == ("waits", [])
    played.say(told("completed"))
    played.answer(played.asked("tasks/result"), **DONE)
    assert waiting.state == "returned"


@pytest.mark.req("TASK-17")
def test_input_required_requests_the_result_at_once() -> None:
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
def test_poll_false_requests_the_result_at_once() -> None:
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


@pytest.mark.req("TASK-30", "TASK-38")
def test_status_notifications_are_used_but_not_needed() -> None:
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


def test_iteration_yields_the_states_in_order() -> None:
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
def test_iteration_requests_the_result_while_input_is_required() -> None:
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


def test_refused_result_request_is_repeated_at_the_next_input_required() -> None:
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


def test_handle_made_from_an_id_requests_the_state_first() -> None:
    played = client()
    task = played.session.task("t1")
    assert (task.owned, task.last, task.done) == (False, None, False)
    assert repr(task) == "<TaskHandle 't1' tasks/result: unseen>"
    waiting = played.start(task.result())
    played.answer(played.asked("tasks/get"), **state("completed"))
    played.answer(played.asked("tasks/result"), **DONE)
    assert waiting.result.content == (TextContent("done"),)


# The outcome


@pytest.mark.req("TASK-21")
def test_the_tasks_own_error_is_raised() -> None:
    played = client()
    task = begin(played)
    waiting = played.start(task.result(poll=False))
    played.refuse(played.asked("tasks/result"), -32010, "it broke")
    played.answer(played.asked("tasks/get"), **state("failed"))
    with pytest.raises(RequestError, match="it broke") as caught:
        _ = waiting.result
    assert caught.value.code == -32010
    assert task.done


@pytest.mark.req("TASK-23")
def test_cancellation_that_was_not_reported_is_found_in_the_state() -> None:
    played = client()
    waiting = played.start(begin(played).result(poll=False))
    played.refuse(played.asked("tasks/result"), -32603)
    played.answer(played.asked("tasks/get"), **state("cancelled", statusMessage="no more"))
    with pytest.raises(RequestCancelled, match=r"cancelled \(no more\)"):
        _ = waiting.result


def test_error_of_a_task_whose_state_is_unknown_is_raised() -> None:
    played = client()
    waiting = played.start(begin(played).result(poll=False))
    played.refuse(played.asked("tasks/result"), -32010, "it broke")
    played.refuse(played.asked("tasks/get"), -32602, "unknown task")
    with pytest.raises(RequestError, match="it broke"):
        _ = waiting.result


@pytest.mark.req("TASK-21", "TASK-15")
def test_a_failed_tool_is_a_result() -> None:
    played = client()
    task = begin(played)
    waiting = played.start(task.result())
    played.say(told("failed"))
    played.answer(played.asked("tasks/result"), **DONE, isError=True)
    assert waiting.result.is_error


@pytest.mark.req("TASK-23")
@pytest.mark.parametrize("code", [-32603, -32602, 5])
def test_cancelled_task_raises_request_cancelled_despite_the_peers_error(code: int) -> None:
    played = client()
    task = begin(played)
    waiting = played.start(task.result())
    played.say(told("cancelled", statusMessage="no more"))
    played.refuse(played.asked("tasks/result"), code)
    with pytest.raises(RequestCancelled, match=r"tools/call 'slow': cancelled \(no more\)") as caught:
        _ = waiting.result
    assert isinstance(caught.value.__cause__, RequestError)


@pytest.mark.req("TASK-23")
def test_a_cancelled_task_may_have_a_result() -> None:
    played = client()
    task = begin(played)
    waiting = played.start(task.result())
    played.say(told("cancelled"))
    played.answer(played.asked("tasks/result"), **DONE)
    assert waiting.state == "returned"


def test_malformed_result_raises_invalid_message() -> None:
    played = client()
    waiting = played.start(begin(played).result(poll=False))
    played.answer(played.asked("tasks/result"), content=5)
    with pytest.raises(InvalidMessage, match="content"):
        _ = waiting.result


def test_unknown_task_raises_the_error_of_the_peer() -> None:
    played = client()
    waiting = played.start(begin(played).result())
    played.advance(2)
    played.refuse(played.asked("tasks/get"), -32602, "unknown task")
    with pytest.raises(RequestError, match="unknown task"):
        _ = waiting.result
    assert played.got() == []


def test_the_connection_ends_before_the_task() -> None:
    played = client()
    task = begin(played)
    waits = [played.start(task.result()), played.start(task.result(poll=False))]
    steps = aiter(task)
    assert played.start(anext(steps)).result.status == "working"
    following = played.start(anext(steps))
    played.connection.receive_data(None, 0.0)
    played.session._process()
    played.runtime.run()
    with pytest.raises(ConnectionLost):
        _ = waits[1].result
    # The others do not wait for their next poll.
    played.connection.abort()
    played.session._process()
    played.runtime.run()
    for waiting in (waits[0], following):
        with pytest.raises(NoBackChannel):
            _ = waiting.result


@pytest.mark.req("PROG-07")
def test_progress_is_reported_until_the_task_ends() -> None:
    played = client()
    seen: list[Any] = []
    task = begin(played, on_progress=lambda *said: seen.append(said))
    (token,) = played.connection.pending.tasks

    def report(value: float) -> dict[str, Any]:
        meta = {RELATED: {"taskId": "t1"}}
        return {
            "method": "notifications/progress",
            "params": {"progressToken": token, "progress": value, "_meta": meta},
        }

    played.say(report(1), report(2), told("completed"), report(3))
    assert seen == [(1, None, None), (2, None, None)]
    assert task.done


# Giving up


@pytest.mark.req("CANC-04")
@pytest.mark.parametrize("poll", [True, False])
def test_cancelled_wait_cancels_the_task(poll: bool) -> None:
    played = client()
    task = begin(played)
    waiting = played.start(task.result(poll=poll))
    asked = played.got()
    waiting.cancel()
    assert waiting.state == "cancelled"
    sent = played.got()
    assert [message["method"] for message in sent] == ["notifications/cancelled"] * len(asked) + ["tasks/cancel"]
    assert sent[-1]["params"] == {"taskId": "t1"}
    for message in sent[:-1]:
        assert message["params"]["requestId"] == asked[0]["id"]  # that of tasks/result, not of the call
    played.answer(sent[-1], **state("cancelled"))
    assert played.reports == []


@pytest.mark.req("CANC-04")
def test_cancellation_before_the_task_exists_cancels_it_once_created() -> None:
    played = client()
    started = played.start(played.session.start_task(CALL))
    message = played.asked("tools/call")
    started.cancel()
    assert played.got() == []
    played.answer(message, task=state())
    assert played.asked("tasks/cancel")["params"] == {"taskId": "t1"}


def test_cancelled_wait_of_a_foreign_handle_leaves_the_task() -> None:
    played = client()
    task = begin(played)
    task.owned = False
    waiting = played.start(task.result())
    waiting.cancel()
    assert played.got() == []


def test_ended_task_is_not_cancelled() -> None:
    played = client()
    waiting = played.start(begin(played).result())
    played.say(told("completed"))
    played.asked("tasks/result")
    waiting.cancel()
    assert [message["method"] for message in played.got()] == ["notifications/cancelled"]


def test_peer_without_cancellation_gets_no_cancel_request() -> None:
    played = client({"requests": {"tools": {"call": {}}}})
    task = begin(played)
    waiting = played.start(task.result())
    waiting.cancel()
    assert played.got() == []
    with pytest.raises(LocalProtocolError, match=r"tasks\.cancel"):
        _ = played.start(task.cancel()).result


@pytest.mark.req("TASK-25", "TASK-26")
def test_a_task_is_cancelled_by_its_handle() -> None:
    played = client()
    task = begin(played)
    cancelling = played.start(task.cancel())
    played.answer(played.asked("tasks/cancel"), **state("cancelled"))
    assert cancelling.result.status == "cancelled"
    assert task.done
    again = played.start(task.cancel())
    played.refuse(played.asked("tasks/cancel"), -32602)
    with pytest.raises(RequestError):
        _ = again.result


# How long


@pytest.mark.req("TASK-37")
@pytest.mark.parametrize(
    ("ttl", "timeout", "limit"),
    [
        (60_000, "default", 70.0),
        (10**12, "default", LONGEST_WAIT),
        (10**400, "default", LONGEST_WAIT),
        (None, "default", LONGEST_WAIT),
        (60_000, 5, 5.0),
        (60_000, Timeout(7), 7.0),
    ],
)
@pytest.mark.parametrize("poll", [True, False])
def test_wait_for_a_result_is_limited_by_timeout_and_ttl(ttl: Any, timeout: Any, limit: float, poll: bool) -> None:
    played = client()
    task = begin(played, created=state(ttl=ttl, pollInterval=10**9))
    options = {} if timeout == "default" else {"timeout": timeout}
    waiting = played.start(task.result(poll=poll, **options))
    played.advance(limit - 0.1)
    assert waiting.state == "waits"
    played.got()
    played.advance(0.2)
    with pytest.raises(RequestTimeout):
        _ = waiting.result
    assert played.got()[-1]["method"] == "tasks/cancel"


def test_timeout_none_waits_without_limit() -> None:
    played = client()
    task = begin(played, created=state(pollInterval=10**9))
    waiting = played.start(task.result(timeout=None))
    played.advance(900_000)
    assert waiting.state == "waits"
    played.say(told("completed"))
    message = played.asked("tasks/result")
    played.advance(900_000)
    played.answer(message, **DONE)
    assert waiting.state == "returned"


def test_poll_times_out_with_its_wait() -> None:
    played = client()
    task = begin(played)
    waiting = played.start(task.result(timeout=5))
    played.advance(4.5)
    assert len(played.got()) == 1  # the peer does not answer it
    played.advance(1)
    with pytest.raises(RequestTimeout, match="no answer within 5 s"):
        _ = waiting.result


@pytest.mark.parametrize(("timeout", "error"), [(-1, ValueError), ("soon", TypeError), (True, TypeError)])
def test_invalid_timeout_raises_as_for_a_request(timeout: Any, error: type[Exception]) -> None:
    played = client()
    task = begin(played)
    for ask in (task.result, task.status):
        with pytest.raises(error, match=r"^timeout"):
            _ = played.start(ask(timeout=timeout)).result


def test_task_with_an_empty_id_is_invalid() -> None:
    played = client()
    with pytest.raises(InvalidMessage, match="taskId: a task needs an id"):
        begin(played, created=state(id=""))
    called = played.start(played.session.call_tool("slow", task=True))
    played.answer(played.asked("tools/call"), task=state(id=""))
    assert isinstance(called.error, InvalidMessage)


@pytest.mark.parametrize(
    ("status", "expected"),
    [(404, False), (428, False), (429, True), (430, False), (499, False), (500, True), (503, True)],
)
def test_answers_of_a_proxy_that_may_be_different_later_are_asked_for_again(status: int, expected: bool) -> None:
    assert _may_pass(UnexpectedResponse(status, "from a proxy")) is expected
