"""What the verbs that send have to do with tasks."""

from __future__ import annotations

from typing import Any

import pytest
from wires import call, client, client_of_tasks, created, feed, one, sent, server

from mcpio.errors import LocalProtocolError
from mcpio.types.asking import ListRootsResult
from mcpio.types.base import CustomNotification
from mcpio.types.features import CallToolRequest, ListToolsRequest, PingRequest
from mcpio.types.tasks import TaskMetadata

RELATED = "io.modelcontextprotocol/related-task"


@pytest.mark.req("CANC-04", "TASK-28")
def test_task_request_is_cancelled_by_its_task_and_marked() -> None:
    connection = client_of_tasks()
    asks = CallToolRequest("x", task=TaskMetadata())
    first, second = (connection.send_request(asks, now=0.0) for _ in range(2))
    feed(connection, created(first))
    assert connection.cancel_request(first)
    assert connection.cancel_request(second)
    assert not connection.cancel_request(second)
    assert [message["method"] for message in sent(connection)] == ["tools/call", "tools/call", "tasks/cancel"]
    mark = {RELATED: {"taskId": "t"}}
    (asked, *_) = [event for event in feed(connection, roots_list(**mark, progressToken=1)) if event.id != second]
    connection.send_progress(asked.id, 1)
    connection.send_notification(CustomNotification("acme/x"), related_to=asked.id)
    connection.send_request(ListToolsRequest(), now=0.0, related_to=asked.id)
    connection.send_result(asked.id, ListRootsResult(()))
    assert [(message.get("params") or message["result"])["_meta"] for message in sent(connection)] == [mark] * 4


def roots_list(**meta: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "roots/list", "params": {"_meta": meta}}


@pytest.mark.req("TASK-02")
def test_task_request_to_a_peer_without_tasks_is_refused() -> None:
    connection = client()
    with pytest.raises(LocalProtocolError, match=r"needs the capability tasks\.requests\.tools\.call"):
        connection.send_request(CallToolRequest("x", task=TaskMetadata()), now=0.0)
    assert sent(connection) == []


@pytest.mark.req("CANC-01", "TASK-28")
def test_cancellation_within_a_task_names_the_task() -> None:
    connection = server()
    mark = {RELATED: {"taskId": "t"}}
    parent = one(connection, call(**mark))
    id = connection.send_request(PingRequest(), now=0.0, related_to=parent.id)
    assert connection.cancel_request(id)
    _, cancelled = sent(connection)
    assert (cancelled["method"], cancelled["params"]["_meta"]) == ("notifications/cancelled", mark)
