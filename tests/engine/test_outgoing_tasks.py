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
from mcpio.engine.pending import OutgoingRequest
from mcpio.engine.server import ServerConnection
from mcpio.engine.table import Role
from mcpio.engine.tasks import OutgoingTasks
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
def test_task_request_has_the_task_as_its_outcome() -> None:
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
def test_server_may_request_tasks(payload: Any, tasks: dict[str, Any], answer: type) -> None:
    connection = server(tasks)
    id = connection.send_request(payload, now=0.0)
    (message,) = sent(connection)
    assert message["params"]["task"] == {}
    assert isinstance(one(connection, created(int(id))).result, CreateTaskResult)
    id = connection.send_request(payload, now=0.0)
    plain = {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m", "action": "decline"}
    assert isinstance(one(connection, result(int(id), **plain)).result, answer)


@pytest.mark.req("TASK-03")
def test_plain_result_to_a_task_request_is_accepted() -> None:
    connection = client()
    id = connection.send_request(CALL, now=0.0, progress=True)
    answered = one(connection, result(int(id), content=[]))
    assert answered.result == CallToolResult(())
    assert connection.pending.tasks == ()
    assert one(connection, progress(int(id), 1)).reason is IgnoreReason.LATE_PROGRESS


@pytest.mark.parametrize("member", [{"taskId": "t1"}, {"taskId": "t1", "status": "done"}, {**task(), "ttl": "x"}])
def test_malformed_task_result_fails_its_request(member: dict[str, Any]) -> None:
    connection = client()
    id = connection.send_request(CALL, now=0.0)
    failed = one(connection, result(int(id), task=member))
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, InvalidMessage)
    assert connection.pending.tasks == ()


@pytest.mark.parametrize("member", [5, None, "t1", {}, {"taskId": 5}])
def test_task_member_of_another_type_belongs_to_a_plain_result(member: Any) -> None:
    connection = client()
    id = connection.send_request(CALL, now=0.0)
    answered = one(connection, result(int(id), content=[], task=member))
    assert isinstance(answered.result, CallToolResult)


def test_task_result_without_a_task_request_is_refused() -> None:
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
def test_task_request_without_the_capability_is_refused(declared: dict[str, Any] | None, payload: Any) -> None:
    connection = client(declared)
    before = connection.snapshot(0.0)
    with pytest.raises(LocalProtocolError, match=r"needs the capability tasks\.requests\.tools\.call"):
        connection.send_request(payload, now=0.0)
    assert connection.snapshot(0.0) == before
    connection.send_request(CallToolRequest("slow"), now=0.0)


@pytest.mark.req("TASK-02")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
def test_task_request_in_another_revision_is_refused(revision: str) -> None:
    connection = client(ALL, revision)
    with pytest.raises(LocalProtocolError, match="task"):
        connection.send_request(CALL, now=0.0)
    assert sent(connection) == []


# Progress


@pytest.mark.req("PROG-07")
@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_progress_continues_until_the_task_is_over(status: str) -> None:
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
def test_message_that_reports_the_end_ends_the_progress(asks: Any, answer: dict[str, Any]) -> None:
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
def test_other_messages_leave_the_task_running(asks: Any, answer: dict[str, Any]) -> None:
    connection = client()
    id = with_task(connection)
    asked = connection.send_request(asks, now=0.0)
    one(connection, result(int(asked), **answer))
    assert isinstance(one(connection, progress(id, 1)), ProgressReceived)


def test_task_without_a_token_gets_no_progress() -> None:
    connection = client()
    id = connection.send_request(CALL, now=0.0)
    feed(connection, created(int(id)))
    assert one(connection, progress(id, 1)).reason is IgnoreReason.LATE_PROGRESS
    assert one(connection, progress(99, 1)).reason is IgnoreReason.UNKNOWN_TOKEN
    assert one(connection, note("progress", progressToken="2", progress=1)).reason is IgnoreReason.UNKNOWN_TOKEN


def test_end_of_the_connection_forgets_its_tasks() -> None:
    connection = client()
    with_task(connection)
    connection.close(0.0)
    assert connection.pending.tasks == ()


def test_oldest_task_beyond_the_limit_is_forgotten() -> None:
    connection = client(outgoing_tasks=2)
    for number in range(3):
        id = connection.send_request(CALL, now=0.0, progress=True)
        feed(connection, created(int(id), f"t{number}"))
    assert connection.pending.tasks == (3, 4)
    assert one(connection, progress(2, 1)).reason is IgnoreReason.LATE_PROGRESS
    none = client(outgoing_tasks=0)
    with_task(none)
    assert none.pending.tasks == ()


def test_task_named_twice_belongs_to_the_later_request() -> None:
    connection = client()
    first, second = with_task(connection), with_task(connection)
    assert first != second
    assert connection.pending.tasks == (second,)


# Giving up


@pytest.mark.req("CANC-04")
def test_task_is_cancelled_by_tasks_cancel() -> None:
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
def test_cancelled_task_request_is_cancelled_once_its_task_is_known(overdue: bool) -> None:
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


def test_cancelled_task_request_with_a_plain_result_sends_nothing() -> None:
    connection = client()
    for answer in (result(2, content=[]), {"jsonrpc": "2.0", "id": 3, "error": {"code": 1, "message": "no"}}):
        connection.cancel_request(connection.send_request(CALL, now=0.0))
        list(connection.events())
        sent(connection)
        assert one(connection, answer).reason is IgnoreReason.LATE_RESPONSE
        assert sent(connection) == []


@pytest.mark.req("CANC-04")
@pytest.mark.parametrize("late", [False, True])
def test_peer_without_task_cancel_gets_no_cancellation(late: bool) -> None:
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


def test_late_task_on_a_closing_connection_is_not_cancelled() -> None:
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
def test_messages_of_a_request_within_a_task_name_the_task() -> None:
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
def test_cancellation_of_a_request_within_a_task_names_the_task() -> None:
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
def test_log_message_of_a_request_within_a_task_names_the_task() -> None:
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


def test_tasks_survive_a_snapshot() -> None:
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


def test_unfit_cookie_of_a_running_task_refuses_the_snapshot() -> None:
    connection = client()
    id = connection.send_request(CALL, now=0.0, cookie=object())
    feed(connection, created(int(id)))
    sent(connection)
    with pytest.raises(LocalProtocolError, match="in a snapshot, a cookie must be"):
        connection.snapshot(0.0)
    assert connection.snapshot(0.0, cookies=lambda _: "said")["tasks"][0]["cookie"] == "said"
    connection.cancel_request(id)
    sent(connection)
    connection.snapshot(0.0)


@pytest.mark.parametrize("change", [{"task": None}, {"id": 99}, {"id": 3}, {"name": "notifications/progress"}])
def test_snapshot_with_contradictory_tasks_is_refused(change: dict[str, Any]) -> None:
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


def test_snapshot_without_tasks_is_accepted() -> None:
    snapshot = client().snapshot(0.0)
    assert snapshot.pop("tasks") == []
    assert ClientConnection.restore(snapshot, 0.0).pending.tasks == ()


# The table itself


def test_popped_task_is_forgotten() -> None:
    tasks = OutgoingTasks(5)
    dialogue = Handshake(Role.CLIENT, None)
    one = OutgoingRequest(OutgoingId(1), "tools/call", METHODS["tools/call"], None, dialogue)
    tasks.add(one, "a")
    assert (len(tasks), list(tasks), tasks.get(1), one.task) == (1, [one], one, "a")
    assert tasks.pop(1) is one
    assert tasks.pop(1) is None
    assert (len(tasks), tasks.get(1)) == (0, None)
    tasks.observe("anything")
