"""Requests of our own that become tasks at the peer: what goes out, what is kept in mind, and for how long."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wires import INFO, feed, note, one, request, result, sent

from mcpio.engine.client import ClientConnection
from mcpio.engine.connection import Connection
from mcpio.engine.handshake import Handshake
from mcpio.engine.limits import Limits
from mcpio.engine.options import Options
from mcpio.engine.outgoing_tasks import OutgoingTasks
from mcpio.engine.pending import OutgoingRequest
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Role
from mcpio.errors import InvalidMessage, LocalProtocolError, RequestCancelled, RequestError, RequestTimeout
from mcpio.events import (
    IgnoreReason,
    MessageIgnored,
    OutgoingId,
    ProgressReceived,
    ProtocolViolated,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
)
from mcpio.methods import METHODS
from mcpio.types import (
    CallToolRequest,
    CallToolResult,
    CancelTaskRequest,
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    CreateTaskResult,
    ElicitFormRequest,
    ElicitResult,
    ElicitSchema,
    GetTaskPayloadRequest,
    GetTaskRequest,
    ListRootsRequest,
    ListTasksRequest,
    LoggingMessageNotification,
    RawRequest,
    SamplingCapability,
    SamplingMessage,
    ServerCapabilities,
    TaskMetadata,
    TextContent,
)

RELATED = "io.modelcontextprotocol/related-task"
ALL: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
CALL = CallToolRequest("slow", task=TaskMetadata(60_000))
SAMPLE = CreateMessageRequest((SamplingMessage("user", TextContent("hi")),), 10, task=TaskMetadata())
FORM = ElicitFormRequest("hi", ElicitSchema({}), task=TaskMetadata())


def task(status: str = "working", id: str = "t1", **more: Any) -> dict[str, Any]:
    times = {"createdAt": "2025-11-25T10:30:00Z", "lastUpdatedAt": "2025-11-25T10:30:00Z"}
    return {"taskId": id, "status": status, **times, "ttl": None, **more}


def created(id: Any, task_id: str = "t1") -> dict[str, Any]:
    return result(id, task=task(id=task_id))


def client(tasks: dict[str, Any] | None = ALL, revision: str = "2025-11-25", **limits: Any) -> ClientConnection:
    options = Options(limits=Limits(**limits))
    connection = ClientConnection(INFO, ClientCapabilities(sampling=SamplingCapability()), options=options)
    connection.send_initialize(now=0.0)
    declared = {"tools": {}, "logging": {}, **({} if tasks is None else {"tasks": tasks})}
    info = {"name": "s", "version": "1"}
    feed(connection, result(1, protocolVersion=revision, capabilities=declared, serverInfo=info))
    sent(connection)
    return connection


def server(tasks: dict[str, Any]) -> ServerConnection:
    connection = ServerConnection(INFO, ServerCapabilities(logging={}))
    declared = {"sampling": {}, "elicitation": {}, "tasks": tasks}
    hello = {"protocolVersion": "2025-11-25", "capabilities": declared, "clientInfo": {"name": "c", "version": "1"}}
    feed(connection, request("initialize", 0, **hello), note("initialized"))
    sent(connection)
    return connection


def with_task(connection: Connection, **options: Any) -> OutgoingId:
    """Send a call that becomes the task t1."""
    id = connection.send_request(CALL, now=0.0, cookie="c", progress=True, **options)
    feed(connection, created(int(id)))
    sent(connection)
    return id


def progress(id: int, value: float) -> dict[str, Any]:
    return note("progress", progressToken=id, progress=value)


# What goes out and what comes back


@pytest.mark.req("TASK-08", "TASK-09")
def test_a_request_asks_for_a_task_and_its_outcome_is_the_task() -> None:
    connection = client()
    id = connection.send_request(CALL, now=0.0, cookie="c")
    assert sent(connection) == [request("tools/call", 2, name="slow", task={"ttl": 60000})]
    answered = one(connection, created(2))
    assert isinstance(answered, ResponseReceived)
    assert (answered.id, answered.cookie) == (id, "c")
    assert isinstance(answered.result, CreateTaskResult)
    assert (answered.result.task.task_id, answered.result.task.ttl) == ("t1", None)
    assert connection.pending.outgoing == ()
    assert connection.pending.tasks == (id,)


@pytest.mark.req("TASK-31")
@pytest.mark.parametrize(
    ("payload", "tasks", "answer"),
    [
        (SAMPLE, {"requests": {"sampling": {"createMessage": {}}}}, CreateMessageResult),
        (FORM, {"requests": {"elicitation": {"create": {}}}}, ElicitResult),
    ],
)
def test_a_server_asks_for_tasks_too(payload: Any, tasks: dict[str, Any], answer: type) -> None:
    connection = server(tasks)
    id = connection.send_request(payload, now=0.0)
    (message,) = sent(connection)
    assert message["params"]["task"] == {}
    assert isinstance(one(connection, created(int(id))).result, CreateTaskResult)
    id = connection.send_request(payload, now=0.0)
    plain = {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m", "action": "decline"}
    assert isinstance(one(connection, result(int(id), **plain)).result, answer)


@pytest.mark.req("TASK-03")
def test_a_peer_that_ignores_the_wish_gives_the_plain_result() -> None:
    connection = client()
    id = connection.send_request(CALL, now=0.0, progress=True)
    answered = one(connection, result(int(id), content=[]))
    assert answered.result == CallToolResult(())
    assert connection.pending.tasks == ()
    assert one(connection, progress(int(id), 1)).reason is IgnoreReason.LATE_PROGRESS


@pytest.mark.parametrize("member", [{"taskId": "t1"}, {"taskId": "t1", "status": "done"}, {**task(), "ttl": "x"}])
def test_a_malformed_task_fails_its_request(member: dict[str, Any]) -> None:
    connection = client()
    id = connection.send_request(CALL, now=0.0)
    failed = one(connection, result(int(id), task=member))
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, InvalidMessage)
    assert connection.pending.tasks == ()


@pytest.mark.parametrize("member", [5, None, "t1", {}, {"taskId": 5}])
def test_a_member_that_is_no_task_is_one_of_a_plain_result(member: Any) -> None:
    connection = client()
    id = connection.send_request(CALL, now=0.0)
    answered = one(connection, result(int(id), content=[], task=member))
    assert isinstance(answered.result, CallToolResult)


def test_only_who_asked_for_a_task_gets_one() -> None:
    connection = client()
    id = connection.send_request(CallToolRequest("slow"), now=0.0)
    assert isinstance(one(connection, result(int(id), content=[], task=task())).result, CallToolResult)
    id = connection.send_request(CallToolRequest("slow"), now=0.0)
    assert isinstance(one(connection, created(int(id))).error, InvalidMessage)


@pytest.mark.req("TASK-02", "TASK-05")
@pytest.mark.parametrize(
    "declared", [None, {}, {"list": {}, "cancel": {}}, {"requests": {}}, {"requests": {"tools": {}}}]
)
@pytest.mark.parametrize("payload", [CALL, RawRequest("tools/call", {"name": "slow", "task": {}})])
def test_a_peer_that_did_not_declare_it_is_not_asked(declared: dict[str, Any] | None, payload: Any) -> None:
    connection = client(declared)
    before = connection.snapshot(0.0)
    with pytest.raises(LocalProtocolError, match=r"needs the capability tasks\.requests\.tools\.call"):
        connection.send_request(payload, now=0.0)
    assert connection.snapshot(0.0) == before
    connection.send_request(CallToolRequest("slow"), now=0.0)


@pytest.mark.req("TASK-02")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
def test_other_revisions_have_no_tasks(revision: str) -> None:
    connection = client(ALL, revision)
    with pytest.raises(LocalProtocolError, match="task"):
        connection.send_request(CALL, now=0.0)
    assert sent(connection) == []


# Progress


@pytest.mark.req("PROG-07")
@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_progress_goes_on_until_the_task_is_over(status: str) -> None:
    connection = client()
    id = with_task(connection)
    report = one(connection, progress(id, 0.5))
    assert isinstance(report, ProgressReceived)
    assert (report.id, report.cookie, report.progress) == (id, "c", 0.5)
    feed(connection, note("tasks/status", **task("input_required")))
    assert isinstance(one(connection, progress(id, 0.75)), ProgressReceived)
    assert isinstance(one(connection, progress(id, 0.75)), ProtocolViolated)
    feed(connection, note("tasks/status", **task(status)))
    assert connection.pending.tasks == ()
    late = one(connection, progress(id, 1))
    assert isinstance(late, MessageIgnored)
    assert late.reason is IgnoreReason.LATE_PROGRESS


@pytest.mark.req("PROG-07")
@pytest.mark.parametrize(
    ("asks", "answer"),
    [
        (GetTaskRequest("t1"), task("failed")),
        (CancelTaskRequest("t1"), task("cancelled")),
        (ListTasksRequest(), {"tasks": [task(id="t0"), task("completed")]}),
        (GetTaskPayloadRequest("t1"), {"content": [], "_meta": {RELATED: {"taskId": "t1"}}}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_answer_that_tells_of_the_end_ends_the_progress(asks: Any, answer: dict[str, Any]) -> None:
    connection = client()
    id = with_task(connection)
    asked = connection.send_request(asks, now=0.0)
    assert isinstance(one(connection, result(int(asked), **answer)), ResponseReceived)
    assert one(connection, progress(id, 1)).reason is IgnoreReason.LATE_PROGRESS


@pytest.mark.parametrize(
    ("asks", "answer"),
    [
        (GetTaskRequest("t1"), task("working")),
        (GetTaskRequest("t2"), task("completed", "t2")),
        (ListTasksRequest(), {"tasks": [task()]}),
        (GetTaskPayloadRequest("t1"), {"content": []}),
        (GetTaskPayloadRequest("t1"), {"content": [], "_meta": {RELATED: "t1"}}),
        (GetTaskPayloadRequest("t1"), {"content": [], "_meta": {RELATED: {"taskId": 5}}}),
    ],
)
def test_other_answers_leave_it_as_it_is(asks: Any, answer: dict[str, Any]) -> None:
    connection = client()
    id = with_task(connection)
    asked = connection.send_request(asks, now=0.0)
    one(connection, result(int(asked), **answer))
    assert isinstance(one(connection, progress(id, 1)), ProgressReceived)


def test_a_task_that_did_not_ask_for_progress_gets_none() -> None:
    connection = client()
    id = connection.send_request(CALL, now=0.0)
    feed(connection, created(int(id)))
    assert one(connection, progress(id, 1)).reason is IgnoreReason.LATE_PROGRESS
    assert one(connection, progress(99, 1)).reason is IgnoreReason.UNKNOWN_TOKEN
    assert one(connection, note("progress", progressToken="2", progress=1)).reason is IgnoreReason.UNKNOWN_TOKEN


def test_the_end_of_the_connection_is_that_of_its_tasks() -> None:
    connection = client()
    with_task(connection)
    connection.close(0.0)
    assert connection.pending.tasks == ()


def test_only_so_many_tasks_are_kept_in_mind() -> None:
    connection = client(outgoing_tasks=2)
    for number in range(3):
        id = connection.send_request(CALL, now=0.0, progress=True)
        feed(connection, created(int(id), f"t{number}"))
    assert connection.pending.tasks == (3, 4)
    assert one(connection, progress(2, 1)).reason is IgnoreReason.LATE_PROGRESS
    none = client(outgoing_tasks=0)
    with_task(none)
    assert none.pending.tasks == ()


def test_one_task_of_two_requests_is_the_later_ones() -> None:
    connection = client()
    first, second = with_task(connection), with_task(connection)
    assert first != second
    assert connection.pending.tasks == (second,)


# Giving up


@pytest.mark.req("CANC-04")
def test_a_task_is_cancelled_as_a_task() -> None:
    connection = client()
    id = with_task(connection)
    assert connection.cancel_request(id)
    assert sent(connection) == [request("tasks/cancel", 3, taskId="t1")]
    assert list(connection.events()) == []
    assert connection.pending.tasks == ()
    assert not connection.cancel_request(id)
    # Nobody asked for this answer, so it is nobody's.
    assert one(connection, result(3, **task("cancelled"))).reason is IgnoreReason.LATE_RESPONSE


@pytest.mark.req("CANC-04")
@pytest.mark.parametrize("overdue", [False, True])
def test_a_request_given_up_before_it_is_a_task_is_cancelled_as_soon_as_it_is_one(overdue: bool) -> None:
    connection = client()
    id = connection.send_request(CALL, now=0.0, timeout=5)
    sent(connection)
    if overdue:
        connection.handle_timeout(5.0)
    else:
        assert connection.cancel_request(id, "never mind")
    (failed,) = connection.events()
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, RequestTimeout if overdue else RequestCancelled)
    assert sent(connection) == []
    assert one(connection, created(int(id))).reason is IgnoreReason.LATE_RESPONSE
    assert sent(connection) == [request("tasks/cancel", 3, taskId="t1")]
    # Once is enough, and a second answer is a fault like any other.
    assert isinstance(one(connection, created(int(id))), ProtocolViolated)
    assert sent(connection) == []


def test_one_given_up_whose_answer_is_plain_needs_nothing_more() -> None:
    connection = client()
    for answer in (result(2, content=[]), {"jsonrpc": "2.0", "id": 3, "error": {"code": 1, "message": "no"}}):
        connection.cancel_request(connection.send_request(CALL, now=0.0))
        list(connection.events())
        sent(connection)
        assert one(connection, answer).reason is IgnoreReason.LATE_RESPONSE
        assert sent(connection) == []


@pytest.mark.req("CANC-04")
@pytest.mark.parametrize("late", [False, True])
def test_a_peer_that_cancels_no_tasks_is_told_nothing(late: bool) -> None:
    connection = client({"requests": {"tools": {"call": {}}}})
    if late:
        id = connection.send_request(CALL, now=0.0)
        sent(connection)
        connection.cancel_request(id)
        feed(connection, created(int(id)))
    else:
        id = with_task(connection)
        assert connection.cancel_request(id)
    assert sent(connection) == []


def test_a_task_that_comes_late_to_a_closing_connection_stays() -> None:
    connection = server({"cancel": {}, "requests": {"sampling": {"createMessage": {}}}})
    feed(connection, request("ping", 1))
    id = connection.send_request(SAMPLE, now=0.0)
    sent(connection)
    connection.cancel_request(id)
    list(connection.events())
    connection.close(0.0)
    assert one(connection, created(int(id))).reason is IgnoreReason.LATE_RESPONSE
    assert sent(connection) == [None]


# What belongs to the peer's task says so


@pytest.mark.req("TASK-28")
def test_the_answer_and_all_on_its_way_belong_to_the_task_that_the_request_does() -> None:
    connection = client()
    meta = {RELATED: {"taskId": "t1"}, "progressToken": "p"}
    ask = {"messages": [], "maxTokens": 5, "_meta": meta}
    asked = one(connection, request("sampling/createMessage", 1, **ask))
    assert isinstance(asked, RequestReceived)
    connection.send_progress(asked.id, 1)
    connection.send_request(CallToolRequest("x"), now=0.0, related_to=asked.id)
    connection.send_result(asked.id, CreateMessageResult("assistant", TextContent("x"), "m"))
    marks = [(message.get("params") or message["result"])["_meta"] for message in sent(connection)]
    assert marks == [{RELATED: {"taskId": "t1"}}] * 3


@pytest.mark.req("TASK-28")
def test_the_notice_that_a_question_of_a_task_is_given_up_belongs_to_the_task_too() -> None:
    connection = ServerConnection(INFO, ServerCapabilities())
    who = {"name": "c", "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": who}
    feed(connection, request("initialize", 0, **hello), note("initialized"))
    sent(connection)
    mark = {RELATED: {"taskId": "t1"}}
    for meta in (mark, {}):
        connection.cancel_request(connection.send_request(ListRootsRequest(meta=meta), now=0.0))
        _, given_up = sent(connection)
        assert given_up["params"].get("_meta", {}) == meta
    connection.send_request(ListRootsRequest(meta=mark), now=0.0, timeout=5.0)
    sent(connection)
    list(connection.events())
    again = ServerConnection.restore(connection.snapshot(0.0), 0.0)
    again.handle_timeout(5.0)
    (timed_out,) = sent(again)
    assert timed_out["params"]["_meta"] == mark


@pytest.mark.req("TASK-28")
def test_a_log_message_of_such_a_request_belongs_to_it() -> None:
    connection = ServerConnection(INFO, ServerCapabilities(logging={}, completions={}))
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    feed(connection, request("initialize", 0, **hello), note("initialized"))
    sent(connection)
    params = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "b"}}
    asked = one(connection, request("completion/complete", 1, **params, _meta={RELATED: {"taskId": "t1"}}))
    connection.send_notification(LoggingMessageNotification("info", "x"), related_to=asked.id)
    (logged,) = sent(connection)
    assert logged["params"]["_meta"] == {RELATED: {"taskId": "t1"}}
    connection.send_error(asked.id, RequestError(5, "no"))
    (failed,) = sent(connection)
    assert failed["error"] == {"code": 5, "message": "no"}


# The state as a value


def test_tasks_go_on_in_another_process() -> None:
    connection = client()
    id = with_task(connection)
    feed(connection, progress(id, 0.5))
    waiting = connection.send_request(CALL, now=0.0, progress=True)
    related = {"messages": [], "maxTokens": 5, "_meta": {RELATED: {"taskId": "t9"}}}
    feed(connection, request("sampling/createMessage", 1, **related))
    sent(connection)
    snapshot = json.loads(json.dumps(connection.snapshot(0.0)))
    restored = ClientConnection.restore(snapshot, 100.0)
    assert restored.snapshot(100.0) == snapshot
    assert restored.pending == connection.pending
    assert isinstance(one(restored, progress(id, 0.5)), ProtocolViolated)
    report = one(restored, progress(id, 0.6))
    assert (report.id, report.cookie) == (id, "c")
    assert isinstance(one(restored, created(int(waiting), "t2")).result, CreateTaskResult)
    (asked,) = restored.unanswered
    restored.send_result(asked.id, CreateMessageResult("assistant", TextContent("x"), "m"))
    restored.cancel_request(id)
    answer, cancel = sent(restored)
    assert answer["result"]["_meta"] == {RELATED: {"taskId": "t9"}}
    assert cancel["params"] == {"taskId": "t1"}


def test_a_cookie_that_cannot_be_kept_is_refused_while_its_task_goes_on() -> None:
    connection = client()
    id = connection.send_request(CALL, now=0.0, cookie=object())
    feed(connection, created(int(id)))
    sent(connection)
    with pytest.raises(LocalProtocolError, match="a snapshot keeps a cookie"):
        connection.snapshot(0.0)
    assert connection.snapshot(0.0, cookies=lambda _: "said")["tasks"][0]["cookie"] == "said"
    connection.cancel_request(id)
    sent(connection)
    connection.snapshot(0.0)


@pytest.mark.parametrize("change", [{"task": None}, {"id": 99}, {"id": 3}, {"name": "notifications/progress"}])
def test_a_snapshot_whose_tasks_make_no_sense_is_refused(change: dict[str, Any]) -> None:
    connection = client()
    with_task(connection)
    connection.send_request(CALL, now=0.0)
    sent(connection)
    snapshot = connection.snapshot(0.0)
    (state,) = snapshot["tasks"]
    with pytest.raises(LocalProtocolError, match="malformed snapshot"):
        ClientConnection.restore({**snapshot, "tasks": [{**state, **change}]}, 0.0)
    with pytest.raises(LocalProtocolError, match="malformed snapshot"):
        ClientConnection.restore({**snapshot, "tasks": [state, {**state, "id": 1}]}, 0.0)
    with pytest.raises(LocalProtocolError, match="malformed snapshot"):
        ClientConnection.restore({**snapshot, "tasks": {}}, 0.0)


def test_a_snapshot_from_before_there_were_tasks_is_read() -> None:
    snapshot = client().snapshot(0.0)
    assert snapshot.pop("tasks") == []
    assert ClientConnection.restore(snapshot, 0.0).pending.tasks == ()


# The table itself


def test_what_is_forgotten_is_gone() -> None:
    tasks = OutgoingTasks(5)
    dialogue = Handshake(Role.CLIENT, ClientCapabilities(), None)
    one = OutgoingRequest(OutgoingId(1), "tools/call", METHODS["tools/call"], None, dialogue)
    tasks.add(one, "a")
    assert (len(tasks), list(tasks), tasks.get(1), one.task) == (1, [one], one, "a")
    assert tasks.pop(1) is one
    assert tasks.pop(1) is None
    assert (len(tasks), tasks.get(1)) == (0, None)
    tasks.observe("anything")
