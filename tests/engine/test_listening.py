"""Subscriptions, served: acknowledged first, then only what was acknowledged, under their own ids."""

from __future__ import annotations

import io
import json
from typing import Any

import attrs
import pytest
from stateless import LEVEL, ME, MODERN, SERVER, SUBSCRIPTION, server_of, stateless, tool_call
from wires import feed, note, one, sent

from mcpio.engine.server import ServerConnection
from mcpio.errors import ErrorCode, LocalProtocolError, NoBackChannel, RequestError
from mcpio.events import CancelReceived, ConnectionClosed, RequestReceived
from mcpio.observe.recording import Recorder, Replay
from mcpio.observe.tap import add_tap
from mcpio.types.base import TASKS_EXTENSION, CustomNotification
from mcpio.types.features import (
    CallToolResult,
    EmptyResult,
    LoggingMessageNotification,
    PromptListChangedNotification,
    PromptsCapability,
    ResourceListChangedNotification,
    ResourcesCapability,
    ResourceUpdatedNotification,
    ServerCapabilities,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsListenResult,
    ToolListChangedNotification,
    ToolsCapability,
)
from mcpio.types.tasks import TaskNotification

OFFERS = ServerCapabilities(
    tools=ToolsCapability(True), prompts=PromptsCapability(True), resources=ResourcesCapability(True, True), logging={}
)
ALL = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


def server(**options: Any) -> ServerConnection:
    return server_of(MODERN, OFFERS, **options)


def listen(connection: ServerConnection, id: Any = 1, via: Any = None, **asked: Any) -> RequestReceived:
    event = one(connection, stateless("subscriptions/listen", id, notifications=asked), via)
    assert isinstance(event, RequestReceived)
    return event


def listening(connection: ServerConnection, id: Any = 1, via: Any = None, **asked: Any) -> RequestReceived:
    event = listen(connection, id, via, **asked)
    connection.acknowledge(event.id, event.request.notifications)
    sent(connection)
    return event


@pytest.mark.req("SUB-01", "SUB-02", "ENV-09")
@pytest.mark.parametrize("id", [1, "1"])
def test_acknowledgement_comes_first(id: Any) -> None:
    connection = server()
    event = listen(connection, id, **ALL, resourceSubscriptions=["a:b"])
    with pytest.raises(LocalProtocolError, match="acknowledge the subscription 1 first"):
        connection.send_notification(ToolListChangedNotification(), related_to=event.id)
    with pytest.raises(LocalProtocolError, match="acknowledge the subscription 1 first, or answer with an error"):
        connection.send_result(event.id, SubscriptionsListenResult())
    with pytest.raises(LocalProtocolError, match="acknowledge the subscription 1 first, or answer with an error"):
        connection.send_raw_result(event.id, b"{}")
    connection.acknowledge(event.id, SubscriptionFilter(tools_list_changed=True, resource_subscriptions=("a:b",)))
    connection.send_notification(ToolListChangedNotification(), related_to=event.id)
    acknowledged, changed = sent(connection)
    assert acknowledged == note(
        "subscriptions/acknowledged",
        notifications={"toolsListChanged": True, "resourceSubscriptions": ["a:b"]},
        _meta={SUBSCRIPTION: id},
    )
    assert changed == note("tools/list_changed", _meta={SUBSCRIPTION: id})
    assert changed["params"]["_meta"][SUBSCRIPTION].__class__ is id.__class__


@pytest.mark.req("SUB-03")
@pytest.mark.parametrize(
    "honoured",
    [
        SubscriptionFilter(prompts_list_changed=True),
        SubscriptionFilter(resources_list_changed=True),
        SubscriptionFilter(resource_subscriptions=("a:b", "c:d")),
        {"toolsListChanged": True},
    ],
)
def test_more_than_was_asked_for_is_refused(honoured: Any) -> None:
    connection = server()
    event = listen(connection, toolsListChanged=True, promptsListChanged=False, resourceSubscriptions=["a:b"])
    with pytest.raises(LocalProtocolError, match=r"was not asked for|must be a SubscriptionFilter, not a dict"):
        connection.acknowledge(event.id, honoured)
    connection.acknowledge(event.id, SubscriptionFilter(prompts_list_changed=False))
    with pytest.raises(LocalProtocolError, match="was acknowledged before"):
        connection.acknowledge(event.id, SubscriptionFilter())


def test_updates_need_a_resource_that_was_subscribed_to() -> None:
    connection = server()
    lists = one(connection, stateless("subscriptions/listen", 1, notifications={"toolsListChanged": True}))
    one_resource = one(
        connection, stateless("subscriptions/listen", 2, notifications={"resourceSubscriptions": ["a:b"]})
    )
    for event in (lists, one_resource):
        connection.acknowledge(event.id, event.request.notifications)
    sent(connection)
    with pytest.raises(LocalProtocolError, match="does not honour notifications/resources/updated"):
        connection.send_notification(ResourceUpdatedNotification("a:b"), related_to=lists.id)
    # What lies within a resource is for the caller to know.
    connection.send_notification(ResourceUpdatedNotification("a:b/c"), related_to=one_resource.id)
    assert [message["params"]["uri"] for message in sent(connection)] == ["a:b/c"]


@pytest.mark.req("SUB-03", "SUB-06", "PAT-02")
def test_only_what_is_honoured_is_sent() -> None:
    connection = server()
    asked = {"toolsListChanged": True, "resourceSubscriptions": ["a:b"]}
    event = one(
        connection, stateless("subscriptions/listen", 1, more={LEVEL: "debug", "progressToken": 5}, notifications=asked)
    )
    connection.acknowledge(event.id, event.request.notifications)
    sent(connection)
    for wrong in (
        PromptListChangedNotification(),
        ResourceListChangedNotification(),
        LoggingMessageNotification("error", "x"),
    ):
        with pytest.raises(LocalProtocolError, match="does not honour notifications/"):
            connection.send_notification(wrong, related_to=event.id)
    with pytest.raises(LocalProtocolError, match="is sent by acknowledge"):
        connection.send_notification(SubscriptionsAcknowledgedNotification(SubscriptionFilter()), related_to=event.id)
    connection.send_progress(event.id, 1)
    connection.send_notification(ResourceUpdatedNotification("a:b"), related_to=event.id)
    connection.send_notification(CustomNotification("notifications/x", {"taskId": "t"}), related_to=event.id)
    updated, custom = sent(connection)
    assert updated == note("resources/updated", uri="a:b", _meta={SUBSCRIPTION: 1})
    assert custom["params"] == {"taskId": "t", "_meta": {SUBSCRIPTION: 1}}


WITH_TASKS = attrs.evolve(OFFERS, extensions={TASKS_EXTENSION: {}})


def task(id: str, status: Any = "working", **more: Any) -> TaskNotification:
    return TaskNotification(id, status, "2026-07-28T10:30:00Z", "2026-07-28T10:30:00Z", 60_000, **more)


@pytest.mark.req("XTASK-11", "ENV-09")
def test_tasks_are_notified_by_id() -> None:
    connection = server_of(MODERN, WITH_TASKS)
    event = listen(connection, taskIds=["a", "b"], toolsListChanged=True)
    with pytest.raises(LocalProtocolError, match=r"taskIds: \['c'\] was not asked for"):
        connection.acknowledge(event.id, SubscriptionFilter(task_ids=("a", "c")))
    connection.acknowledge(event.id, SubscriptionFilter(task_ids=("a",)))
    connection.send_notification(task("a", "completed", result={"content": []}), related_to=event.id)
    with pytest.raises(LocalProtocolError, match="does not honour notifications/tasks"):
        connection.send_notification(task("b"), related_to=event.id)
    acknowledged, told = sent(connection)
    assert acknowledged["params"]["notifications"] == {"taskIds": ["a"]}
    assert told["method"] == "notifications/tasks"
    assert (told["params"]["taskId"], told["params"]["result"]) == ("a", {"content": []})
    assert told["params"]["_meta"] == {SUBSCRIPTION: 1}
    lists = listening(connection, 2, toolsListChanged=True)
    with pytest.raises(LocalProtocolError, match="does not honour notifications/tasks"):
        connection.send_notification(task("a"), related_to=lists.id)


@pytest.mark.req("XTASK-11")
def test_only_the_last_state_of_a_task_waits() -> None:
    connection = server_of(MODERN, WITH_TASKS)
    event = listening(connection, taskIds=["a", "b"])
    for number in range(1000):
        for id in ("a", "b"):
            connection.send_notification(task(id, status_message=str(number)), related_to=event.id)
    held = connection.held.output
    assert [(each["params"]["taskId"], each["params"]["statusMessage"]) for each in sent(connection)] == [
        ("a", "999"),
        ("b", "999"),
    ]
    assert held < 4096


def test_server_without_the_extension_notifies_of_no_task() -> None:
    connection = server()
    event = listening(connection, taskIds=["a"])
    with pytest.raises(LocalProtocolError, match="needs the capability extensions"):
        connection.send_notification(task("a"), related_to=event.id)


@pytest.mark.req("SUB-11")
def test_undeclared_change_is_refused() -> None:
    connection = server_of(MODERN, ServerCapabilities(tools=ToolsCapability()))
    event = listening(connection, toolsListChanged=True)
    with pytest.raises(LocalProtocolError, match=r"needs the capability tools\.list_changed"):
        connection.send_notification(ToolListChangedNotification(), related_to=event.id)


@pytest.mark.req("SUB-05")
def test_changes_coalesce_within_their_subscription() -> None:
    connection = server()
    first = listening(connection, 1, toolsListChanged=True, resourceSubscriptions=["a:b", "c:d"])
    second = listening(connection, 2, toolsListChanged=True)
    for _ in range(100):
        for event in (first, second):
            connection.send_notification(ToolListChangedNotification(), related_to=event.id)
        for uri in ("a:b", "c:d"):
            connection.send_notification(ResourceUpdatedNotification(uri), related_to=first.id)
    said = [(each["params"]["_meta"][SUBSCRIPTION], each["params"].get("uri")) for each in sent(connection)]
    assert sorted(said, key=str) == [(1, "a:b"), (1, "c:d"), (1, None), (2, None)]


@pytest.mark.req("SUB-08", "PAT-05", "ENV-09")
def test_result_ends_a_subscription_and_a_cancellation_follows_on_channels() -> None:
    connection = server()
    event, other = listening(connection, "s", toolsListChanged=True), listening(connection, "t", via="x")
    wrong: Any
    for wrong in (EmptyResult(), CallToolResult(()), {}):
        with pytest.raises(LocalProtocolError, match="must be a SubscriptionsListenResult"):
            connection.send_result(event.id, wrong)
    connection.send_notification(ToolListChangedNotification(), related_to=event.id)
    connection.send_result(event.id, SubscriptionsListenResult())
    changed, ended, cancelled = sent(connection)
    assert changed["method"] == "notifications/tools/list_changed"
    assert ended["result"] == {"resultType": "complete", "_meta": {**ME, SUBSCRIPTION: "s"}}
    assert cancelled == note("cancelled", requestId="s")
    connection.send_result(other.id, SubscriptionsListenResult())
    (ended,) = sent(connection)
    assert ended["result"]["_meta"][SUBSCRIPTION] == "t"


@pytest.mark.req("SUB-08")
def test_raw_result_gets_the_id_of_the_subscription() -> None:
    connection = server()
    event, other = listening(connection, 1), listening(connection, 2)
    connection.send_raw_result(event.id, b'{"_meta":{"a":1}}')
    connection.send_raw_result(other.id, b'{ "resultType":"complete","_meta":{"%b":2}}' % SUBSCRIPTION.encode())
    filled, kept = (chunk for chunk in connection.data_to_send() if chunk is not None and b'"result"' in chunk)
    assert json.loads(filled)["result"] == {"resultType": "complete", "_meta": {"a": 1, SUBSCRIPTION: 1}}
    assert b'{ "resultType"' in kept


@pytest.mark.req("SUB-07", "PAT-04")
def test_cancelled_subscription_gets_no_notifications() -> None:
    connection = server()
    event = listen(connection, 1, **ALL)
    assert isinstance(one(connection, note("cancelled", requestId=1)), CancelReceived)
    connection.acknowledge(event.id, SubscriptionFilter())
    connection.send_notification(ToolListChangedNotification(), related_to=event.id)
    connection.send_result(event.id, SubscriptionsListenResult())
    assert sent(connection) == []


@pytest.mark.req("SUB-12")
def test_failed_subscription_gets_an_ordinary_error() -> None:
    connection = server()
    event = one(connection, stateless("subscriptions/listen", 1, notifications={"toolsListChanged": 1}))
    assert event.error.code == ErrorCode.INVALID_PARAMS
    event = one(connection, stateless("subscriptions/listen", 2))
    assert event.error.code == ErrorCode.INVALID_PARAMS
    event = listen(connection, 3)
    with pytest.raises(LocalProtocolError, match="has no meaning yet"):
        connection.send_error(event.id, RequestError(-32050, "x"))
    connection.send_error(event.id, RequestError(ErrorCode.INTERNAL_ERROR, "Too many"))
    assert sorted(each["error"]["code"] for each in sent(connection)) == [-32603, -32602, -32602]


def test_only_subscriptions_are_acknowledged() -> None:
    connection = server()
    with pytest.raises(LocalProtocolError, match="acknowledge must answer subscriptions/listen, not tools/call"):
        connection.acknowledge(one(connection, tool_call()).id, SubscriptionFilter())
    connection.can_reach = lambda via: via == "open"
    event = listen(connection, 2, via="gone", **ALL)
    with pytest.raises(NoBackChannel):
        connection.acknowledge(event.id, SubscriptionFilter(tools_list_changed=True))
    with pytest.raises(LocalProtocolError, match="first"):
        connection.send_notification(ToolListChangedNotification(), related_to=event.id)


@pytest.mark.req("SUB-08")
@pytest.mark.parametrize("how", ["close", "end"])
def test_closing_ends_subscriptions_at_once(how: str) -> None:
    connection = server()
    open_, unacknowledged = listening(connection, 1, toolsListChanged=True), listen(connection, 2)
    by_exchange, calling = listening(connection, 3, via="x"), one(connection, tool_call(4))
    if how == "close":
        connection.close(0.0)
    else:
        connection.receive_data(None, 0.0)
    ended: list[Any] = list(connection.events())
    assert [event.id for event in ended] == [open_.id, unacknowledged.id, by_exchange.id]
    assert {type(event) for event in ended} == {CancelReceived}
    answers = {each.get("id", "cancelled"): each for each in sent(connection)}
    assert answers[1]["result"]["_meta"] == {SUBSCRIPTION: 1, SERVER: ME[SERVER]}
    assert answers[2]["error"]["data"] == {"reason": "closing"}
    assert answers[3]["result"]["resultType"] == "complete"
    assert answers["cancelled"]["params"] == {"requestId": 1}
    connection.send_result(open_.id, SubscriptionsListenResult())  # the handler may be late
    connection.send_result(calling.id, CallToolResult(()))
    assert [each if each is None else each["id"] for each in sent(connection)] == [4, None]
    assert [type(event) for event in connection.events()] == [ConnectionClosed]


def test_subscription_survives_a_snapshot() -> None:
    connection = server()
    for event in (listening(connection, 1, toolsListChanged=True), listen(connection, 2, promptsListChanged=True)):
        state = json.loads(json.dumps(connection.snapshot(0.0)))
        assert state["version"] == 2
        restored = ServerConnection.restore(state, 0.0, options=connection.options, principal="me")
        assert restored.snapshot(0.0) == state
        for each in (connection, restored):
            if event.id == 2:
                each.acknowledge(event.id, SubscriptionFilter(prompts_list_changed=True))
                each.send_notification(PromptListChangedNotification(), related_to=event.id)
            else:
                each.send_notification(ToolListChangedNotification(), related_to=event.id)
        assert connection.data_to_send() == restored.data_to_send()


def test_recorded_subscription_is_replayed() -> None:
    connection, lines = server(), io.StringIO()
    add_tap(connection, Recorder(lines.write))
    event, other = listen(connection, 1, **ALL), listen(connection, 2, **ALL)
    connection.acknowledge(event.id, event.request.notifications)
    connection.acknowledge(other.id, other.request.notifications)
    connection.send_notification(ToolListChangedNotification(), related_to=event.id)
    connection.send_result(event.id, SubscriptionsListenResult())
    feed(connection, tool_call(3))
    connection.close(0.0)
    list(connection.events())
    assert len(sent(connection)) == 7
    steps = list(Replay(lines.getvalue().splitlines(), principal="me"))
    assert [step.differs for step in steps if step.differs] == []
    assert sum(len(step.sent) for step in steps) == 7
