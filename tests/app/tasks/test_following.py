"""Tasks of a stateless server, as its client follows them; the server is played message by message."""

from __future__ import annotations

from typing import Any

import pytest
from rawpeer import INFO, Played
from waits import Wait

from mcpio.app.client import Client, ClientOptions, client_connection
from mcpio.engine.options import Options
from mcpio.errors import (
    ConnectionLost,
    InvalidMessage,
    LocalProtocolError,
    RequestCancelled,
    RequestError,
    RequestTimeout,
    SamplingRejected,
    UnexpectedResponse,
)
from mcpio.revisions import REVISIONS
from mcpio.types import CallToolRequest, CallToolResult, ElicitResult, Task
from mcpio.types.base import META_CLIENT_CAPABILITIES, META_SERVER_INFO, TASKS_EXTENSION

CREATED = {
    "resultType": "task",
    "taskId": "t",
    "status": "working",
    "createdAt": "2026-07-28T10:30:00Z",
    "lastUpdatedAt": "2026-07-28T10:30:00Z",
    "ttlMs": 60_000,
    "pollIntervalMs": 500,
}
DONE = {"content": [{"type": "text", "text": "done"}]}
CALL = CallToolRequest("x", {})


class Polled(Played[Client]):
    """The client of a server without subscriptions: it polls."""

    def got(self) -> list[dict[str, Any]]:
        messages = super().got()
        for message in messages:
            if message["method"] == "subscriptions/listen":
                self.refuse(message, -32601)
        return [message for message in messages if message["method"] != "subscriptions/listen"]


def opened(**options: Any) -> Played[Client]:
    """Return a client of a stateless server."""
    given: ClientOptions = {"era": "stateless", **options}  # type: ignore[typeddict-item]  # the test's own business
    connection = client_connection(**given)
    played = Polled(connection)
    played.session = Client(connection, played, **given)
    opening = played.start(played.session.initialize())
    asked = played.asked("server/discover")
    capabilities: dict[str, Any] = {"tools": {}, "prompts": {}, "extensions": {TASKS_EXTENSION: {}}}
    found = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "ttlMs": 0, "cacheScope": "private"}
    complete(played, asked, **found, _meta={META_SERVER_INFO: INFO})
    assert opening.state == "returned"
    return played


def complete(played: Played[Client], asked: dict[str, Any], **members: Any) -> None:
    played.answer(asked, resultType="complete", **members)


def polled(played: Played[Client], status: str, **members: Any) -> None:
    """Answer the poll that is due after half a second."""
    played.advance(0.5)
    tell(played, status, **members)


def tell(played: Played[Client], status: str, **members: Any) -> None:
    asked = played.asked("tasks/get")
    assert asked["params"]["taskId"] == "t"
    played.answer(asked, **{**CREATED, "resultType": "complete", "status": status, **members})


def called(played: Played[Client], **how: Any) -> Wait[Any]:
    """Call a tool, which the server answers by a task."""
    call = played.start(played.session.call_tool("x", **how))
    played.answer(played.asked("tools/call"), **CREATED)
    assert played.got() == []
    return call


def question(text: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": text, "requestedSchema": schema}}


def accept(scope: Any, request: Any) -> ElicitResult:
    return ElicitResult("accept", {"name": request.message})


# Calls


@pytest.mark.req("XTASK-03", "XTASK-14")
def test_call_answered_by_a_task_returns_the_result_of_the_task() -> None:
    played = opened()
    call = called(played)
    played.advance(0.4)
    assert played.got() == []
    polled(played, "working")
    polled(played, "completed", result=DONE)
    assert call.result.text == "done"
    assert played.got() == []


@pytest.mark.req("XTASK-01", "XTASK-03")
def test_each_request_declares_the_extension_unless_disabled() -> None:
    for wanted in (True, False):
        played = opened(tasks_extension=wanted, capabilities=None)
        call = played.start(played.session.call_tool("x"))
        asked = played.asked("tools/call")
        extensions = asked["params"]["_meta"][META_CLIENT_CAPABILITIES].get("extensions", {})
        assert (TASKS_EXTENSION in extensions) is wanted
        played.answer(asked, **CREATED)
        assert (call.state == "waits") is wanted
        if not wanted:
            assert isinstance(call.error, InvalidMessage)


@pytest.mark.req("XTASK-16")
def test_extension_is_not_declared_in_a_handshake() -> None:
    connection = client_connection(era="auto")
    played: Played[Client] = Played(connection)
    played.session = Client(connection, played, era="auto")
    played.start(played.session.initialize())
    played.refuse(played.asked("server/discover"), -32601)
    assert "extensions" not in played.asked("initialize")["params"]["capabilities"]


def test_option_of_the_wrong_kind_raises_type_error() -> None:
    with pytest.raises(TypeError, match="tasks_extension must be bool"):
        client_connection(tasks_extension="yes")  # type: ignore[arg-type]  # which is the point


@pytest.mark.req("XTASK-03")
@pytest.mark.parametrize("method", ["tools/list", "prompts/get"])
def test_task_that_answers_another_request_is_invalid(method: str) -> None:
    played = opened()
    client = played.session
    call: Wait[Any] = played.start(client.list_tools() if method == "tools/list" else client.get_prompt("x"))
    played.answer(played.got()[0], **CREATED)
    assert isinstance(call.error, InvalidMessage)


@pytest.mark.req("XTASK-07")
@pytest.mark.parametrize(
    ("members", "code", "message"),
    [
        ({"error": {"code": -32001, "message": "no", "data": 5}}, -32001, "no"),
        ({"error": {"code": "x", "message": "no"}, "statusMessage": "it broke"}, -32603, "it broke"),
        ({}, -32603, "The task failed, and does not say why"),
    ],
)
def test_failed_task_raises_its_error(members: dict[str, Any], code: int, message: str) -> None:
    played = opened()
    call = called(played)
    polled(played, "failed", **members)
    assert isinstance(call.error, RequestError)
    assert (call.error.code, call.error.message) == (code, message)


def test_cancelled_task_raises_request_cancelled() -> None:
    played = opened()
    call = called(played)
    polled(played, "cancelled", statusMessage="enough")
    assert isinstance(call.error, RequestCancelled)
    assert "enough" in str(call.error)


@pytest.mark.parametrize(
    "members",
    [{"result": {"content": 5}}, {"result": 5}, {}, {"taskId": "other"}, {"status": "new"}, {"ttlMs": "x"}],
    ids=["bad content", "bad result", "no result", "another task", "unknown status", "bad ttl"],
)
def test_malformed_state_raises_invalid_message(members: dict[str, Any]) -> None:
    played = opened()
    call = called(played)
    polled(played, **{"status": "completed", **members})
    assert isinstance(call.error, InvalidMessage)


@pytest.mark.req("XTASK-12")
def test_lost_task_raises_the_error_of_the_server() -> None:
    played = opened()
    call = called(played)
    played.advance(0.5)
    played.refuse(played.asked("tasks/get"), -32602, "Task not found")
    assert isinstance(call.error, RequestError)
    assert call.error.code == -32602


# The end of a wait


@pytest.mark.req("XTASK-10")
def test_timeout_cancels_the_task() -> None:
    played = opened()
    call = called(played, timeout=2)
    for _ in range(3):
        polled(played, "working")
    played.advance(0.5)
    assert isinstance(call.error, RequestTimeout)
    assert [message["method"] for message in played.got()][-1] == "tasks/cancel"


@pytest.mark.req("XTASK-10")
def test_cancelled_wait_cancels_the_task() -> None:
    played = opened()
    call = called(played)
    call.cancel()
    asked = played.asked("tasks/cancel")
    assert asked["params"]["taskId"] == "t"
    complete(played, asked)
    assert played.got() == []


def test_wait_is_limited_to_the_lifetime_of_the_task() -> None:
    played = opened()
    call = called(played)
    for _ in range(139):
        polled(played, "working")
    played.advance(1)
    assert isinstance(call.error, RequestTimeout)


# Questions


@pytest.mark.req("XTASK-08", "XTASK-09", "XTASK-17")
def test_each_question_is_answered_once() -> None:
    played = opened(elicitation=accept)
    call = called(played)
    polled(played, "input_required", inputRequests={"a": question("A"), "b": question("B")})
    asked = played.asked("tasks/update")
    answers = asked["params"]["inputResponses"]
    assert {key: answer["content"] for key, answer in answers.items()} == {"a": {"name": "A"}, "b": {"name": "B"}}
    assert asked["params"]["taskId"] == "t"
    complete(played, asked)
    # The server has not taken note of all answers yet.
    tell(played, "input_required", inputRequests={"b": question("B")})
    polled(played, "input_required", inputRequests={"c": question("C")})
    asked = played.asked("tasks/update")
    assert asked["params"]["inputResponses"].keys() == {"c"}
    complete(played, asked)
    tell(played, "completed", result=DONE)
    assert call.result.text == "done"


@pytest.mark.req("XTASK-08", "XTASK-17")
def test_two_that_wait_for_one_task_have_its_question_asked_once() -> None:
    asked: list[str] = []

    async def accept_later(scope: Any, request: Any) -> ElicitResult:
        asked.append(request.message)
        await answered.wait()
        return ElicitResult("accept", {"name": "A"})

    played = opened(elicitation=accept_later)
    answered = played.runtime.one_shot()
    handle = played.session.task("t")
    waits = played.start(handle.result()), played.start(handle.result())
    state = {**CREATED, "resultType": "complete"}
    for poll in played.got():
        played.answer(poll, **{**state, "status": "input_required", "inputRequests": {"a": question("A")}})
    assert asked == ["A"]
    answered.set(None)
    updated, *polls = played.got()
    assert updated["method"] == "tasks/update"
    complete(played, updated)
    for poll in (*polls, *played.got()):
        played.answer(poll, **{**state, "status": "completed", "result": DONE})
    assert [wait.result.text for wait in waits] == ["done", "done"]


def test_question_without_a_callback_gives_the_task_up() -> None:
    played = opened()
    call = called(played)
    polled(played, "input_required", inputRequests={"a": question("A")})
    assert call.state == "failed"
    assert "elicitation" in str(call.error)
    assert played.asked("tasks/cancel")["params"]["taskId"] == "t"


def test_callback_that_fails_gives_the_task_up() -> None:
    def fail(scope: Any, request: Any) -> ElicitResult:
        raise SamplingRejected("no")

    played = opened(elicitation=fail)
    call = called(played)
    polled(played, "input_required", inputRequests={"a": question("A")})
    assert isinstance(call.error, SamplingRejected)
    played.asked("tasks/cancel")


def test_task_that_waits_without_a_question_is_polled_on() -> None:
    played = opened()
    call = called(played)
    polled(played, "input_required")
    polled(played, "completed", result=DONE)
    assert call.result.text == "done"


# Handles


def test_handle_knows_the_states_of_its_task() -> None:
    played = opened(elicitation=accept)
    seen: list[str] = []
    start = played.start(played.session.start_task(CALL, on_status=lambda state: seen.append(state.status)))
    asked = played.asked("tools/call")
    assert "task" not in asked["params"]
    played.answer(asked, **CREATED)
    handle = start.result
    assert (handle.id, handle.owned) == ("t", True)
    assert handle.last is not None
    assert (handle.last.status, handle.last.ttl) == ("working", 60_000)

    async def states() -> list[str]:
        return [state.status async for state in handle]

    iteration = played.start(states())
    polled(played, "input_required", inputRequests={"a": question("A")})
    complete(played, played.asked("tasks/update"))
    tell(played, "working")
    polled(played, "completed", result=DONE)
    assert iteration.result == ["working", "input_required", "working", "completed"] == seen
    assert handle.done
    assert isinstance(played.start(handle.result()).result, CallToolResult)


def test_call_that_was_answered_at_once_has_a_handle_too() -> None:
    played = opened()
    start = played.start(played.session.start_task(CALL))
    complete(played, played.asked("tools/call"), **DONE)
    handle = start.result
    assert (handle.id, handle.done, played.start(handle.result()).result.text) == ("", True, "done")
    for call in (handle.status, handle.cancel):
        assert isinstance(played.start(call()).error, LocalProtocolError)


@pytest.mark.req("XTASK-10")
def test_cancelling_returns_the_state() -> None:
    played = opened()
    cancelling = played.start(played.session.cancel_task("t"))
    complete(played, played.asked("tasks/cancel"))
    tell(played, "working")
    assert isinstance(cancelling.result, Task)
    assert cancelling.result.status == "working"


def test_handle_by_id_does_not_own_its_task() -> None:
    played = opened()
    wait = played.start(played.session.task("t").result())
    tell(played, "working")
    wait.cancel()
    assert played.got() == []


def test_ended_task_keeps_its_state() -> None:
    played = opened()
    handle = played.session.task("t")
    looking = played.start(handle.status())
    tell(played, "completed", result=DONE)
    assert looking.result.status == "completed"
    looking = played.start(handle.status())
    tell(played, "working")
    assert looking.result.status == "working"
    assert handle.last is not None
    assert handle.last.status == "completed"
    assert played.start(handle.result()).result.text == "done"


def test_task_true_is_a_plain_call_of_a_stateless_server() -> None:
    played = opened()
    call = played.start(played.session.call_tool("x", task=True))
    complete(played, played.asked("tools/call"), **DONE)
    assert call.result.text == "done"


@pytest.mark.req("XTASK-12")
def test_lists_of_tasks_do_not_exist() -> None:
    played = opened()
    assert isinstance(played.start(played.session.list_tasks()).error, LocalProtocolError)


def test_every_client_of_all_revisions_declares_the_extension() -> None:
    assert client_connection(options=Options(revisions=REVISIONS)).capabilities.extensions == {TASKS_EXTENSION: {}}
    assert client_connection(era="handshake").capabilities.extensions is None


@pytest.mark.parametrize("how", ["call_tool", "start_task"])
def test_task_with_an_empty_id_is_invalid(how: str) -> None:
    played = opened()
    session: Any = played.session
    call = played.start(session.call_tool("x") if how == "call_tool" else session.start_task(CALL))
    played.answer(played.asked("tools/call"), **{**CREATED, "taskId": ""})
    assert isinstance(call.error, InvalidMessage)
    assert call.error.path == "taskId"


# Failures of polls


def begun(played: Played[Client]) -> Any:
    """Return a handle on a task that has just begun."""
    start = played.start(played.session.start_task(CALL))
    played.answer(played.asked("tools/call"), **CREATED)
    return start.result


def failing(played: Played[Client], method: str, *errors: Exception) -> list[Exception]:
    """Have the next requests of a method fail, one by one, as over HTTP. Returns what is left."""
    session: Any = played.session
    send, left = session.request, list(errors)

    async def request(message: Any, **options: Any) -> Any:
        if left and message.method == method:
            raise left.pop(0)
        return await send(message, **options)

    session.request = request
    return left


@pytest.mark.parametrize(
    "error",
    [
        UnexpectedResponse(500, "Internal Server Error"),
        UnexpectedResponse(429, "Too Many Requests"),
        ConnectionLost("broken"),
        RequestError(-32603, "The tasks cannot be read at the moment", {"retryable": True}),
    ],
    ids=repr,
)
@pytest.mark.parametrize("iterates", [True, False])
def test_poll_that_fails_for_a_while_does_not_end_the_wait(error: Exception, iterates: bool) -> None:
    played = opened()
    handle = begun(played)
    waiting = played.start(anext(aiter(handle)) if iterates else handle.result())
    if iterates:
        assert waiting.result.status == "working"
        states = aiter(handle)
        played.start(anext(states))
        waiting = played.start(anext(states))
    failing(played, "tasks/get", error, error, error)
    played.advance(0.5)
    for pause in (0.5, 1.0, 2.0):
        assert played.got() == []
        played.advance(pause)
    tell(played, "completed", result=DONE)
    assert waiting.state == "returned"


@pytest.mark.parametrize(
    "error",
    [
        UnexpectedResponse(499, "Client Closed Request"),
        RequestError(-32602, "Task not found"),
        LocalProtocolError("no"),
    ],
    ids=repr,
)
def test_poll_that_is_refused_ends_the_wait(error: Exception) -> None:
    played = opened()
    waiting = played.start(begun(played).result())
    failing(played, "tasks/get", error)
    played.advance(0.5)
    assert waiting.error is error


def test_poll_that_fails_on_and_on_ends_the_wait_with_its_error() -> None:
    played = opened()
    waiting = played.start(begun(played).result())
    error = UnexpectedResponse(502, "Bad Gateway")
    left = failing(played, "tasks/get", *[error] * 9)
    played.advance(23.9)
    assert waiting.state == "waits"
    played.advance(0.2)
    assert (waiting.error, len(left)) == (error, 2)


def test_repeated_polls_end_with_the_time_of_the_wait() -> None:
    played = opened()
    waiting = played.start(begun(played).result(timeout=2.0))
    failing(played, "tasks/get", *[UnexpectedResponse(502, "Bad Gateway")] * 9)
    played.advance(1.9)
    assert waiting.state == "waits"
    played.advance(0.1)
    assert isinstance(waiting.error, RequestTimeout)


def test_answer_to_a_question_is_sent_again() -> None:
    played = opened(elicitation=accept)
    waiting = played.start(begun(played).result())
    failing(played, "tasks/update", UnexpectedResponse(503, "Service Unavailable"))
    polled(played, "input_required", inputRequests={"q": question("?")})
    played.advance(0.5)
    complete(played, played.asked("tasks/update"))
    tell(played, "completed", result=DONE)
    assert waiting.state == "returned"
